"""[yolo]: the head of YOLOv3 and later."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _native
from ..options import Section
from .base import Context, Head, Layer, layer_rule, made
from .hierarchy import map_of
from .losses import yolo_loss

__all__ = [
    "MOST_ANCHORS",
    "NMS_KINDS",
    "WITHOUT_EFFECT",
    "anchors_of",
    "build",
    "check_channels",
    "head_options",
    "mask_of",
    "one_of",
    "total_of",
]

MOST_ANCHORS = 1 << 16
"""More would be memory for nothing: a head has one channel or more for each."""

NMS_KINDS = ("default", "greedynms", "diounms")

WITHOUT_EFFECT = frozenset(
    "class_normalizer delta_normalizer dets_for_show dets_for_track embedding_layer jitter random resize sim_thresh "
    "track_ciou_norm track_history_size uc_normalizer".split()
)


def build(section: Section, context: Context) -> Layer:
    """The layer of a [yolo] section."""
    total = total_of(section, context)
    mask = mask_of(section, total)
    options = head_options(section, context, len(mask))
    options.total, options.coords = total, 4
    head = Head(
        classes=options.classes,
        anchors=anchors_of(section, context, total),
        mask=mask,
        scale_x_y=section.number("scale_x_y", 1.0),
        new_coords=section.flag("new_coords"),
        nms_kind=one_of(section, "nms_kind", NMS_KINDS),
        beta_nms=section.number("beta_nms", 0.6),
    )
    options.scale_x_y, options.new_coords = head.scale_x_y, head.new_coords
    anchors = _native.ffi.new("float[]", [side for pair in head.anchors for side in pair])
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
        truth=yolo_loss(section, context, native, options.classes, map_of(section, context, options.classes)),
        detail=f"{options.classes} classes, mask {','.join(str(entry) for entry in mask)}",
    )


def total_of(section: Section, context: Context) -> int:
    """How many anchors there are: num=, or as many as the mask takes where anchors= gives them all the same.

    A published cfg counts too few; its forks then read behind their array.
    """
    total = section.integer("num", 1, minimum=1, maximum=MOST_ANCHORS)
    needed = max(section.integers("mask", (0,))) + 1
    given = len(section.numbers("anchors", ())) // 2
    if not total < needed <= given:
        return total
    message = f"{section.name}, layer {section.index}, has mask {needed - 1} and num={total}, but {given} pairs in anchors="
    context.warnings.append(str(section.error(f"{message}; {needed} of them count", "num")))
    return needed


def mask_of(section: Section, total: int) -> tuple[int, ...]:
    """Which of the anchors a head uses: all, where it does not say."""
    mask = section.integers("mask", tuple(range(total)))
    out_of_range = [entry for entry in mask if not 0 <= entry < total]
    if out_of_range:
        message = f"{section.name}, layer {section.index}, has mask {out_of_range[0]}, but num={total} anchors"
        raise section.error(f"{message} are numbered 0 to {total - 1}", "mask")
    return mask


def one_of(section: Section, key: str, words: Sequence[str]) -> str:
    """The word that an option says, the first where it says none."""
    word = section.text(key, words[0])
    if word not in words:
        raise section.error(f"{key}={word} is none of {', '.join(words)}", key)
    return word


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
