"""[Gaussian_yolo]: a head of YOLOv3 that tells how uncertain each side of a box is."""

from __future__ import annotations

from .. import _native
from ..options import Section
from . import yolo
from .base import Context, Head, Layer, layer_rule, made
from .hierarchy import map_of
from .losses import gaussian_yolo_loss

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = yolo.WITHOUT_EFFECT | {"focal_loss", "show_details"}
_POINTS = ("center", "left_top", "right_bottom")


def build(section: Section, context: Context) -> Layer:
    """The layer of a [Gaussian_yolo] section."""
    total = yolo.total_of(section, context)
    mask = yolo.mask_of(section, total)
    options = yolo.head_options(section, context, len(mask))
    options.total, options.coords = total, 8
    options.yolo_point = _native.enum("yolo_point", yolo.one_of(section, "yolo_point", _POINTS))
    head = Head(
        classes=options.classes,
        anchors=yolo.anchors_of(section, context, total),
        mask=mask,
        scale_x_y=section.number("scale_x_y", 1.0),
        nms_kind=yolo.one_of(section, "nms_kind", (*yolo.NMS_KINDS, "cornersnms")),
        beta_nms=section.number("beta_nms", 0.6),
    )
    options.scale_x_y = head.scale_x_y
    anchors = _native.ffi.new("float[]", [side for pair in head.anchors for side in pair])
    yolo.check_channels(section, context, len(mask), 8 + 1 + options.classes)
    native = made(section, "gaussian_yolo", options, _native.ffi.new("int[]", mask), anchors, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        head=head,
        truth=gaussian_yolo_loss(section, context, native, options.classes, map_of(section, context, options.classes)),
        detail=f"{options.classes} classes, mask {','.join(str(entry) for entry in mask)}",
    )
