"""Tells half precision by its values: it shows in them, whatever else a port does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import Array

__all__ = ["Half", "half_of", "rounded_to_half"]

Floats = npt.NDArray[np.floating[Any]]

_SHARE = 0.999  # of the values that a half type must hold exactly
_TENSORS = 0.5  # of the tensors of which that must be true


@dataclass(frozen=True, slots=True)
class Half:
    """A type of 16 bits: its name, and what one rounding changes at most, relatively."""

    name: str
    unit: float


_FLOAT16, _BFLOAT16 = Half("float16", 2.0**-11), Half("bfloat16", 2.0**-8)


def half_of(arrays: Iterable[Floats]) -> Half | None:
    """The type of 16 bits that most of the arrays were computed in; None for float32."""
    votes = [_type_of(array) for array in arrays]
    known = [vote for vote in votes if vote != "any"]
    for half in (_FLOAT16, _BFLOAT16):
        if known and sum(vote is half for vote in known) > _TENSORS * len(known):
            return half
    return None


def _type_of(array: Floats) -> Half | str | None:
    """Its type, None for float32, or "any" for values that tell nothing, such as small whole numbers."""
    values = array.ravel()[:: max(1, array.size // 4096)].astype(np.float32)
    values = values[np.isfinite(values) & (values != 0)]
    with np.errstate(over="ignore"):
        in_float16 = values.astype(np.float16).astype(np.float32) == values
    in_bfloat16 = (values.view(np.uint32) & 0xFFFF) == 0
    in_few_bits = (values.view(np.uint32) & 0x7FFFF) == 0  # of the mantissa, as in small whole numbers
    if values.size < 64 or in_few_bits.mean() > 0.5:
        return "any"
    if in_bfloat16.mean() >= _SHARE:
        return _BFLOAT16
    return _FLOAT16 if in_float16.mean() >= _SHARE else None


def rounded_to_half(x: Array, name: str) -> Array:
    """The values, each rounded to the nearest of float16 or bfloat16, ties to even."""
    if name == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return np.asarray(rounded.view(np.float32))
