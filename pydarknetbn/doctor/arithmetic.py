"""The operations of a layer as functions on arrays, with what a port may do otherwise as arguments.

Convolutions and activations are the core's, so that a right hypothesis leaves nothing but the other side's own rounding; what the
core has no argument for is done around it. Batch normalization is in double, rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import _native
from .._native import Array, ffi, lib
from ..dialect import ArithmeticRule, EpsilonRule

__all__ = ["Padding", "activate", "convolve", "normalize", "pad"]


class Padding(NamedTuple):
    """Pixels around an image."""

    top: int
    bottom: int
    left: int
    right: int


NO_PADDING = Padding(0, 0, 0, 0)


def pad(x: Array, padding: Padding, value: float = 0.0) -> Array:
    """(batch, c, h, w) with a border of that value; negative numbers cut."""
    top, bottom, left, right = (max(0, side) for side in padding)
    wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)
    h, w = wide.shape[2:]
    cut = [max(0, -side) for side in padding]
    return np.ascontiguousarray(wide[:, :, cut[0] : h - cut[1], cut[2] : w - cut[3]])


def convolve(
    x: Array,
    weights: Array,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: Padding = NO_PADDING,
    dilation: int = 1,
    groups: int = 1,
) -> Array | None:
    """The sums of a convolution in Darknet's order.

    Args:
        x: (batch, c, h, w).
        weights: (n, c / groups, size, size).
        stride: rows, columns.
        padding: of zeros.
        dilation: pixels between two of the kernel's.
        groups: of channels and filters.

    Returns:
        (batch, n, h, w); None where sizes do not fit or nothing is left.
    """
    x = pad(x, padding)
    batch, c, h, w = x.shape
    n, depth, size, _ = weights.shape
    reach = dilation * (size - 1) + 1
    if c != depth * groups or n % groups or h < reach or w < reach:
        return None
    out_h, out_w = (h - reach) // stride[0] + 1, (w - reach) // stride[1] + 1
    s = ffi.new("convolution_shape *")
    s.c, s.h, s.w, s.n, s.out_h, s.out_w = depth, h, w, n // groups, out_h, out_w
    s.size, s.stride_y, s.stride_x, s.dilation = size, stride[0], stride[1], dilation
    output = np.empty((batch, n, out_h, out_w), np.float32)
    threads = lib.get_num_threads()
    scratch = np.empty(max(1, lib.convolve_scratch(s) * threads), np.float32)
    kernel = np.ascontiguousarray(weights, np.float32)
    floats = _native.floats
    lib.convolve(s, batch * groups, groups, floats(x), floats(kernel), floats(output), floats(scratch), threads)
    return output


def normalize(x: Array, mean: Array, variance: Array, scales: Array, biases: Array, epsilon: EpsilonRule) -> Array:
    """(x - mean) / root * scales + biases of each channel, in double and rounded once."""
    wide = variance.astype(np.float64)
    with np.errstate(all="ignore"):
        root = np.sqrt(wide + epsilon.value) if epsilon.side == "inside" else np.sqrt(wide) + epsilon.value
        factor = scales.astype(np.float64) / root
        offset = biases.astype(np.float64) - mean.astype(np.float64) * factor
        return (x * factor[:, None, None] + offset[:, None, None]).astype(np.float32)


def activate(x: Array, name: str, rule: ArithmeticRule, *, host: bool = True) -> Array:
    """An activation of the core; host: as it stands in a convolution or shortcut."""
    y = np.array(x, np.float32, order="C")
    lib.activate_array(_native.floats(y), y.size, _native.enum("activation", name), _native.rule("arithmetic_rule", rule), host)
    return y
