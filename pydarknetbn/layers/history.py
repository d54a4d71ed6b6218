"""[history]: the last inputs of a sequence as channels."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [history] section."""
    size = section.integer("history_size", 4, minimum=1)
    native = made(section, "history", *context.in_shape, size, layer_rule(context))
    shape = Shape(native.out_c, native.out_h, native.out_w)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=shape,
        native=native,
        detail=f"last {size}",
        states={"state": tuple(shape)},
    )
