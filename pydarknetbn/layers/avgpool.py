"""[avgpool]: the mean of each channel."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of an [avgpool] section."""
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(context.in_shape.c, 1, 1),
        native=made(section, "avgpool", *context.in_shape),
    )
