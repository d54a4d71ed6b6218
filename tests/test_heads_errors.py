"""Options that make no head are refused with their line, and sizes that do not fit by the core."""

from __future__ import annotations

import pytest

import pydarknetbn as dn
from heads import RULE
from nets import cfg_of, refusal
from pydarknetbn._native import ffi, make, rule

FLAT = "connected output=117 activation=linear"
GAUSSIAN = "num=3 anchors=1,2,3,4,5,6"
PLANES = "conv filters=30 size=1 activation=linear"

WRONG = {
    "detection of other classes": (
        "alexeyab",
        [FLAT, "detection side=3 num=2 coords=4 classes=4"],
        12,
        "takes 3 x 3 cells x (2 boxes of 1 + 4 values, and 4 classes) = 126 values, but the layer before gives 117; set output=",
    ),
    "detection of another grid": ("alexeyab", [FLAT, "detection num=2 coords=4 classes=3"], 11, "takes 7 x 7 cells"),
    "detection of three coordinates": (
        "pjreddie",
        [FLAT, "detection coords=3"],
        9,
        "coords=3, but a box has x, y, w and h; set coords=4",
    ),
    "detection of the forks' one coordinate": ("pjreddie", [FLAT, "detection side=3"], 8, "coords=1, but a box"),
    "detection of no cell": ("pjreddie", [FLAT, "detection side=0"], 9, "side='0', expected 1 or more"),
    "gaussian of other classes": (
        "alexeyab",
        [PLANES, f"Gaussian_yolo classes=2 {GAUSSIAN}"],
        10,
        "takes 3 anchors x 11 (box, objectness, classes) = 33 channels, but the layer before gives 30",
    ),
    "gaussian mask beyond the anchors": (
        "hank-ai",
        [PLANES, f"Gaussian_yolo mask=0,1,3 classes=1 {GAUSSIAN}"],
        10,
        "mask 3, but num=3",
    ),
    "gaussian of another point": (
        "alexeyab",
        [PLANES, f"Gaussian_yolo yolo_point=top classes=1 {GAUSSIAN}"],
        10,
        "yolo_point=top is none of center, left_top",
    ),
    "gaussian of another nms": (
        "alexeyab",
        [PLANES, f"Gaussian_yolo nms_kind=soft classes=1 {GAUSSIAN}"],
        10,
        "nms_kind=soft is none of default",
    ),
    "iseg of other ids": (
        "pjreddie",
        ["iseg classes=1 ids=1"],
        6,
        "takes 1 classes + 1 ids = 2 channels, but the layer before gives 3",
    ),
    "contrastive beside a pooling": (
        "alexeyab",
        ["max", "max", "contrastive yolo_layer=-2"],
        8,
        "yolo_layer=-2, which is layer 0 [maxpool], expected a [yolo]",
    ),
    "region of five anchors": (
        "alexeyab",
        [PLANES, "region classes=1 num=4 anchors=1,2"],
        10,
        "= 24 channels, but the layer before gives 30",
    ),
    "region of three coordinates": ("pjreddie", [PLANES, "region classes=1 coords=3"], 11, "coords='3', expected 4 or more"),
}


@pytest.mark.parametrize(("dialect", "sections", "line", "words"), WRONG.values(), ids=WRONG)
def test_options_that_make_no_head_are_refused_with_their_line(dialect, sections, line, words):
    message = refusal(dn.CfgError, cfg_of(*sections), dialect=dialect)
    assert message.startswith(f"<bytes>:{line}: ")
    assert words in message


def test_core_refuses_sizes_that_do_not_fit_or_overflow():
    layers = rule("layer_rule", RULE)
    huge = 2**63
    sizes = [{"n": huge}, {"side": 2**32}, {"classes": huge}, {"coords": huge}, {"n": 0}, {"side": 0}, {"n": 2**62, "coords": 4}]
    for wrong in sizes:
        options = ffi.new("head_options *", {"c": 117, "h": 1, "w": 1, "n": 2, "side": 3, "classes": 3, "coords": 4} | wrong)
        with pytest.raises(dn.ShapeError, match="117 values are not"):
            make("detection", options, layers)
    for wrong in [{"n": 2**63, "c": 0}, {"classes": huge}, {"coords": 4}, {"n": 7}]:
        options = ffi.new("head_options *", {"c": 10, "h": 1, "w": 1, "n": 1, "total": 1, "classes": 1, "coords": 8} | wrong)
        with pytest.raises(dn.ShapeError):
            make("gaussian_yolo", options, [0], [1.0, 1.0], layers)
    for classes, ids in ((4, 0), (2, 2), (2**64 - 1, 4)):
        with pytest.raises(dn.ShapeError, match="3 channels are not"):
            make("iseg", 3, 1, 1, classes, ids, layers)
