"""A golden bundle: so much of every value of a network that a port can be held against it without Darknet and without weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..doctor.steps import Stage

__all__ = ["FORMAT", "Golden", "GoldenStep", "positions"]

FORMAT = "pydarknetbn golden 1"
"""Name and version of the format; a reader takes no other."""

Doubles = npt.NDArray[np.float64]


def positions(size: int, count: int, salt: int) -> npt.NDArray[np.int64]:
    """Places of an array of `size` values, in rising order: one out of each of `count` equal parts, or all of a small one.

    Which one of a part a mixed counter tells, the same on every machine and with every version of NumPy.

    Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (SplitMix64).
    """
    count = min(size, count)
    edges = np.arange(count + 1, dtype=np.int64) * size // max(count, 1)
    z = (np.arange(1, count + 1, dtype=np.uint64) + (np.uint64(salt) << np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.asarray(edges[:-1] + (z % np.diff(edges).astype(np.uint64)).astype(np.int64))


@dataclass(frozen=True)
class GoldenStep:
    """What a bundle holds of one value of a network.

    Args:
        number: in the order of computing; which places are sampled depends on it.
        layer, type, line: of the network.
        stage: "sums", "normal", "post" or "boxes".
        kind: of the operation, such as "batchnorm".
        shape: (batch, c, h, w).
        samples: the values at `places`.
        means: (c), of each channel, in double and rounded once.
        noise: (c), what rounding alone is expected to make of a value when all of the network runs in another order of sums.
        mean, deviation, least, most: of all values that are finite.
        sha256: of the values as little-endian float32.
    """

    number: int
    layer: int
    type: str
    line: int
    stage: Stage
    kind: str
    shape: tuple[int, int, int, int]
    samples: Array = field(repr=False)
    means: Array = field(repr=False)
    noise: Doubles = field(repr=False)
    mean: float
    deviation: float
    least: float
    most: float
    sha256: str

    @property
    def key(self) -> str:
        """Such as "12.post"."""
        return f"{self.layer}.{self.stage}"

    @property
    def title(self) -> str:
        """How a message calls it."""
        return f"layer {self.layer} [{self.type}], {self.stage}"

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """Where `samples` stand in the flat array."""
        return positions(int(np.prod(self.shape)), len(self.samples), self.number)

    @property
    def channels(self) -> npt.NDArray[np.int64]:
        """The channel of each sample."""
        _, c, h, w = self.shape
        return self.places // (h * w) % c

    @property
    def range(self) -> float:
        """Largest minus smallest value, or their size where all are equal; 1 where there is none."""
        return (self.most - self.least) or abs(self.most) or 1.0

    def index(self, sample: int) -> tuple[int, ...]:
        """Image, channel, row and column of a sample."""
        return tuple(int(axis) for axis in np.unravel_index(self.places[sample], self.shape))


@dataclass(frozen=True)
class Golden:
    """Samples of all values of a network on one input.

    Args:
        about: profile, dialect, cfg, its SHA-256, the formula, and how the input was made, each as text.
        input: (batch, c, h, w), exactly what the network was given.
        steps: in the order of computing.
        stored: how the file holds the input, see `filing`.
    """

    about: Mapping[str, str]
    input: Array = field(repr=False)
    steps: tuple[GoldenStep, ...]
    stored: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, key: str) -> GoldenStep:
        """By its key, such as "12.post"."""
        for step in self.steps:
            if step.key == key:
                return step
        raise KeyError(f"the golden bundle holds no {key!r}; it holds {', '.join(step.key for step in self.steps[:8])}, …")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the .npz, whole or not at all.

        Raises:
            DumpError: the file cannot be written.
        """
        from .filing import write_golden  # noqa: PLC0415

        write_golden(self, path)
