"""[detection]: the head of YOLOv1."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Head, Layer, layer_rule, made
from .losses import detection_loss

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset("jitter max reorg resize".split())


def build(section: Section, context: Context) -> Layer:
    """The layer of a [detection] section.

    Its options default to what the forks give them; the coordinates of a box, which default to one, have to be four or more.
    """
    options = _native.ffi.new("head_options *")
    options.c, options.h, options.w = context.in_shape
    options.side = section.integer("side", 7, minimum=1)
    options.n = section.integer("num", 1, minimum=1)
    options.classes = section.integer("classes", 1, minimum=1)
    options.coords = section.integer("coords", 1, minimum=1)
    options.softmax, options.sqrt = section.flag("softmax"), section.flag("sqrt")
    where = f"{section.name}, layer {section.index},"
    if options.coords < 4:
        raise section.error(f"{where} has coords={options.coords}, but a box has x, y, w and h; set coords=4", "coords")
    takes = options.side**2 * (options.n * (1 + options.coords) + options.classes)
    if takes != context.in_shape.floats:
        boxes = f"({options.n} boxes of 1 + {options.coords} values, and {options.classes} classes)"
        cells = f"{options.side} x {options.side} cells x {boxes} = {takes} values"
        rest = f"but the layer before gives {context.in_shape.floats}; set output= there, or side=, num= or classes="
        raise section.error(f"{where} takes {cells}, {rest}", "classes")
    native = made(section, "detection", options, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        head=Head(options.classes, (), tuple(range(options.n))),
        truth=detection_loss(section, native, options.side, options.classes, options.coords),
        detail=f"{options.classes} classes, {options.side} x {options.side} cells of {options.n} boxes",
    )
