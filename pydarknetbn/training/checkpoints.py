"""A training on disk: everything that it needs to go on bit for bit, in one .npz."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import npz
from ..errors import CheckpointError, DarknetError
from ..files import write_atomically
from ..weights import Header
from .holding import held_arrays, put_back

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["read_checkpoint", "write_checkpoint"]

_FORMAT = "1"


def write_checkpoint(net: Network, path: str | os.PathLike[str], steps: int) -> None:
    """Writes PATH.ckpt, then PATH.weights; each is the file from before or the new one at any moment.

    Args:
        net: the network, between two steps.
        path: without the endings.
        steps: that the training has done.

    Raises:
        CheckpointError, WeightsError: it cannot be written; what was there still is.
    """
    target = f"{os.fspath(path)}.ckpt"
    told = np.array(json.dumps(_about(net) | {"state": json.dumps(_state(net, steps))}))
    arrays = [(npz.METADATA, told), *held_arrays(net)]
    try:
        write_atomically(target, lambda stream: npz.write_arrays(stream, arrays))
    except OSError as reason:
        raise CheckpointError(f"{target}: cannot be written, and is as it was: {reason}") from reason
    net.save(f"{os.fspath(path)}.weights")


def _about(net: Network) -> dict[str, str]:
    """What has to be equal for a training to go on."""
    text = hashlib.sha256(net.origin.cfg.text.encode()).hexdigest()
    return {"checkpoint": _FORMAT, "cfg": text, "dialect": net.dialect, "profile": net.profile}


def _state(net: Network, steps: int) -> dict[str, Any]:
    progress, header = net.progress, net.header
    return {
        "steps": steps,
        "seen": net.seen,
        "iteration": progress.iteration,
        "rows": progress.rows,
        "updates": progress.updates,
        "header": [header.major, header.minor, header.revision, header.seen, header.seen_bytes],
        "generator": _plain(net.generator.bit_generator.state),
    }


def _plain(value: Any) -> Any:
    """A generator's state in what JSON has."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read_checkpoint(net: Network, path: str | os.PathLike[str]) -> int:
    """Gives a network the training of a file that `write_checkpoint` wrote; nothing of it changes where that does not fit.

    Returns:
        The steps that the training has done.

    Raises:
        CheckpointError: it is no checkpoint, damaged, or of another cfg, dialect or profile.
    """
    where = os.fspath(path)
    if not Path(where).is_file():
        raise CheckpointError(f"{where}: does not exist, expected a checkpoint of fit(checkpoint=…); check the path")
    _compare(net, where, told := npz.read_metadata(where))
    try:
        held = npz.read_arrays(where, limit=Path(where).stat().st_size)
        held.pop(npz.METADATA, None)
        state = json.loads(told["state"])
        progress = _Restored(state)
        put_back(net, held)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as reason:
        told_reason = str(reason) if isinstance(reason, DarknetError) else f"{where}: {reason}"
        raise CheckpointError(f"{told_reason}; it is damaged, or of another version of this package") from None
    return progress.into(net)


def _compare(net: Network, where: str, told: dict[str, str]) -> None:
    if "checkpoint" not in told:
        raise CheckpointError(f"{where}: is no checkpoint of fit(checkpoint=…), or damaged")
    if told["checkpoint"] != _FORMAT:
        raise CheckpointError(f"{where}: is a checkpoint of format {told['checkpoint']}, this package reads {_FORMAT}")
    for name, here in _about(net).items():
        if told.get(name) != here:
            there = "another cfg" if name == "cfg" else f"{name} {told.get(name)}"
            mine = net.origin.cfg.name if name == "cfg" else here
            raise CheckpointError(f"{where}: is of a training with {there}, not {mine}; go on with what it began with")


class _Restored:
    """The numbers of a checkpoint, read before anything changes."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.steps, self.seen, self.rows, self.updates = (int(state[name]) for name in ("steps", "seen", "rows", "updates"))
        self.iteration = None if state["iteration"] is None else int(state["iteration"])
        self.header = Header(*(int(number) for number in state["header"]))
        self.generator = np.random.default_rng()
        self.generator.bit_generator.state = state["generator"]

    def into(self, net: Network) -> int:
        """Gives them to the network; the steps done."""
        progress = net.progress
        progress.seen, progress.iteration, progress.rows, progress.updates = self.seen, self.iteration, self.rows, self.updates
        net.generator.bit_generator.state = self.generator.bit_generator.state
        net.header = self.header
        return self.steps
