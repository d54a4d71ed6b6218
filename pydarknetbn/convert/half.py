"""What half precision does to a network: which weights it cannot hold, and what becomes of the outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from .._native import Array
from ..errors import UnsupportedError
from ..extras import import_extra
from ..folding import compare_layers, fold
from ..layers import Layer
from ..network import Network

__all__ = ["Dtype", "HalfLayer", "HalfReport", "half_report", "in_dtype"]

Dtype = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, slots=True)
class HalfLayer:
    """What half precision does to a layer.

    Args:
        index, type: of the layer.
        values: how many numbers its arrays hold.
        overflow: how many become infinite.
        underflow: how many lose digits since they are below the smallest normal number.
        vanish: how many become 0.
        largest: the largest magnitude among them.
        outputs_overflow: how many of the outputs would become infinite.
        error: the largest change of the outputs by the rounded weights, all layers before rounded too, as a share of their range.
    """

    index: int
    type: str
    values: int
    overflow: int
    underflow: int
    vanish: int
    largest: float
    outputs_overflow: int
    error: float


@dataclass(frozen=True, slots=True)
class HalfReport:
    """Half precision, layer by layer; of a network with batchnorms, after they are folded."""

    dtype: Dtype
    layers: tuple[HalfLayer, ...]

    @property
    def worst(self) -> HalfLayer | None:
        """The layer whose outputs change most."""
        return max(self.layers, key=lambda layer: layer.error if layer.error == layer.error else np.inf, default=None)

    @property
    def overflows(self) -> bool:
        """Whether anything becomes infinite."""
        return any(layer.overflow or layer.outputs_overflow for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        return asdict(self)


def half_report(net: Network, x: Array, *, dtype: Dtype) -> tuple[Network, HalfReport]:
    """Folds, rounds every weight, and compares.

    Args:
        net: stays as it is.
        x: a batch to run both on.
        dtype: "float16" or "bfloat16".

    Returns:
        The folded network, its weights rounded and held as float32, and the report.

    Raises:
        MissingExtraError: ml_dtypes is not installed, for bfloat16.
        UnsupportedError: another type.
    """
    folded, _ = fold(net)
    rounded, _ = fold(folded)  # nothing is left to fold: a copy
    for layer in rounded.layers:
        for array in layer.params.values() if layer.stored else ():
            array[...] = in_dtype(array, dtype).astype(np.float32)
    with np.errstate(invalid="ignore"):
        differences = compare_layers(folded, rounded, x)
    pairs = zip(folded.layers, differences, strict=True)
    layers = tuple(_layer(layer, dtype, difference.relative) for layer, difference in pairs)
    return rounded, HalfReport(dtype, layers)


def in_dtype(array: Array, dtype: Dtype) -> Any:
    """The array in another type, each value rounded to nearest; without a warning where it overflows.

    Raises:
        UnsupportedError: another type.
    """
    if dtype == "float32":
        return np.asarray(array)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(_type(dtype))


def _type(dtype: Dtype) -> Any:
    if dtype == "float16":
        return np.float16
    if dtype == "bfloat16":
        return import_extra("ml_dtypes", "half").bfloat16
    raise UnsupportedError(f"expected dtype float32, float16 or bfloat16, got {dtype!r}")


def _smallest_normal(dtype: Dtype) -> float:
    """2 to the smallest exponent with all digits: that of float16 has 5 bits, of bfloat16 8."""
    return float(2.0**-14 if dtype == "float16" else 2.0**-126)


def _layer(layer: Layer, dtype: Dtype, error: float) -> HalfLayer:
    stored = list(layer.params.values()) if layer.stored else []
    values = np.concatenate([array.reshape(-1) for array in stored]) if stored else np.empty(0, np.float32)
    there = np.abs(in_dtype(values, dtype).astype(np.float32))
    size = np.abs(values)
    infinite = 0 if layer.passes_input else _overflows(layer.output, dtype)
    return HalfLayer(
        index=layer.index,
        type=layer.type,
        values=values.size,
        overflow=int((np.isinf(there) & np.isfinite(size)).sum()),
        underflow=int(((size > 0) & (size < _smallest_normal(dtype)) & (there > 0)).sum()),
        vanish=int(((size > 0) & (there == 0)).sum()),
        largest=float(size.max(initial=0)),
        outputs_overflow=infinite,
        error=float(error),
    )


def _overflows(output: Array, dtype: Dtype) -> int:
    return int((np.isinf(in_dtype(output, dtype).astype(np.float32)) & np.isfinite(output)).sum())
