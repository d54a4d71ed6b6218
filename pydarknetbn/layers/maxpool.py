"""[maxpool]: the largest value of a window."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, made

__all__ = ["NEUTRAL", "WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset({"maxpool_zero_nonmax"})
NEUTRAL = {"antialiasing": 0, "maxpool_depth": 0}


def build(section: Section, context: Context) -> Layer:
    """The layer of a [maxpool] section: size is the stride and the padding size-1, where they are not given."""
    stride = section.integer("stride", 1, minimum=1)
    stride_x = section.integer("stride_x", stride, minimum=1)
    stride_y = section.integer("stride_y", stride, minimum=1)
    size = section.integer("size", stride, minimum=1)
    padding = section.integer("padding", size - 1, minimum=0)
    section.integer("out_channels", 1)
    native = made(section, "maxpool", *context.in_shape, size, stride_x, stride_y, padding)
    out_shape = Shape(native.out_c, native.out_h, native.out_w)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=out_shape,
        native=native,
        operations=float(size * size * out_shape.floats),
        kernel=f"{size} x {size} / {stride_x}" + (f"x{stride_y}" if stride_y != stride_x else ""),
    )
