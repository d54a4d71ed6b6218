"""[upsample]: each value repeated; with a negative stride the reverse."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of an [upsample] section."""
    stride = section.integer("stride", 2)
    scale = section.number("scale", 1.0)
    native = made(section, "upsample", *context.in_shape, abs(stride), stride < 0, scale, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        kernel=f"{stride}x",
        detail=f"scale {scale:g}" if scale != 1 else "",
    )
