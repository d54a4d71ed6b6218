"""Decoding of heads made by hand, against literal values; recorded ones are in test_boxes.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heads import RULE, Head, make_head, read, yolo_output
from pydarknetbn._native import check, enum, ffi, floats, lib, make, rule
from pydarknetbn.boxes import decode, kept
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import ShapeError, StateError, UnsupportedError

SIZES: dict[str, Any] = {"picture_size": (9, 9), "net_size": (9, 9), "thresh": 0.5, "letter": False, "rule": RULE}
TINY_ANCHORS = [10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319]


@pytest.mark.parametrize(("mask", "widths"), [([1, 2, 3], [23, 37, 81]), ([4, 0, 2], [135, 10, 37])])
def test_mask_is_used_as_written(mask: list[int], widths: list[int]) -> None:
    output = yolo_output(1, 1, 3)
    output[:, :, 4] = 1
    found = read(make_head(output.reshape(1, 18, 1, 1), RULE, anchors=TINY_ANCHORS, mask=mask))
    assert found["box"][:, 2].tolist() == [np.float32(width) / np.float32(416) for width in widths]
    assert found["anchor"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("offset", [0.880797, 0.899837, 0.956957, 1.261594, -0.0995976, 0.5])
def test_offsets_beyond_the_cell_are_kept(offset: float) -> None:
    output = yolo_output(13, 13, 1)
    output[0, 0, :2, 2, 7] = offset
    output[0, 0, 4, 2, 7] = 1
    found = read(make_head(output.reshape(1, 6, 13, 13), RULE, anchors=[10, 14], mask=[0]))
    x, y = (np.float32(7) + np.float32(offset)) / np.float32(13), (np.float32(2) + np.float32(offset)) / np.float32(13)
    assert found["box"][0, :2].tolist() == [x, y]
    assert found["cell"].tolist() == [2 * 13 + 7]


@pytest.mark.parametrize(
    ("logit", "scale", "offset"),
    [(2, 1, 0.880797), (2, 1.05, 0.899837), (2, 1.2, 0.956957), (2, 2, 1.261594), (-8, 1.2, -0.0995976), (0, 2, 0.5)],
)
def test_scale_x_y_reaches_the_box(logit: float, scale: float, offset: float) -> None:
    options = ffi.new("head_options *", {"c": 6, "h": 1, "w": 1, "n": 1, "total": 1, "classes": 1, "coords": 4})
    options.scale_x_y = scale
    layer = make("yolo", options, [0], [10.0, 14.0], rule("layer_rule", RULE))
    logits = np.array([logit, 0, 0, 0, 8, 8], np.float32)
    state = ffi.new("network_state *", {"input": floats(logits), "batch": 1})
    check(lib.forward_layer(layer, state))
    x = read(Head(layer, ()))["box"][0, 0]
    assert abs(x - offset) < 6e-7  # the expected values are given to six decimals


def test_new_coords_square_the_size() -> None:
    output = yolo_output(1, 1, 1)
    output[0, 0, 2:5, 0, 0] = 0.75, 0.5, 1
    found = read(make_head(output.reshape(1, 6, 1, 1), RULE, anchors=[32, 64], mask=[0], new_coords=1))
    assert found["box"][0, 2:].tolist() == [np.float32(72) / np.float32(416), np.float32(64) / np.float32(416)]


def test_objectness_must_be_over_the_threshold_and_nan_never_is() -> None:
    output = yolo_output(1, 4, 1)
    output[0, 0, 4, 0] = 0.25, math.nan, 0.5, math.inf
    output[0, 0, 5, 0] = 1
    found = read(make_head(output.reshape(1, 6, 1, 4), RULE, anchors=[10, 14], mask=[0]))
    assert found["cell"].tolist() == [2, 3]


def test_probability_is_objectness_times_class_and_zero_up_to_the_threshold() -> None:
    output = yolo_output(1, 1, 1, classes=4)
    output[0, 0, 4:, 0, 0] = 0.5, 0.5, 0.75, 1, math.nan
    found = read(make_head(output.reshape(1, 9, 1, 1), RULE, classes=4, anchors=[10, 14], mask=[0]))
    assert found["probs"].tolist() == [[0, 0.375, 0.5, 0]]
    assert (found["class_id"][0], found["prob"][0], found["objectness"][0]) == (2, 0.5, 0.5)


def test_row_without_a_probability_has_no_class() -> None:
    output = yolo_output(1, 1, 1)
    output[0, 0, 4:, 0, 0] = 0.5, 0.1
    found = read(make_head(output.reshape(1, 6, 1, 1), RULE, anchors=[10, 14], mask=[0]))
    assert (found["class_id"].tolist(), found["prob"].tolist(), len(kept(found))) == ([-1], [0], 0)


def test_each_image_of_a_batch_has_its_own_rows() -> None:
    output = yolo_output(1, 2, 1, batch=2)
    output[0, 0, 4, 0] = 0.5, 0
    output[1, 0, 4, 0] = 0.75, 0.875
    head = make_head(output.reshape(2, 6, 1, 2), RULE, anchors=[10, 14], mask=[0])
    assert [read(head, image)["objectness"].tolist() for image in (0, 1)] == [[0.5], [0.75, 0.875]]


@pytest.mark.parametrize(
    ("scan", "order"),
    [("cells outer", [(0, 0), (1, 0), (0, 1), (1, 1)]), ("anchors outer", [(0, 0), (0, 1), (1, 0), (1, 1)])],
)
def test_scan_says_which_row_comes_first(scan: Any, order: list[tuple[int, int]]) -> None:
    output = yolo_output(1, 2, 2)
    output[:, :, 4] = 1
    scanned = replace(RULE, scan=scan)
    found = read(make_head(output.reshape(1, 12, 1, 2), scanned, classes=1, anchors=[10, 14, 23, 27], mask=[0, 1]))
    assert list(zip(found["anchor"].tolist(), found["cell"].tolist(), strict=True)) == order


@pytest.mark.parametrize("unbox", ["divide ratio", "multiply inverse"])
@pytest.mark.parametrize(("size", "margins"), [((200, 100), (1, 0.5)), ((100, 200), (0.5, 1)), ((50, 50), (1, 1))])
def test_letterbox_is_undone(unbox: Any, size: tuple[int, int], margins: tuple[float, float]) -> None:
    output = yolo_output(1, 1, 1)
    output[0, 0, :2, 0, 0] = 0.5
    output[0, 0, 4, 0, 0] = 1
    anchors = [416 * margins[0], 416 * margins[1]]
    head = make_head(output.reshape(1, 6, 1, 1), RULE, anchors=anchors, mask=[0])
    found = read(head, size=size, letter=True, relative=False, rule=replace(RULE, unbox=unbox))
    assert found["box"].tolist() == [[size[0] / 2, size[1] / 2, *size]]


def test_stretched_picture_has_no_margin() -> None:
    output = yolo_output(1, 1, 1)
    output[0, 0, :2, 0, 0] = 0.5, 0.25
    output[0, 0, 4, 0, 0] = 1
    head = make_head(output.reshape(1, 6, 1, 1), RULE, anchors=[104, 208], mask=[0])
    assert read(head, size=(200, 100), relative=False)["box"].tolist() == [[100, 25, 50, 50]]


def test_heads_follow_each_other_and_tell_their_layer() -> None:
    output = yolo_output(1, 1, 1)
    output[0, 0, 4] = 1
    head = make_head(output.reshape(1, 6, 1, 1), RULE, anchors=[10, 14], mask=[0])
    found = decode([head.at(30), head.at(16)], 0, **SIZES)
    assert found["layer"].tolist() == [30, 16]


def test_decode_names_what_is_missing() -> None:
    output = yolo_output(1, 1, 1).reshape(1, 6, 1, 1)
    head = make_head(output, RULE, anchors=[10, 14], mask=[0])
    other = make_head(output, RULE, classes=2, anchors=[10, 14], mask=[0])
    with pytest.raises(StateError, match="layer 0 holds outputs of 1 images, not image 1"):
        read(head, 1)
    with pytest.raises(UnsupportedError, match="layer 3: 1, layer 4: 2"):
        decode([head.at(3), other.at(4)], 0, **SIZES)
    with pytest.raises(UnsupportedError, match="none"):
        decode([], 0, **SIZES)
    with pytest.raises(ShapeError, match="1 pixel or more"):
        read(head, size=(0, 9))
    head.layer.output = ffi.NULL
    with pytest.raises(StateError, match="run forward first"):
        read(head)


# Box 0.3 0.7 0.1 0.9 in a network of 416 x 416, out of correct_yolo_boxes of pjreddie f6afaab and AlexeyAB 59596d7. The first
# four rows tell the two ways of the size apart, the last two need the margin in double.
UNBOXED = [
    ((900, 613), "divide ratio", [0.30000001192092896, 0.7939929366111755, 0.10000000149011612, 1.3229681253433228]),
    (
        (900, 613),
        "multiply inverse",
        [0.30000001192092896, 0.7939929366111755, 0.10000000149011612, 1.3229682445526123],
    ),
    ((613, 900), "divide ratio", [0.20600709319114685, 0.699999988079071, 0.14699646830558777, 0.8999999761581421]),
    ((613, 900), "multiply inverse", [0.20600709319114685, 0.699999988079071, 0.14699648320674896, 0.8999999761581421]),
    ((427, 640), "divide ratio", [0.19963900744915009, 0.699999988079071, 0.15018050372600555, 0.8999999761581421]),
    (
        (1023, 701),
        "multiply inverse",
        [0.30000001192092896, 0.7919298410415649, 0.10000000149011612, 1.313684105873108],
    ),
]


@pytest.mark.parametrize(("size", "unbox", "expected"), UNBOXED)
def test_unboxing_has_the_bits_of_the_fork(size: tuple[int, int], unbox: str, expected: list[float]) -> None:
    box = np.array([[0.3, 0.7, 0.1, 0.9]], np.float32)
    lib.correct_yolo_boxes(ffi.from_buffer("box[]", box), 1, *size, 416, 416, 1, 1, enum("unbox", unbox))
    assert box[0].tolist() == expected


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu"])
def test_region_has_a_row_for_every_cell_of_each_image(profile: str) -> None:
    layer_rule = PROFILES[profile].layers
    planar = layer_rule.region == "planar"
    entries = np.zeros((2, 6, 2), np.float32)  # image, entry, cell: x y w h objectness class
    entries[:, 4:] = [[[0.5, 0.25], [4, 4]], [[1, math.nan], [0.125, 1]]]
    output = entries if planar else entries.transpose(0, 2, 1)
    head = make_head(output.reshape(2, 6, 1, 2), layer_rule, anchors=[1, 2])
    found = [read(head, image, kind="region", rule=layer_rule) for image in (0, 1)]
    assert [rows["cell"].tolist() for rows in found] == [[0, 1]] * 2
    assert [rows["objectness"].tolist() for rows in found] == ([[0.5, 0], [1, 0]] if planar else [[1, 1], [1, 1]])
    assert [rows["probs"].tolist() for rows in found] == [[[2], [0 if planar else 1]], [[0], [0]]]
    centre = [0, 0.5] if planar else [0.25, 0.75]  # the flattened x is before its logistic
    assert found[0]["box"].tolist() == [[x, 0 if planar else 0.5, 0.5, 2] for x in centre]
