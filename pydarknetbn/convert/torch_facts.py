"""What a layer of the core is, as plain values that a module can keep without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import Array, CData
from ..dialect import BatchNormRule
from ..layers import Layer

__all__ = ["Facts", "facts_of"]

_NUMBERS = (
    "c h w out_c out_h out_w inputs outputs n groups size stride_x stride_y pad dilation nweights group_id alpha beta scale "
    "temperature classes coords scale_x_y new_coords softmax background reverse flatten true_order linear_sum depth average kappa"
).split()


@dataclass(frozen=True, slots=True)
class Facts:
    """A layer without its parameters.

    Args:
        numbers: the struct's fields by name.
        activation, normalization: names of the core's constants.
        direct: a convolution of one pixel reads its image as the matrix itself although the output is smaller.
        planar: a region keeps planes.
        sharp: shape before a blur, `blur` its kernels (c, 1, k, k), stride_y, stride_x and padding; None without one.
        has_batchnorm: a batchnorm comes after the sums.
        rule: of that.
    """

    numbers: dict[str, float]
    activation: str
    normalization: str
    direct: bool
    planar: bool
    blur: tuple[Array, int, int, int] | None
    sharp: tuple[int, ...]
    has_batchnorm: bool
    rule: BatchNormRule

    def __getattr__(self, name: str) -> Any:
        if name == "numbers" or name not in self.numbers:
            raise AttributeError(name)
        return self.numbers[name]

    def reorg_index(self) -> NDArray[np.int64]:
        """Where in an image each output of a reorg comes from."""
        c, h, w = (self.out_c, self.out_h, self.out_w) if self.true_order else (self.c, self.h, self.w)
        stride, small = self.stride_x, c // self.stride_x**2
        k, row, column = np.ogrid[:c, :h, :w]
        at = column + w * (row + h * k)
        x, y = column * stride + k // small % stride, row * stride + k // small // stride
        other = x + w * stride * (y + h * stride * (k % small))
        if not self.reverse:
            return np.array(np.broadcast_to(other, at.shape).reshape(-1), np.int64)
        index = np.empty(at.size, np.int64)
        index[other.reshape(-1)] = at.reshape(-1)
        return index


def facts_of(layer: Layer, rule: BatchNormRule) -> Facts:
    """Those of a layer that the core computes."""
    native = layer.native
    assert native is not None
    blur = _blur_of(native)
    sharp = tuple(layer.out_shape) if blur is None else (native.blur.c, native.blur.h, native.blur.w)
    return Facts(
        numbers={name: getattr(native, name) for name in _NUMBERS},
        activation=_name("activation", native.activation),
        normalization=_name("normalization", native.weights_normalization),
        direct=layer.type == "convolutional" and _reads_directly(native, sharp),
        planar=native.layer_rule.region == _native.enum("region", "planar"),
        blur=blur,
        sharp=sharp,
        has_batchnorm="rolling_variance" in layer.params,
        rule=rule,
    )


def _name(kind: str, value: int) -> str:
    return next(name for name, number in _native.choices(kind).items() if number == value)


def _blur_of(native: CData) -> tuple[Array, int, int, int] | None:
    blur = native.blur
    if blur == _native.ffi.NULL:
        return None
    weights = np.array(_native.view(blur.weights, (blur.n, 1, blur.size, blur.size)))
    return weights, blur.stride_y, blur.stride_x, blur.pad


def _reads_directly(native: CData, out: tuple[int, ...]) -> bool:
    if native.size != 1 or out[1] * out[2] > native.h * native.w or out[1:] == (native.h, native.w):
        return False
    return bool(native.layer_rule.direct_1x1 == _native.enum("direct_1x1", "any stride") or native.stride_x == 1)
