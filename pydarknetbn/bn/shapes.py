"""Which arrays a batchnorm takes, and how the core sees them."""

from __future__ import annotations

from math import prod

import numpy as np

from .. import _native
from .._native import Array
from ..errors import DtypeError, ShapeError

__all__ = ["checked", "sides"]

_AXES = ((), ("L",), ("H", "W"), ("D", "H", "W"))  # after N and C


def checked(array: object, name: str, channels: int | None = None, *, empty: bool = False) -> Array:
    """The same array, which is (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), float32 and in C order.

    Args:
        array: what the caller gave.
        name: how messages call it.
        channels: C; None: any number.
        empty: N may be 0.

    Raises:
        DtypeError, ShapeError: it is not.
    """
    if not isinstance(array, np.ndarray):
        raise DtypeError(f"expected {name} to be a NumPy array of float32, got {type(array).__name__}")
    if array.dtype.name in ("float16", "bfloat16"):
        instead = f"bn.forward_half and bn.backward_half take it, and {name}.astype(numpy.float32) fits here"
        raise DtypeError(f"expected {name} of float32, got {array.dtype}; {instead}")
    c = "C" if channels is None else channels
    if array.ndim - 2 not in range(len(_AXES)):
        shapes = [f"({', '.join(('N', str(c), *axes))})" for axes in _AXES]
        raise ShapeError(f"expected {name} of shape {', '.join(shapes[:-1])} or {shapes[-1]}, got {array.shape}")
    return _native.input_array(array, name, ("N", c, *_AXES[array.ndim - 2]), empty=empty)


def sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of such an array: a volume's planes lie one under another."""
    return prod(shape[2:-1]), (shape[-1] if len(shape) > 2 else 1)
