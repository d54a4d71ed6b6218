"""[maxpool] and [local_avgpool]: the largest value or the mean of a window, or the largest of some channels."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset({"maxpool_zero_nonmax"})  # of the backward pass


def build(section: Section, context: Context) -> Layer:
    """The layer of the section: size is the stride and the padding size-1, where they are not given."""
    options = _options(section, context)
    native = made(section, "maxpool", options, layer_rule(context))
    out_shape = Shape(native.out_c, native.out_h, native.out_w)
    stride = f"{options.stride_x}" + (f"x{options.stride_y}" if options.stride_y != options.stride_x else "")
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=out_shape,
        native=native,
        operations=float(options.size**2 * out_shape.floats),
        kernel="over channels" if options.out_channels else f"{options.size} x {options.size} / {stride}",
        detail="blurred" if options.antialiasing else "",
    )


def _options(section: Section, context: Context) -> _native.CData:
    options = _native.ffi.new("maxpool_options *")
    options.c, options.h, options.w = context.in_shape
    stride = section.integer("stride", 1, minimum=1)
    options.stride_x = section.integer("stride_x", stride, minimum=1)
    options.stride_y = section.integer("stride_y", stride, minimum=1)
    options.size = section.integer("size", stride, minimum=1)
    options.padding = section.integer("padding", options.size - 1, minimum=0)
    options.average = section.type == "local_avgpool"
    if not options.average:
        out_channels = section.integer("out_channels", 1, minimum=1)
        options.out_channels = out_channels if section.flag("maxpool_depth") else 0
        options.antialiasing = section.integer("antialiasing", 0)
    return options
