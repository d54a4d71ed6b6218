"""[iseg]: planes of classes, and of an embedding that tells instances apart."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, layer_rule, made
from .losses import iseg_loss

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of an [iseg] section."""
    classes = section.integer("classes", 20, minimum=0)
    ids = section.integer("ids", 32, minimum=0)
    if classes + ids != context.in_shape.c:
        takes = f"{section.name}, layer {section.index}, takes {classes} classes + {ids} ids = {classes + ids} channels"
        message = f"{takes}, but the layer before gives {context.in_shape.c}; set filters= there, or classes= or ids="
        raise section.error(message, "classes")
    native = made(section, "iseg", *context.in_shape, classes, ids, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        truth=iseg_loss(native, context.in_shape.h * context.in_shape.w),
        detail=f"{classes} classes, {ids} ids",
    )
