"""The sums of a convolution with something changed."""

from __future__ import annotations

import numpy as np

from ..._native import Array
from ..arithmetic import Padding, convolve
from ..situation import Place

__all__ = ["sums_of"]


def sums_of(
    place: Place,
    weights: Array,
    *,
    padding: Padding | None = None,
    dilation: int | None = None,
    groups: int | None = None,
    x: Array | None = None,
) -> Array | None:
    """The sums of the place's convolution, with what is not given as Darknet has it."""
    native = place.layer.native
    assert native is not None
    border = int(native.pad * native.dilation)
    made = convolve(
        place.inputs[0] if x is None else x,
        np.ascontiguousarray(weights),
        stride=(native.stride_y, native.stride_x),
        padding=padding or Padding(border, border, border, border),
        dilation=int(native.dilation) if dilation is None else dilation,
        groups=int(native.groups) if groups is None else groups,
    )
    return made
