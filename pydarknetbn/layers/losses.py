"""What [yolo], [region], [detection] and [softmax] say about their losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from .._native import CData
from ..options import Section
from .base import Context, Truth

__all__ = ["detection_loss", "gaussian_yolo_loss", "iseg_loss", "region_loss", "value_loss", "yolo_loss"]

_MOST_BOXES = 1 << 20
_INSTANCES = 90  # as many as the program makes room for
_IOU_LOSSES = ("mse", "iou", "giou", "diou", "ciou")
_UNLIMITED = float(np.finfo(np.float32).max)


def value_loss(native: CData, floats: int) -> Truth:
    """Gives the core's layer its loss; it takes a value for each of its own."""
    return _set(native, Truth("values", floats), {})


def yolo_loss(section: Section, context: Context, native: CData, classes: int, mapped: tuple[int, ...]) -> Truth:
    """The same of a [yolo].

    delta_normalizer= has no effect: only the forks' GPU multiplies by it.

    Args:
        section: its options.
        context: where it stands.
        native: its layer.
        classes: their number.
        mapped: classes that those of the truth stand for, () where they are the same.
    """
    options = {"details": section.flag("show_details", True), "focal_loss": section.flag("focal_loss")}
    return _yolo_loss(section, context, native, classes, mapped, options)


def gaussian_yolo_loss(section: Section, context: Context, native: CData, classes: int, mapped: tuple[int, ...]) -> Truth:
    """The same of a [Gaussian_yolo]."""
    return _yolo_loss(section, context, native, classes, mapped, {"uc_normalizer": section.number("uc_normalizer", 1.0)})


def _yolo_loss(
    section: Section, context: Context, native: CData, classes: int, mapped: tuple[int, ...], others: dict[str, Any]
) -> Truth:
    dialect = context.dialect
    boxes, row = section.integer("max", dialect.yolo_max_boxes, minimum=1, maximum=_MOST_BOXES), dialect.truth_row
    net = context.layers[0].in_shape if context.layers else context.in_shape
    options = {
        "net_w": net.w,
        "net_h": net.h,
        "ignore_thresh": section.number("ignore_thresh", 0.5),
        "truth_thresh": section.number("truth_thresh", 1.0),
        "iou_thresh": section.number("iou_thresh", 1.0),
        "iou_loss": _iou_loss(section, context, "iou_loss", "mse"),
        "iou_thresh_kind": _iou_loss(section, context, "iou_thresh_kind", "iou"),
        "iou_normalizer": section.number("iou_normalizer", dialect.yolo_iou_normalizer),
        "obj_normalizer": section.number("obj_normalizer", 1.0),
        "cls_normalizer": section.number("cls_normalizer", 1.0),
        "max_delta": section.number("max_delta", _UNLIMITED),
        "label_smooth_eps": section.number("label_smooth_eps", 0.0),
        "objectness_smooth": section.flag("objectness_smooth"),
    }
    weights = _class_weights(section, classes, options["max_delta"])
    return _set(native, Truth("boxes", boxes * row, boxes, row, 4), options | others, mapped, weights)


def region_loss(section: Section, context: Context, native: CData, coords: int, mapped: tuple[int, ...]) -> Truth:
    """The same of a [region], of which a box has `coords` numbers."""
    dialect = context.dialect
    given = section.integer("max", dialect.yolo_max_boxes, minimum=1, maximum=_MOST_BOXES)
    boxes = dialect.region_boxes or given
    row, class_at = (coords + 1, coords) if dialect.region_class_last else (dialect.truth_row, 4)
    options = {
        "thresh": section.number("thresh", 0.5),
        "mask_scale": int(section.number("mask_scale", 1.0)),  # the fork's function takes a whole number
        "bias_match": section.flag("bias_match"),
        "focal_loss": section.flag("focal_loss"),
    }
    return _set(native, Truth("boxes", boxes * row, boxes, row, class_at), options | _scales(section), mapped)


def detection_loss(section: Section, native: CData, side: int, classes: int, coords: int) -> Truth:
    """The same of a [detection].

    With random=1 a box is drawn for each object in the first 64,000 images: the forks take it from the C library's rand(), this
    package from the number of images seen.
    """
    options = {"forced": section.flag("forced"), "random": section.number("random", 0.0) != 0}
    truth = Truth("cells", side**2 * (1 + coords + classes), side=side, classes=classes)
    return _set(native, truth, options | _scales(section))


def iseg_loss(native: CData, pixels: int) -> Truth:
    """The same of an [iseg]: of each image up to 90 instances, a class and a value for each pixel, 0 outside; a class of -1 ends.

    Source: pjreddie/darknet src/iseg_layer.c:85-187.
    """
    return _set(native, Truth("instances", _INSTANCES * (pixels + 1), _INSTANCES, pixels + 1), {})


def _scales(section: Section) -> dict[str, Any]:
    names = ("coord_scale", "object_scale", "noobject_scale", "class_scale")
    return {name: section.number(name, 1.0) for name in names} | {"rescore": section.flag("rescore")}


def _iou_loss(section: Section, context: Context, key: str, default: str) -> int:
    name = section.text(key, default)
    if name not in _IOU_LOSSES:
        message = f"{section.name}, layer {section.index}, has {key}={name}, which is none of {', '.join(_IOU_LOSSES)}"
        context.warnings.append(str(section.error(f"{message}; it counts as iou", key)))
        name = "iou"
    return _native.enum("iou_loss", name)


def _class_weights(section: Section, classes: int, limit: float) -> list[float] | None:
    """The largest counter over each class's own, for classes that are rare.

    Source: AlexeyAB/darknet src/parser.c:419-446.
    """
    counters = section.integers("counters_per_class")
    if not counters:
        return None
    if len(counters) != classes:
        message = f"{section.name}, layer {section.index}, has {len(counters)} numbers in counters_per_class="
        raise section.error(f"{message}, but classes={classes}; give one for each class", "counters_per_class")
    counted = np.maximum(np.array(counters, np.int64), 1).astype(np.float32)
    return [float(weight) for weight in np.minimum(counted.max() / counted, np.float32(limit))]


def _set(
    native: CData, truth: Truth, options: dict[str, Any], mapped: tuple[int, ...] = (), weights: list[float] | None = None
) -> Truth:
    ffi = _native.ffi
    struct = ffi.new("loss_options *", {"truths": truth.floats, "boxes": truth.boxes, "row": truth.row, "class_at": truth.class_at})
    for name, value in options.items():
        setattr(struct, name, value)
    classes = ffi.new("int[]", mapped) if mapped else ffi.NULL
    factors = ffi.new("float[]", weights) if weights else ffi.NULL
    _native.check(_native.lib.set_loss(native, struct, classes, len(mapped), factors))
    return truth
