"""Suppression by literal cases and a float64 oracle, and the array of detections. test_boxes.py has recorded ones."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pydarknetbn.boxes import Detections, detections_dtype, kept, nms, suppress
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import DtypeError

RULE = PROFILES["alexeyab-cpu"].layers
KINDS = ["sort", "obj", "greedynms", "diounms", "cornersnms", "default"]
BOX = [10, 10, 4, 4]


def detections(rows: list[tuple[list[float], float, list[float]]], classes: int = 1) -> Detections:
    """From (box, objectness, probabilities); `cell` is the number of the row."""
    made = np.zeros(len(rows), detections_dtype(classes)).view(Detections)
    for i, (box, objectness, probs) in enumerate(rows):
        best = int(np.argmax(probs))
        made[i] = (box, objectness, best if probs[best] > 0 else -1, max(probs), probs, 0, 0, i)
    return made


def test_the_less_probable_of_two_equal_boxes_goes() -> None:
    for kind in KINDS:
        found = nms(detections([(BOX, 0.5, [0.5]), (BOX, 0.75, [0.75])]), kind=kind, thresh=0.45)
        assert (found["cell"].tolist(), found["prob"].tolist()) == ([1], [0.75]), kind


def test_equally_probable_boxes_keep_their_order_and_the_first_stays() -> None:
    rows = [(BOX, 0.5, [0.5]), ([90, 10, 4, 4], 0.5, [0.5]), (BOX, 0.5, [0.5]), ([50, 10, 4, 4], 0.5, [0.5])]
    for kind in KINDS:
        assert nms(detections(rows), kind=kind, thresh=0.45)["cell"].tolist() == [0, 1, 3], kind


def test_overlap_must_be_over_the_threshold() -> None:
    pair = detections([([1, 1, 2, 2], 0.75, [0.75]), ([2, 1, 2, 2], 0.5, [0.5])])  # they share 2 of 6
    third = float(np.float32(2) / np.float32(6))
    assert len(nms(pair, kind="sort", thresh=third)) == 2
    assert len(nms(pair, kind="sort", thresh=float(np.nextafter(np.float32(third), np.float32(0))))) == 1


def test_classes_are_suppressed_apart_and_objects_together() -> None:
    rows = detections([(BOX, 0.75, [0.75, 0.25]), (BOX, 0.5, [0.25, 0.5])], classes=2)
    apart = suppress(rows, kind="sort", thresh=0.45, rule=RULE)
    assert (apart["cell"].tolist(), apart["probs"].tolist()) == ([1, 0], [[0, 0.5], [0.75, 0]])
    assert apart["class_id"].tolist() == [1, 0]
    together = suppress(rows, kind="obj", thresh=0.45, rule=RULE)
    assert (together["cell"].tolist(), together["probs"].tolist()) == ([0, 1], [[0.75, 0.25], [0, 0]])
    assert (together["objectness"].tolist(), together["class_id"].tolist()) == ([0.75, 0], [0, -1])


def test_rows_without_objectness_change_places_with_the_last() -> None:
    rows = [([20.0 * i, 10, 4, 4], objectness, [0.5]) for i, objectness in enumerate([0, 1, 0, 1, 1])]
    assert suppress(detections(rows), kind="sort", thresh=0.45, rule=RULE)["cell"].tolist() == [4, 1, 3, 2, 0]


def test_rows_with_nan_stay_where_the_merge_leaves_them() -> None:
    # NaN counts as equal to all: (2 NaN)(3 1) becomes 3 2 NaN 1, (1)(NaN 2) stays
    for probs, order in ([2, math.nan, 3, 1], [2, 0, 1, 3]), ([1, math.nan, 2], [0, 1, 2]):
        rows = [([20.0 * i, 10, 4, 4], 1, [prob]) for i, prob in enumerate(probs)]
        assert suppress(detections(rows), kind="sort", thresh=0.45, rule=RULE)["cell"].tolist() == order


def test_distance_of_the_centres_spares_a_box() -> None:
    # iou 3/5 = .6; d = 1, c = 5*5 + 4*4 = 41: .6 - (1/41)^.6 = .492, .6 - (1/41)^.1 = -.09
    pair = detections([([2, 2, 4, 4], 0.75, [0.75]), ([3, 2, 4, 4], 0.5, [0.5])])
    assert len(nms(pair, kind="sort", thresh=0.55)) == 1
    assert len(nms(pair, kind="cornersnms", thresh=0.55)) == 1
    assert len(nms(pair, kind="greedynms", thresh=0.55, beta=9)) == 2  # its exponent is .6, whatever beta
    assert len(nms(pair, kind="greedynms", thresh=0.49)) == 1
    assert len(nms(pair, kind="diounms", thresh=0.49)) == 1
    assert len(nms(pair, kind="diounms", thresh=0.0, beta=0.1)) == 2
    assert len(nms(pair, kind="diounms", thresh=0.55, beta=9)) == 1


def test_boxes_without_area_overlap_by_nan_or_zero_as_the_rule_says() -> None:
    points = detections([([1, 1, 0, 0], 0.75, [0.75]), ([1, 1, 0, 0], 0.5, [0.5])])
    plain = suppress(points, kind="sort", thresh=-1, rule=replace(RULE, iou="plain"))
    guarded = suppress(points, kind="sort", thresh=-1, rule=replace(RULE, iou="zero guard"))
    assert (len(kept(plain)), len(kept(guarded)), len(nms(points, kind="sort", thresh=0))) == (2, 1, 2)
    # the box around both has no diagonal to divide by
    assert len(kept(suppress(points, kind="greedynms", thresh=-1, rule=RULE))) == 1


def overlap(kind: str, a: np.ndarray, b: np.ndarray, beta: float) -> float:
    low = np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    shared = float(np.prod(np.maximum(low, 0)))
    iou = shared / (float(np.prod(a[2:]) + np.prod(b[2:])) - shared)
    if kind not in ("greedynms", "diounms"):
        return iou
    around = np.maximum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.minimum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    quotient = float(np.sum((a[:2] - b[:2]) ** 2) / np.sum(around**2))
    return iou - quotient ** (0.6 if kind == "greedynms" else beta)


def oracle(kind: str, boxes: np.ndarray, scores: np.ndarray, thresh: float, beta: float) -> list[int]:
    """Rows that one class keeps, in float64; no decision may lie so near the threshold that float32 could turn it."""
    left: list[int] = []
    for row in np.argsort(-scores):
        measures = [overlap(kind, boxes[other], boxes[row], beta) for other in left]
        assert all(abs(measure - thresh) > 1e-6 for measure in measures)
        if not any(measure > thresh for measure in measures):
            left.append(int(row))
    return left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_equals_a_plain_float64_suppression(kind: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    centres, sizes = generator.uniform(0, 60, (80, 2)), generator.uniform(10, 40, (80, 2))
    boxes = np.concatenate([centres, sizes], axis=1).astype(np.float32)
    scores = generator.permutation(80).astype(np.float32) / 128 + 0.125
    rows = detections([(box, score, [score]) for box, score in zip(boxes, scores, strict=True)])
    found = nms(rows, kind=kind, thresh=0.3, beta=0.8)
    assert found["cell"].tolist() == oracle(kind, boxes.astype(float), scores, 0.3, 0.8)


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_and_one_row_come_back(kind: Any) -> None:
    assert len(nms(detections([]), kind=kind, thresh=0.45)) == 0
    one = detections([(BOX, 0.5, [0.5])])
    assert nms(one, kind=kind, thresh=0.45).tobytes() == one.tobytes()


def test_suppression_leaves_its_argument_alone() -> None:
    rows = detections([(BOX, 0.5, [0.5]), (BOX, 0.75, [0.75])])
    before = rows.tobytes()
    nms(rows, kind="obj", thresh=0.1)
    assert rows.tobytes() == before


def test_rows_of_a_step_or_backwards_are_read_as_they_stand() -> None:
    rows = detections([([20.0 * i, 10, 4, 4], 0.5, [0.5]) for i in range(4)])
    assert nms(rows[::-2], kind="sort", thresh=0.45)["cell"].tolist() == [3, 1]


def test_nms_says_what_it_takes() -> None:
    rows = detections([(BOX, 0.5, [0.5])])
    with pytest.raises(ValueError, match=r"greedynms.*got 'soft'"):
        nms(rows, kind="soft", thresh=0.45)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 to 1, got nan"):
        nms(rows, kind="sort", thresh=math.nan)
    with pytest.raises(DtypeError, match=r"expected Detections.*got ndarray"):
        nms(np.zeros(3), kind="sort", thresh=0.45)  # type: ignore[arg-type]


# --- the array of detections -----------------------------------------------------------------------------------------


def test_names_stay_with_parts_copies_and_pickles() -> None:
    rows = detections([(BOX, 0.5, [0.5]), ([90, 10, 4, 4], 0.5, [0.25])])
    assert rows.names == ()
    rows.names = ("dog",)
    parts = [rows[:1], rows[[1, 0]], rows[rows["prob"] > 0.3], rows.copy(), pickle.loads(pickle.dumps(rows))]
    parts += [kept(rows), nms(rows, kind="sort", thresh=0.45)]
    assert all(isinstance(part, Detections) and part.names == ("dog",) for part in parts)


def test_a_field_is_a_plain_view() -> None:
    rows = detections([(BOX, 0.5, [0.5])])
    assert type(rows["box"]) is np.ndarray
    assert rows["box"].shape == (1, 4)
    rows["box"][0, 0] = 7
    assert rows[0]["box"].tolist() == [7, 10, 4, 4]


def test_to_json_gives_plain_numbers() -> None:
    rows = detections([(BOX, 0.5, [0.25, 0.5]), (BOX, 0.5, [0, 0])], classes=2)
    rows.names = ("dog", "cat")
    box = {"x": 10.0, "y": 10.0, "w": 4.0, "h": 4.0}
    place = {"layer": 0, "anchor": 0}
    assert json.loads(json.dumps(rows.to_json())) == [
        {"class_id": 1, "name": "cat", "prob": 0.5, "objectness": 0.5, "box": box, "cell": 0, **place},
        {"class_id": -1, "name": None, "prob": 0.0, "objectness": 0.5, "box": box, "cell": 1, **place},
    ]
