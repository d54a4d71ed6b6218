"""[scale_channels] and [sam]: another layer times the one before, then activation."""

from __future__ import annotations

from .. import _native
from ..options import REQUIRED, Section
from .base import Context, Layer, activation_of, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of the section."""
    source = context.image_source(section, "from", section.integer("from", REQUIRED))
    shapes = [_native.ffi.new("shape *", shape)[0] for shape in (context.in_shape, source.out_shape)]
    activation, rule = activation_of(section, context, "linear"), layer_rule(context)
    if section.type == "sam":
        native = made(section, "sam", *shapes, activation, rule)
    else:
        native = made(section, "scale_channels", *shapes, section.flag("scale_wh"), activation, rule)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=source.out_shape,
        native=native,
        sources=(source.index,),
        operations=float(source.out_shape.floats),
        detail=f"times {source.index}",
    )
