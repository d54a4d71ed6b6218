"""`diff`: where two `.weights` files of one network differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ._native import Array
from .loading import CfgSource, WeightsSource, load
from .network import Network

__all__ = ["ArrayDifference", "Diff", "diff"]


@dataclass(frozen=True, slots=True)
class ArrayDifference:
    """An array of which some values have other bits.

    Args:
        layer, type, line: of the layer in the cfg.
        name: Darknet's name of the array.
        differ: how many values.
        size: how many it has.
        largest: the largest absolute difference; infinite or NaN where values are.
        at: flat index of that value, or of the first that differs.
    """

    layer: int
    type: str
    line: int
    name: str
    differ: int
    size: int
    largest: float
    at: int


@dataclass(frozen=True, slots=True)
class Diff:
    """Two files of one network.

    Args:
        cfg, a, b: how messages call them.
        header: field of the header to its values in both, where they differ.
        arrays: those that differ, in file order.
        count: how many arrays there are.
    """

    cfg: str
    a: str
    b: str
    header: dict[str, tuple[int, int]]
    arrays: tuple[ArrayDifference, ...]
    count: int

    @property
    def same(self) -> bool:
        """Whether header and arrays have the same bits."""
        return not self.header and not self.arrays

    @property
    def exit_code(self) -> int:
        """0 for equal files, 1 for different ones."""
        return 0 if self.same else 1

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.same:
            return f"{self.a} and {self.b}: header and all {self.count} arrays have the same bits"
        parts = [f"{field} {left} against {right}" for field, (left, right) in self.header.items()]
        if self.arrays:
            values = sum(array.differ for array in self.arrays)
            layers = len({array.layer for array in self.arrays})
            parts.append(f"{values:,} values in {len(self.arrays)} of {self.count} arrays, {layers} layers")
        else:
            parts.append("all arrays have the same bits")
        return f"{self.a} and {self.b} differ: " + "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """All of it, for `json.dumps`."""
        return asdict(self) | {"same": self.same, "verdict": self.verdict}


def diff(cfg: CfgSource, a: WeightsSource, b: WeightsSource, *, dialect: str = "auto") -> Diff:
    """Compares two `.weights` files of one cfg layer by layer, bit by bit.

    Args:
        cfg: as `load` takes it.
        a: the one file.
        b: the other.
        dialect: as `load` takes it; with "auto" the first file decides for both.

    Raises:
        CfgError, WeightsError: as `load`.
    """
    text = cfg.read() if hasattr(cfg, "read") else cfg
    first = load(text, a, dialect=dialect)
    second = load(text, b, dialect=first.dialect)
    fields = ("major", "minor", "revision", "seen", "seen_bytes")
    pairs = {field: (getattr(first.header, field), getattr(second.header, field)) for field in fields}
    return Diff(
        first.origin.cfg.name,
        first.origin.weights,
        second.origin.weights,
        {field: pair for field, pair in pairs.items() if pair[0] != pair[1]},
        tuple(_differences(first, second)),
        sum(len(layer.shapes) for layer in first.layers if layer.stored),
    )


def _differences(first: Network, second: Network) -> list[ArrayDifference]:
    found = []
    for layer, other in zip(first.layers, second.layers, strict=True):
        theirs = other.params
        for name, array in layer.params.items() if layer.stored else ():
            bits = array.reshape(-1).view(np.uint32) != theirs[name].reshape(-1).view(np.uint32)
            if count := int(bits.sum()):
                at, largest = _largest(array, theirs[name], bits)
                found.append(ArrayDifference(layer.index, layer.type, layer.line, name, count, array.size, largest, at))
    return found


def _largest(a: Array, b: Array, bits: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, float]:
    where = np.flatnonzero(bits)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a.reshape(-1)[where].astype(np.float64) - b.reshape(-1)[where])
    position = int(np.argmax(apart))  # the first NaN, where there is one
    return int(where[position]), float(apart[position])
