"""The heads of YOLOv1 and Gaussian YOLO, what [region] has beyond its golden cases, [iseg] and [contrastive]."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from heads import RULE, make_head, read
from nets import cfg_of, ramp
from pydarknetbn._native import enum
from pydarknetbn.boxes import Detections, decode, detections_dtype, suppress
from pydarknetbn.dialect import PROFILES

LATER = ["alexeyab", "hank-ai"]
FIRST = ["pjreddie", "alexeyab"]


def flat_head(values: list[float], **fields: int) -> Any:
    """A [detection] head of one cell unless `side` is among the fields, its values in the order of memory."""
    output = np.array(values, np.float32).reshape(1, -1, 1, 1)
    anchors = [0.0] * 2 * fields.pop("n", 1)
    return make_head(output, RULE, anchors=anchors, **({"side": 1} | fields))


def logistic(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


# --- [detection] ----------------------------------------------------------------------------------------------------------------


def test_detection_has_classes_of_cells_then_objectness_then_boxes():
    # 2 x 2 cells of two boxes and two classes: the classes are 1/8 apart, objectness is 1 for its first box, .5 for the other
    classes = [0.125 * i for i in range(8)]
    boxes = [value for row in range(8) for value in (0.25, 0.5, 0.25 + row / 32, 0.5)]
    found = read(flat_head([*classes, *[1, 0.5] * 4, *boxes], n=2, side=2, classes=2), kind="detection", size=(100, 40), thresh=0.3)
    assert found["cell"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["anchor"].tolist() == [0, 1] * 4
    assert found["objectness"].tolist() == [1, 0.5] * 4
    assert found["probs"].tolist() == [[0, 0]] * 2 + [[0, 0.375], [0, 0]] + [
        [0.5, 0.625],
        [0, 0.3125],
        [0.75, 0.875],
        [0.375, 0.4375],
    ]
    assert found["box"][:, 0].tolist() == [12.5] * 2 + [62.5] * 2 + [12.5] * 2 + [62.5] * 2
    assert found["box"][:, 1].tolist() == [10] * 4 + [30] * 4
    assert found["box"][:, 2].tolist() == [100 * (0.25 + row / 32) for row in range(8)]
    assert found["box"][:, 3].tolist() == [20] * 8


def test_sqrt_squares_the_sides_of_a_box():
    found = read(flat_head([1, 1, 0.5, 0.5, -0.5, 0.25], sqrt=1), kind="detection", size=(64, 32))
    assert found["box"].tolist() == [[32, 16, 16, 2]]


def test_no_letterbox_is_undone_and_pixels_are_pixels_as_in_the_forks():
    head = flat_head([1, 1, 0.5, 0.5, 0.5, 0.5])
    looks = [read(head, kind="detection", size=(64, 32), letter=letter, relative=relative) for letter, relative in ((0, 0), (1, 1))]
    assert [look["box"].tolist() for look in looks] == [[[32, 16, 32, 16]]] * 2


@pytest.mark.parametrize("dialect", FIRST)
def test_softmax_of_detection_is_for_each_cell(dialect):
    logits = np.log(np.array([1, 3, 2, 6, 5, 5, 1, 1], np.float32))
    x = np.concatenate([logits, np.full(20, -7, np.float32)]).reshape(1, 28, 1, 1)
    section = "detection side=2 num=1 coords=4 classes=2"
    got = dn.load(cfg_of(f"{section} softmax=1", w=1, h=1, c=28), dialect=dialect).forward(x)[0].ravel()
    assert np.allclose(got[:8], [0.25, 0.75, 0.25, 0.75, 0.5, 0.5, 0.5, 0.5], rtol=3e-7)
    assert got[8:].tolist() == [-7] * 20
    plain = dn.load(cfg_of(section, w=1, h=1, c=28), dialect=dialect)
    assert plain.forward(x)[0].tobytes() == x.tobytes()


def test_detection_reads_its_own_image_of_a_batch():
    output = np.array([[1, 0.5, 0, 0, 1, 1], [1, 0.75, 0, 0, 1, 1]], np.float32).reshape(2, 6, 1, 1)
    head = make_head(output, RULE, anchors=[0, 0], side=1)
    assert [read(head, image, kind="detection")["objectness"].tolist() for image in (0, 1)] == [[0.5], [0.75]]


# --- [Gaussian_yolo] ------------------------------------------------------------------------------------------------------------


def gaussian_output(classes: int = 1) -> np.ndarray:
    """One cell, one anchor: x .25, y .5, logarithms 0, uncertainties .5 .25 .125 .125 (.25 in the mean), objectness 1."""
    output = np.zeros((1, 9 + classes, 1, 1), np.float32)
    output[0, :9, 0, 0] = 0.25, 0.5, 0.5, 0.25, 0, 0.125, 0, 0.125, 1
    output[0, 9:] = 1
    return output


def test_gaussian_probability_is_less_by_the_mean_uncertainty():
    output = gaussian_output(2)
    output[0, 8:11, 0, 0] = 0.5, 1, 0.5
    head = make_head(output, RULE, anchors=[104, 208], mask=[0], classes=2, coords=8)
    found = read(head, kind="gaussian_yolo")
    assert (found["objectness"].tolist(), found["probs"].tolist()) == ([0.5], [[0.375, 0]])  # .1875 is not over .25
    assert found["uncertainty"].tolist() == [[0.5, 0.25, 0.125, 0.125]]
    assert found["box"].tolist() == [[0.25, 0.5, 0.25, 0.5]]
    assert found.to_json()[0]["uncertainty"] == {"x": 0.5, "y": 0.25, "w": 0.125, "h": 0.125}
    assert len(read(head, kind="gaussian_yolo", thresh=0.5)) == 0


@pytest.mark.parametrize(
    ("point", "centre"), [("center", [0.25, 0.5]), ("left top", [0.375, 0.75]), ("right bottom", [0.125, 0.25])]
)
def test_yolo_point_says_which_point_of_the_box_is_told(point, centre):
    head = make_head(gaussian_output(), RULE, anchors=[104, 208], mask=[0], coords=8, yolo_point=enum("yolo_point", point))
    assert read(head, kind="gaussian_yolo")["box"][0, :2].tolist() == centre


@pytest.mark.parametrize("scan", ["cells outer", "anchors outer"])
def test_gaussian_rows_are_cell_by_cell_whatever_the_scan(scan):
    output = gaussian_output().repeat(2, axis=3).repeat(2, axis=0).reshape(1, 20, 1, 2)
    scanned = replace(RULE, scan=scan)
    found = read(make_head(output, scanned, anchors=[1, 2, 3, 4], mask=[0, 1], coords=8), kind="gaussian_yolo", rule=scanned)
    assert list(zip(found["cell"].tolist(), found["anchor"].tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_gaussian_boxes_leave_a_letterbox_by_a_quotient_in_every_profile():
    # 900 x 613 in 416 x 416: height .9 becomes .9 * 416/283 = 1.3229681; by the inverse of 283/416 it would be 1.3229682
    output = gaussian_output()
    head = make_head(output, RULE, anchors=[41.6, 374.4], mask=[0], coords=8)
    assert RULE.unbox == "multiply inverse"
    assert read(head, kind="gaussian_yolo", size=(900, 613), letter=True)["box"][0, 3] == 1.3229681253433228


@pytest.mark.parametrize("dialect", LATER)
def test_forward_of_gaussian_yolo_leaves_logarithms_and_spreads_the_centre(dialect):
    x = np.linspace(-2, 2, 20, dtype=np.float32).reshape(2, 10, 1, 1)
    section = "Gaussian_yolo mask=0 num=1 anchors=1,1 classes=1 scale_x_y=1.5"
    got = dn.load(cfg_of(section, w=1, h=1, c=10), dialect=dialect).forward(x)[0].reshape(2, 10)
    for ours, given in zip(got, x.reshape(2, 10), strict=True):
        want = [float(v) if entry in (4, 6) else logistic(v) for entry, v in enumerate(given)]
        want[0], want[2] = want[0] * 1.5 - 0.25, want[2] * 1.5 - 0.25
        assert np.allclose(ours, want, rtol=0, atol=3e-7)  # exp and three roundings near 1
        assert ours[[4, 6]].tolist() == given[[4, 6]].tolist()


def test_head_without_uncertainty_has_no_field_for_it():
    assert "uncertainty" not in (detections_dtype(3).names or ())


# --- [region] -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "probability"), [("pjreddie", 0.45), ("alexeyab", 0), ("hank-ai", 0)])
def test_classfix_of_minus_one_silences_boxes_below_a_half_in_the_later_forks(dialect, probability):
    layers = PROFILES[f"{dialect}-cpu"].layers
    head = make_head(np.array([0, 0, 0, 0, 0.45, 1], np.float32).reshape(1, 6, 1, 1), layers, anchors=[1, 1], classfix=-1)
    assert read(head, kind="region", rule=layers)["prob"].tolist() == [np.float32(probability)]
    half = make_head(np.array([0, 0, 0, 0, 0.5, 1], np.float32).reshape(1, 6, 1, 1), layers, anchors=[1, 1], classfix=-1)
    assert read(half, kind="region", rule=layers)["prob"].tolist() == [0.5]


def test_further_coordinates_pass_and_objectness_stands_behind_them():
    x = np.array([0.5, -0.5, 0.25, 0, 7, -7, 2, 1, 3], np.float32).reshape(1, 9, 1, 1)  # two beyond the box, two classes
    net = dn.load(cfg_of("region classes=2 coords=6 num=1 softmax=1 anchors=1,1", w=1, h=1, c=9), dialect="pjreddie")
    got = net.forward(x)[0].ravel()
    low, high = 1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))
    assert np.allclose(got, [logistic(0.5), logistic(-0.5), 0.25, 0, 7, -7, logistic(2), low, high], rtol=3e-7)
    found = boxes_of(net)
    assert np.allclose([found["objectness"][0], found["probs"][0, 1]], [logistic(2), logistic(2) * high], rtol=3e-7)


@pytest.mark.parametrize("dialect", LATER)
def test_later_forks_take_objectness_for_entry_four_and_a_row_for_five_and_the_classes(dialect):
    # one anchor, two cells, coords=5 and one class: rows of seven are written, of six are read
    x = np.arange(14, dtype=np.float32).reshape(1, 7, 1, 2) / 8
    net = dn.load(cfg_of("region classes=1 coords=5 num=1 anchors=1,1", w=2, h=1, c=7), dialect=dialect)
    got = net.forward(x)[0].ravel()
    assert got[[0, 1, 2, 3, 5, 6, 7, 13]].tolist() == [0, 0.25, 0.5, 0.75, 1.25, 1.5, 0.125, 1.625]
    assert np.allclose(got[[4, 11]], [logistic(1), logistic(1.125)], rtol=3e-7)
    rows = boxes_of(net, thresh=0)
    assert rows["probs"].ravel().tolist() == [got[4] * got[5], got[10] * got[11]]


def boxes_of(net: dn.Network, thresh: float = 0.1) -> Detections:
    heads = [(layer.index, layer.native, layer.type) for layer in net.heads]
    sizes: dict[str, Any] = {"picture_size": (8, 8), "net_size": (net.w, net.h), "letter": False}
    return decode(heads, 0, thresh=thresh, rule=PROFILES[net.profile].layers, **sizes)


# --- [iseg], [contrastive] ------------------------------------------------------------------------------------------------------


def test_iseg_takes_the_logistic_of_its_classes_in_every_image():
    x = ramp(3, 1, 2, batch=2, start=-6)
    net = dn.load(cfg_of("iseg classes=1 ids=2", w=2, h=1), dialect="pjreddie")
    got = net.forward(x)[0]
    assert np.allclose(got[:, 0].ravel(), [logistic(v) for v in x[:, 0].ravel()], rtol=1.2e-7)
    assert np.array_equal(got[:, 1:], x[:, 1:])


@pytest.mark.parametrize("dialect", LATER)
def test_contrastive_passes_its_input_in_inference(dialect):
    head = "yolo mask=0 num=1 classes=1 anchors=1,1"
    copy = "upsample stride=1"
    x = ramp(6, 1, 2)
    net = dn.load(cfg_of(copy, head, "route layers=0", "contrastive yolo_layer=-2", w=2, h=1, c=6), dialect=dialect)
    net.forward(x)
    assert np.array_equal(net.layers[3].output, x)
    assert np.array_equal(dn.load(cfg_of("contrastive classes=6", w=2, h=1, c=6), dialect=dialect).forward(x)[0], x)


# --- suppression ----------------------------------------------------------------------------------------------------------------


def test_power_of_diounms_is_a_float_or_a_double_as_the_rule_says():
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    library.powf.restype, library.powf.argtypes = ctypes.c_float, [ctypes.c_float] * 2
    library.pow.restype, library.pow.argtypes = ctypes.c_double, [ctypes.c_double] * 2
    side, apart, beta = np.float32(64), np.float32(34.125), np.float32(0.6)
    around = apart + side
    quotient = apart * apart / (around * around + side * side)
    shared = (side - apart) * side
    iou = shared / (side * side * 2 - shared)
    measures = {"float": iou - library.powf(quotient, beta), "double": iou - np.float32(library.pow(quotient, beta))}
    measures = {kind: np.float32(measure) for kind, measure in measures.items()}
    if measures["float"] == measures["double"]:
        pytest.skip("this libm gives both powers the same bits here")
    rows = np.zeros(2, detections_dtype(1)).view(Detections)
    rows["box"], rows["objectness"], rows["probs"] = [[0, 0, side, side], [apart, 0, side, side]], 1, [[0.75], [0.5]]
    limit = float(min(measures.values()))
    for kind, measure in measures.items():
        layers = replace(RULE, arithmetic=replace(RULE.arithmetic, diou=kind))
        left = suppress(rows, kind="diounms", thresh=limit, beta=float(beta), rule=layers)
        assert (left["probs"].ravel() > 0).sum() == (1 if measure > limit else 2), kind
    assert {name: profile.layers.arithmetic.diou for name, profile in PROFILES.items() if profile.evidence == "recorded"} == {
        "pjreddie-cpu": "double",
        "alexeyab-cpu": "double",
        "hank-ai-cpu": "float",
    }
