"""[yolo]: the head of YOLOv3 and later."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Head, Layer, layer_rule, made

__all__ = ["WITHOUT_EFFECT", "anchors_of", "build", "check_channels", "head_options"]

WITHOUT_EFFECT = frozenset(
    "class_normalizer cls_normalizer counters_per_class delta_normalizer dets_for_show dets_for_track "
    "embedding_layer focal_loss ignore_thresh iou_loss iou_normalizer iou_thresh iou_thresh_kind jitter label_smooth_eps "
    "max max_delta obj_normalizer objectness_smooth random resize show_details sim_thresh track_ciou_norm "
    "track_history_size truth_thresh uc_normalizer map".split()
)


def build(section: Section, context: Context) -> Layer:
    """The layer of a [yolo] section."""
    total = section.integer("num", 1, minimum=1)
    mask = section.integers("mask", tuple(range(total)))
    options = head_options(section, context, len(mask))
    options.total, options.coords = total, 4
    head = Head(
        classes=options.classes,
        anchors=anchors_of(section, context, total),
        mask=mask,
        scale_x_y=section.number("scale_x_y", 1.0),
        new_coords=section.flag("new_coords"),
        nms_kind=_nms_kind(section),
        beta_nms=section.number("beta_nms", 0.6),
    )
    options.scale_x_y, options.new_coords = head.scale_x_y, head.new_coords
    anchors = _native.ffi.new("float[]", [side for pair in head.anchors for side in pair])
    out_of_range = [entry for entry in mask if not 0 <= entry < total]
    if out_of_range:
        message = f"[yolo], layer {section.index}, has mask {out_of_range[0]}, but num={total} anchors"
        raise section.error(f"{message} are numbered 0 to {total - 1}", "mask")
    check_channels(section, context, len(mask), 4 + 1 + options.classes)
    native = made(section, "yolo", options, _native.ffi.new("int[]", mask), anchors, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        head=head,
        detail=f"{options.classes} classes, mask {','.join(str(entry) for entry in mask)}",
    )


def _nms_kind(section: Section) -> str:
    kind, kinds = section.text("nms_kind", "default"), ("default", "greedynms", "diounms")
    if kind not in kinds:
        raise section.error(f"nms_kind={kind} is none of {', '.join(kinds)}", "nms_kind")
    return kind


def head_options(section: Section, context: Context, anchors: int) -> _native.CData:
    """The options that every head has."""
    options = _native.ffi.new("head_options *")
    options.c, options.h, options.w = context.in_shape
    options.n = anchors
    options.classes = section.integer("classes", 20, minimum=1)
    return options


def anchors_of(section: Section, context: Context, total: int) -> tuple[tuple[float, float], ...]:
    """Width and height of each anchor; surplus numbers are left out and those not given are .5, as in the forks."""
    given, takes = section.numbers("anchors", ()), 2 * total
    if len(given) != takes:
        rest = "the surplus is ignored" if len(given) > takes else "the others are .5"
        message = f"{section.name}, layer {section.index}, has {len(given)} numbers in anchors=, num={total} takes {takes}; {rest}"
        context.warnings.append(str(section.error(message, "anchors")))
    sides = (*given, *[0.5] * takes)
    return tuple((sides[i], sides[i + 1]) for i in range(0, takes, 2))


def check_channels(section: Section, context: Context, anchors: int, entries: int) -> None:
    """Refuses a head whose input is not `anchors` times `entries` channels."""
    if context.in_shape.c == anchors * entries:
        return
    message = f"{section.name}, layer {section.index}, takes {anchors} anchors x {entries} (box, objectness, classes)"
    rest = f"= {anchors * entries} channels, but the layer before gives {context.in_shape.c}; set filters= there, or classes="
    raise section.error(f"{message} {rest}", "classes")
