"""Calibration: passes over the units, shared among ranks, and the arrays that come of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._native import Array
from ..errors import NumericsError, ShapeError, SyncError
from ..sync import Comm, Moments, local, merge
from ..sync.communicators import texts_of_all
from .batchnorms import BatchNormPlace, batchnorms_of
from .measuring import Meter, refuse_shared
from .ranks import from_first, raise_first, together
from .results import Calibration, LayerCalibration
from .unfinished import State, Unfinished, about_work
from .units import Batches, Units

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["Work", "calibrate_network", "calibrated"]


@dataclass(frozen=True, slots=True)
class Work:
    """How a calibration goes about it; see `calibrate`."""

    sequential: bool = False
    comm: Comm | None = None
    progress: Callable[[int, int], None] | None = None
    resume: str | os.PathLike[str] | None = None
    data: str = ""


def calibrate_network(net: Network, batches: Batches, work: Work) -> Calibration:
    """See `calibrate`."""
    with net.turn():
        places = batchnorms_of(net.layers, net.origin.cfg.name, folded=net.folded)
        state = _Run(net, Units(batches), work).run()
        found = [calibrated(net, place, total) for place, total in zip(places, state.totals, strict=True)]
        for place, layer in zip(places, found, strict=True):
            place.array("rolling_mean")[...] = layer.mean
            place.array("rolling_variance")[...] = layer.variance
    return Calibration(tuple(found), state.units, state.rows, work.sequential)


def calibrated(net: Network, place: BatchNormPlace, total: Moments) -> LayerCalibration:
    """What a batchnorm would be set to.

    Raises:
        NumericsError: a value that no float holds.
    """
    mean, variance = _rounded(net, place, total)
    old = (place.array("rolling_mean").copy(), place.array("rolling_variance").copy())
    return LayerCalibration(place.first.index, place.first.type, total.n, *old, mean, variance)


def _rounded(net: Network, place: BatchNormPlace, total: Moments) -> tuple[Array, Array]:
    """Mean and variance of the population, as floats.

    Raises:
        NumericsError: one of them has none.
    """
    with np.errstate(over="ignore"):
        mean, variance = total.mean.astype(np.float32), total.variance(unbiased=False).astype(np.float32)
    bad = np.flatnonzero(~(np.isfinite(mean) & np.isfinite(variance)))
    if bad.size:
        where = f"{net.origin.cfg.name}: {place.where}, channel {bad[0]}"
        raise NumericsError(f"{where}: mean {mean[bad[0]]:.3g} and variance {variance[bad[0]]:.3g}; nothing was changed")
    return mean, variance


@dataclass(slots=True)
class _Run:
    """One calibration on one rank."""

    net: Network
    units: Units
    work: Work
    comm: Comm = field(init=False)
    copy: Network = field(init=False)
    places: tuple[BatchNormPlace, ...] = field(init=False)
    kept: Unfinished = field(init=False)

    def __post_init__(self) -> None:
        self.comm = self.work.comm or local(1)[0]
        self.copy = self.net.clone()
        self.places = batchnorms_of(self.copy.layers, self.net.origin.cfg.name)

    def run(self) -> State:
        """All passes; the state behind the last."""
        about = about_work(self.net, self.work.sequential, self.work.data)
        raise_first(self.comm, self._refusal())
        self._compare_ranks(about)
        self.kept = Unfinished(self.work.resume if self.comm.rank == 0 else None, about)
        state = self._begin()
        for stage in range(state.stage, len(self.places) if self.work.sequential else 1):
            state = self._pass(state if stage == state.stage else State(stage, 0, 0, state.totals, state.units_done))
            if not state.rows:
                self.kept.remove()
                raise ShapeError(f"{self.net.origin.cfg.name}: expected batches to calibrate with, got none")
            if self.work.sequential:
                self._set(stage, state.totals[stage])
        together(self.comm, self.kept.remove)
        return state

    def _refusal(self) -> Exception | None:
        try:
            if self.work.sequential:
                refuse_shared(self.places, self.net.origin.cfg.name)
                if self.units.once:
                    raise ShapeError("sequential walks through the batches once for each batchnorm; give a sequence or a function")
        except Exception as reason:  # for the other ranks
            return reason
        return None

    def _compare_ranks(self, about: dict[str, str]) -> None:
        for rank, told in enumerate(texts_of_all(self.comm, json.dumps(about))):
            theirs = json.loads(told)
            for name, here in about.items():
                if theirs.get(name) != here:
                    raise SyncError(f"rank {rank} of {self.comm.size} calibrates with another {name} than rank {self.comm.rank}")

    def _begin(self) -> State:
        """Where the interrupted work ended, or the start; the same on every rank."""
        channels = [place.channels for place in self.places]
        held = together(self.comm, lambda: self.kept.read(channels))
        start = State(0, 0, 0, tuple(Moments(0, np.zeros(c), np.zeros(c)) for c in channels))
        state = State.of_message(from_first(self.comm, (held or start).message()), channels)
        for stage in range(state.stage if self.work.sequential else 0):
            self._set(stage, state.totals[stage])
        together(self.comm, lambda: self.kept.keep(state, at_once=True))  # what cannot be written is told before the work
        return state

    def _set(self, stage: int, total: Moments) -> None:
        place = self.places[stage]
        place.array("rolling_mean")[...], place.array("rolling_variance")[...] = _rounded(self.net, place, total)

    def _pass(self, state: State) -> State:
        """The rest of one walk through the units."""
        meter = Meter(self.copy, self.places, state.stage if self.work.sequential else None)
        read, left = self.units.reader(), True
        try:
            while left:
                state, left = self._round(meter, read, state)
                self._tell(state)
                together(self.comm, lambda: self.kept.keep(state))  # noqa: B023 called at once
        except BaseException:
            self.kept.stop(state)
            raise
        return state

    def _tell(self, state: State) -> None:
        if self.work.progress:
            passes = len(self.places) if self.work.sequential else 1
            self.work.progress(state.units_done, self.units.count * passes)

    def _round(self, meter: Meter, read: Callable[[int], Any], state: State) -> tuple[State, bool]:
        """The next unit of each rank, merged in order; and whether there may be more."""
        rows, found = 0, None
        failure: Exception | None = None
        try:
            x = read(state.units + self.comm.rank)
            if x is not None:
                found, rows = meter.measure(state.units + self.comm.rank, x), len(x)
        except Exception as reason:  # the other ranks wait
            failure = reason
        moments = found or tuple(Moments(0, total.mean * 0, total.m2 * 0) for total in state.totals)
        status = 2.0 if failure else 0.0 if found is None else 1.0
        message = np.concatenate([[status, float(rows)], *(each.message() for each in moments)])
        gathered = self.comm.allgather(message)
        if (gathered[:, 0] == 2).any():
            raise_first(self.comm, failure)
        there = gathered[:, 0] == 1
        count = int(there.sum())
        if not there[:count].all():
            raise SyncError(
                f"rank {int(np.argmin(there))} of {self.comm.size} has fewer batches than those behind it; give all the same"
            )
        return self._merged(state, gathered[:count]), count == self.comm.size

    def _merged(self, state: State, gathered: Any) -> State:
        totals = [[total] for total in state.totals]
        sizes = np.cumsum([1 + 2 * place.channels for place in self.places])[:-1]
        for row in gathered:
            for parts, part in zip(totals, np.split(row[2:], sizes), strict=True):
                parts.append(Moments.of_message(part))
        units, rows = state.units + len(gathered), state.rows + int(gathered[:, 1].sum())
        return State(state.stage, units, rows, tuple(map(merge, totals)), state.units_done + len(gathered))
