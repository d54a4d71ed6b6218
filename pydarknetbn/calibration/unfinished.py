"""The file that a calibration's finished units are kept in, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import npz
from .._native import ffi, lib
from ..errors import CheckpointError, DarknetError
from ..files import write_atomically
from ..sync import Moments
from ..sync.moments import Doubles

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["State", "Unfinished", "about_work"]

_FORMAT = "1"
_EVERY = 1.0  # seconds from one writing to the next


@dataclass(frozen=True, slots=True)
class State:
    """How far the work is: all units below `units` of one pass are merged, in the order of their numbers.

    Args:
        stage: number of the pass.
        units: of this pass that are done.
        rows: that they had.
        totals: of each batchnorm what is merged so far.
        units_done: of all passes.
    """

    stage: int
    units: int
    rows: int
    totals: tuple[Moments, ...]
    units_done: int = 0

    def message(self) -> Doubles:
        """As one array."""
        head = [float(number) for number in (self.stage, self.units, self.rows, self.units_done)]
        return np.concatenate([head, *(total.message() for total in self.totals)])

    @staticmethod
    def of_message(message: Doubles, channels: Sequence[int]) -> State:
        """The same back.

        Raises:
            ValueError: it is no message of so many channels, or holds no counts.
        """
        sizes = [1 + 2 * each for each in channels]
        head, counts = message[:4], message[4:][np.cumsum([0, *sizes[:-1]])] if len(message) == 4 + sum(sizes) else None
        if counts is None or not np.isfinite(message).all() or (np.concatenate([head, counts]) < 0).any():
            raise ValueError("holds no moments of this network's batchnorms")
        parts = np.split(message[4:], np.cumsum(sizes)[:-1])
        stage, units, rows, done = (int(number) for number in head)
        if stage >= len(channels):
            raise ValueError(f"holds pass {stage} of {len(channels)}")
        return State(stage, units, rows, tuple(map(Moments.of_message, parts)), done)


def about_work(net: Network, sequential: bool, data: str) -> dict[str, str]:
    """What has to be equal for ranks to work together and for interrupted work to go on."""
    arrays = hashlib.sha256()
    for layer in net.layers:
        for name, array in layer.params.items():
            arrays.update(f"{layer.index}.{name}".encode())
            arrays.update(array.tobytes())
    return {
        "calibration": _FORMAT,
        "cfg": hashlib.sha256(net.origin.cfg.text.encode()).hexdigest(),
        "weights": arrays.hexdigest(),
        "dialect": net.dialect,
        "profile": net.profile,
        "functions": ffi.string(lib.libm_in_use()).decode(),
        "way": "layer after layer" if sequential else "one pass",
        "data": hashlib.sha256(data.encode("utf-8", "replace")).hexdigest(),
    }


@dataclass(slots=True)
class Unfinished:
    """The file at a path; None: nothing is kept.

    Args:
        path: of the file.
        about: see `about_work`.
    """

    path: str | os.PathLike[str] | None
    about: dict[str, str]
    written: float = field(default_factory=time.monotonic)

    def read(self, channels: Sequence[int]) -> State | None:
        """How far the work of before is; None: there was none.

        Raises:
            CheckpointError: the file is of other work, or damaged.
        """
        if self.path is None or not Path(self.path).exists():
            return None
        where = os.fspath(self.path)
        self._compare(where, npz.read_metadata(where))
        try:
            held = npz.read_arrays(where, limit=Path(where).stat().st_size)["state"]
            if held.dtype != np.float64 or held.ndim != 1:
                raise ValueError("holds no moments")
            return State.of_message(held, channels)
        except (ValueError, KeyError, OSError) as reason:
            told = f"{reason}" if isinstance(reason, DarknetError) else f"{where}: {reason}"
            raise CheckpointError(f"{told}; it is damaged: delete it to begin anew") from None

    def _compare(self, where: str, told: dict[str, str]) -> None:
        if "calibration" not in told:
            raise CheckpointError(f"{where}: is no unfinished calibration; name another file, or delete it")
        for name, here in self.about.items():
            if told.get(name) != here:
                which = {"calibration": "another version's format", "data": "other data or other batches", "way": "other passes"}
                other = which.get(name, f"another {name}")
                raise CheckpointError(f"{where}: is unfinished work with {other}; repeat what it began with, or delete it")

    def keep(self, state: State, *, at_once: bool = False) -> None:
        """Writes the state, unless the last one is less than a second old.

        Raises:
            CheckpointError: the file cannot be written.
        """
        if self.path is None or not (at_once or time.monotonic() - self.written >= _EVERY):
            return
        arrays = [(npz.METADATA, np.array(json.dumps(self.about))), ("state", state.message())]
        try:
            write_atomically(self.path, lambda stream: npz.write_arrays(stream, arrays))
        except OSError as reason:
            raise CheckpointError(f"{os.fspath(self.path)}: cannot be written: {reason}") from reason
        self.written = time.monotonic()

    def stop(self, state: State) -> None:
        """Writes what is done of work that does not get further now, if it has begun."""
        if state.units_done:
            self.keep(state, at_once=True)
        else:
            self.remove()

    def remove(self) -> None:
        """The work is done, or has not begun."""
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)
