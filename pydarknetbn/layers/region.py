"""[region]: the head of YOLOv2."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Head, Layer, layer_rule, made
from .hierarchy import map_of, set_tree, tree_of
from .losses import region_loss
from .yolo import MOST_ANCHORS, anchors_of, check_channels, head_options

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset("absolute jitter log random resize sqrt".split())


def build(section: Section, context: Context) -> Layer:
    """The layer of a [region] section."""
    total = section.integer("num", 1, minimum=1, maximum=MOST_ANCHORS)
    options = head_options(section, context, total)
    options.total = total
    options.coords = section.integer("coords", 4, minimum=4)
    options.background, options.classfix = section.flag("background"), section.integer("classfix", 0)
    head = Head(
        classes=options.classes,
        anchors=anchors_of(section, context, total),
        mask=tuple(range(total)),
        tree=tree_of(section, context, options.classes),
        map=map_of(section, context, options.classes),
    )
    options.softmax = section.flag("softmax") or section.has("tree")
    anchors = _native.ffi.new("float[]", [side for pair in head.anchors for side in pair])
    check_channels(section, context, total, options.coords + 1 + options.classes)
    native = made(section, "region", options, anchors, layer_rule(context))
    set_tree(native, head.tree)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        head=head,
        truth=region_loss(section, context, native, options.coords, head.map),
        detail=f"{options.classes} classes, {total} anchors",
    )
