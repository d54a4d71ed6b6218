"""[local], a convolution with weights of each pixel, and [deconvolutional], one the other way round."""

from __future__ import annotations

import math

from .. import _native
from ..options import Section
from .base import BATCHNORM_ARRAYS, Context, Initial, Layer, Shape, activation_of, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of the section."""
    options = _native.ffi.new("local_options *")
    options.c, options.h, options.w = context.in_shape
    options.n = section.integer("filters", 1, minimum=1)
    options.size = section.integer("size", 1, minimum=1)
    options.stride = section.integer("stride", 1, minimum=1)
    options.activation = activation_of(section, context, "logistic")
    local = section.type == "local"
    native, shapes = (_local if local else _deconvolutional)(section, context, options)
    out_shape = Shape(native.out_c, native.out_h, native.out_w)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=out_shape,
        native=native,
        shapes=shapes,
        operations=2.0 * native.nweights * (1 if local else context.in_shape.h * context.in_shape.w),
        kernel=f"{native.size} x {native.size} / {native.stride_x}",
        detail=section.text("activation", "logistic"),
        initial=_initial(context.in_shape, out_shape, native.size, local),
    )


def _initial(before: Shape, after: Shape, size: int, local: bool) -> Initial:
    if local:
        return Initial(math.sqrt(2.0 / (size * size * before.c)))
    return Initial(0.02 * after.w * after.h / (before.w * before.h), distribution="normal")


_Made = tuple[_native.CData, dict[str, tuple[int, ...]]]


def _local(section: Section, context: Context, options: _native.CData) -> _Made:
    """Its padding is pad itself."""
    options.pad = section.integer("pad", 0, minimum=0)
    native = made(section, "local", options, layer_rule(context))
    weights = (native.out_h * native.out_w, native.n, native.c, native.size, native.size)
    return native, {"biases": (native.outputs,), "weights": weights}


def _deconvolutional(section: Section, context: Context, options: _native.CData) -> _Made:
    padding = section.integer("padding", 0, minimum=0)
    options.pad = options.size // 2 if section.flag("pad") else padding
    options.batch_normalize = section.flag("batch_normalize")
    rule = _native.rule("batchnorm_rule", context.profile.rule("convolutional"))
    native = made(section, "deconvolutional", options, rule, layer_rule(context))
    names = BATCHNORM_ARRAYS if options.batch_normalize else ("biases",)
    return native, dict.fromkeys(names, (native.n,)) | {"weights": (native.c, native.n, native.size, native.size)}
