"""[region]: the head of YOLOv2."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Head, Layer, layer_rule, made
from .yolo import anchors_of, check_channels, head_options

__all__ = ["NEUTRAL", "WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset(
    "absolute bias_match class_scale coord_scale focal_loss jitter log mask_scale max noobject_scale object_scale random "
    "rescore sqrt thresh".split()
)
NEUTRAL = {"classfix": 0, "map": "", "tree": ""}


def build(section: Section, context: Context) -> Layer:
    """The layer of a [region] section."""
    total = section.integer("num", 1, minimum=1)
    options = head_options(section, context, total)
    options.total = total
    options.coords = section.integer("coords", 4, minimum=4)
    options.softmax = section.flag("softmax")
    options.background = section.flag("background")
    head = Head(options.classes, anchors_of(section, context, total), tuple(range(total)))
    anchors = _native.ffi.new("float[]", [side for pair in head.anchors for side in pair])
    check_channels(section, context, total, options.coords + 1 + options.classes)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=made(section, "region", options, anchors, layer_rule(context)),
        head=head,
        detail=f"{options.classes} classes, {total} anchors",
    )
