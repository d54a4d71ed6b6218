"""[crop]: the middle of an image, as the forks take it outside training."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, made

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset("angle exposure flip saturation shift".split())  # of training


def build(section: Section, context: Context) -> Layer:
    """The layer of a [crop] section. Unless noadjust is set, values from 0 to 1 become values from -1 to 1."""
    height, width = (section.integer(key, 1, minimum=1) for key in ("crop_height", "crop_width"))
    adjust = not section.flag("noadjust")
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(context.in_shape.c, height, width),
        native=made(section, "crop", *context.in_shape, height, width, adjust),
        detail="2x - 1" if adjust else "",
    )
