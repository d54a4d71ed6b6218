"""The other side's values as candidates for ours: by shape and layout, compared over a sample of places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..layers import Shape
from .layouts import Layout, Parts, layouts_of
from .running import Runner
from .steps import Step
from .trace import Tensor

__all__ = ["Candidate", "Candidates", "Pool", "distances"]

_PLACES = 2048
Grid: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value of the other side, read in one layout.

    Args:
        index: of the tensor.
        layout: how it is read.
        array: of the tensor, as it is.
    """

    index: int
    layout: Layout
    tensor: Tensor

    def read(self) -> Array:
        """(batch, c, h, w), float32, C order."""
        return np.ascontiguousarray(self.layout.read(self.tensor.array), np.float32)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Those of one shape.

    Args:
        all: in the order of the trace, of one tensor the likelier layout first.
        at: the places of the sample, as an index.
        samples: (candidates, places).
        repeats: of each candidate, whether an earlier one has the same values.
    """

    all: tuple[Candidate, ...]
    at: tuple[npt.NDArray[np.intp], ...]
    samples: Array
    repeats: tuple[bool, ...]

    def sample(self, value: Array) -> Array:
        """The same places of one of our values."""
        return value[self.at]


class Pool:
    """All of them.

    Args:
        runner: of our network.
        tensors: of the other side.
        batch: images.
    """

    def __init__(self, runner: Runner, tensors: Sequence[Tensor], batch: int) -> None:
        self.tensors = tensors
        self._runner, self._batch = runner, batch
        self._made: dict[tuple[Shape, Parts], Candidates] = {}
        heads = [layer for layer in runner.net.layers if layer.type == "yolo" and layer.head]
        self._heads = {layer.index: number for number, layer in enumerate(heads)}
        self._rows = tuple(len(layer.head.mask) * layer.out_shape.h * layer.out_shape.w for layer in heads if layer.head)

    def of(self, step: Step) -> Candidates:
        """Those that may be the step's value by their shape."""
        key = (step.shape, self._parts(step))
        if key not in self._made:
            self._made[key] = self._candidates(*key)
        return self._made[key]

    def _parts(self, step: Step) -> Parts:
        """A head's layout may already be that of the layer before it."""
        layers = self._runner.net.layers
        index = step.layer if step.layer in self._heads else step.layer + 1
        if index not in self._heads or step.layer < 0 or layers[index].out_shape != step.shape:
            return Parts()
        head = layers[index].head
        assert head is not None
        size = (self._runner.net.w, self._runner.net.h) if step.kind == "boxes" else None
        return Parts(len(head.mask), size, self._rows, self._heads[index])

    def _candidates(self, shape: Shape, parts: Parts) -> Candidates:
        found = [
            Candidate(index, layout, tensor)
            for index, tensor in enumerate(self.tensors)
            for layout in sorted(layouts_of(tensor.array.shape, shape, parts), key=lambda layout: layout.rank)
        ]
        at = _places((self._batch, *shape))
        with np.errstate(over="ignore", invalid="ignore"):
            rows = [np.asarray(each.layout.read(each.tensor.array)[at], np.float32) for each in found]
        samples = np.stack(rows) if rows else np.empty((0, len(at[0])), np.float32)
        return Candidates(tuple(found), at, samples, tuple(_repeats(samples)))


def _repeats(samples: Array) -> Iterator[bool]:
    seen: set[bytes] = set()
    for row in samples:
        values = row.tobytes()
        yield values in seen
        seen.add(values)


def _places(shape: tuple[int, ...]) -> tuple[npt.NDArray[np.intp], ...]:
    total = int(np.prod(shape))
    flat = np.arange(total) if total <= _PLACES else np.sort(np.random.default_rng(0).integers(0, total, _PLACES))
    return np.unravel_index(flat, shape)


def distances(candidates: Candidates, value: Array) -> tuple[Grid, Grid]:
    """How far each candidate is from a value of ours: root mean square as a share of our spread, and the correlation.

    NaN and infinities have to be at the same places.
    """
    ours, theirs = candidates.sample(value).astype(np.float64), candidates.samples.astype(np.float64)
    finite = np.isfinite(ours)
    alike = (np.isfinite(theirs) == finite).all(axis=1)
    ours, theirs = ours[finite], theirs[:, finite]
    if not len(theirs) or not ours.size:
        return np.where(alike, 0.0, np.inf), np.zeros(len(theirs))
    with np.errstate(all="ignore"):
        centred = ours - ours.mean()
        spread = max(float(np.sqrt(np.mean(centred**2))), float(np.abs(ours).max()) / 10_000, float(np.finfo(np.float32).tiny))
        apart = np.where(alike, np.sqrt(np.mean((theirs - ours) ** 2, axis=1)) / spread, np.inf)
        both = np.where(np.isfinite(theirs), theirs, ours.mean())
        other = both - both.mean(axis=1, keepdims=True)
        correlation = (other @ centred) / np.sqrt((other**2).sum(axis=1) * (centred @ centred))
    return np.nan_to_num(apart, nan=np.inf, posinf=np.inf), np.nan_to_num(correlation, nan=0.0)
