"""Losses of heads: recorded ones bit for bit, and the slopes of overlaps against a definition of their own."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import libm
import pydarknetbn as dn
from core import SAMPLE, assert_same_bits
from core import layer_rule as core_rule
from pydarknetbn import _native
from pydarknetbn._native import Array, ffi, lib
from pydarknetbn.dialect import PROFILES
from pydarknetbn.training.losses import Loss

LOSSES = sorted((SAMPLE / "costs").glob("*/*.npz"))
# How a program's printed line calls what the record holds.
PRINTED = {
    "iou": r"(?:Avg IOU: |avg IoU: |\(IOU: |avg IOU=)([^,) ]+)",
    "class_score": r"(?:Class: |class: |Pos Cat: | class=)([^,]+),",
    "any_class_score": r"All Cat: ([^,]+),",
    "objectness": r"(?:, |Pos )(?:Obj: |obj: |obj=)([^,]+),",
    "any_objectness": r"(?:No Obj: |no obj: |Any Obj: |no obj=)([^,]+),",
    "recall": r"(?:\.5R: |Avg Recall: |avg recall: |recall 50%=)([^,]+),",
    "recall75": r"(?:\.75R: |recall 75%=)([^,]+),",
    "class_loss": r"class[_ ]loss(?: = |: |=)([^,]+),",
    "iou_loss": r"(?:iou|IOU)[_ ]loss(?: = |: |=)([^,]+),",
    "uc_loss": r"uc[_ ]loss(?: = |=)([^,]+),",
    "total_loss": r"total[_ ]loss(?: = |: |=)(\S+)",
    "count": r"count(?:: |=)(\d+)",
}

# --- recorded -------------------------------------------------------------------------------------------------------------------


def recorded_loss(path: Path) -> tuple[dn.Network, Loss, Mapping[str, Array]]:
    profile = path.parent.name
    with np.load(path) as arrays:
        want = dict(arrays)
    net = dn.load(str(want["cfg"]).encode(), dialect=profile.removesuffix("-cpu"), profile=profile)
    net.header = dataclasses.replace(net.header, seen=int(want["seen"]))
    loss = net.layers[0].native.loss  # type: ignore[union-attr]
    loss.net_w, loss.net_h = want["net"]  # the recorded head stood behind a network of that input
    return net, net.loss(want["x"], want["truth"]), want


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("path", LOSSES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_deltas_and_cost_are_the_recorded_ones(path: Path) -> None:
    """With another libm to 1e-6 of the largest delta: its last bits are in outputs and targets, which are subtracted."""
    net, loss, want = recorded_loss(path)
    delta, cost = net.layers[0].delta, np.array([loss.value], np.float32)
    if libm.is_the_recorders():
        assert_same_bits(net.layers[0].output, want.get("output", net.layers[0].output), "output")
        assert_same_bits(delta, want["delta"], "delta")
        assert_same_bits(cost, want["cost"], "cost")
        return
    if "output" in want:
        np.testing.assert_allclose(net.layers[0].output, want["output"], rtol=1e-6)
    assert np.array_equal(np.isfinite(delta), np.isfinite(want["delta"]))
    finite = np.isfinite(delta)
    off = np.abs(delta[finite].astype(np.float64) - want["delta"][finite])
    assert np.all(off <= 1e-6 * np.abs(want["delta"][finite]).max())
    np.testing.assert_allclose(cost, want["cost"], rtol=1e-5)


@pytest.mark.usefixtures("system_functions")
@pytest.mark.parametrize("path", LOSSES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_program_prints_is_what_the_record_holds(path: Path) -> None:
    _, loss, want = recorded_loss(path)
    told, says = loss.layers[0], str(want["says"])
    printed = {name: re.search(pattern, says) for name, pattern in PRINTED.items()}
    for name, found in printed.items():
        value = getattr(told, name)
        if found is None:
            assert value is None, f"{name} is not in {says!r}"
        elif name == "total_loss" or value is not None:
            digits = len(found[1].partition(".")[2])  # that were printed
            assert float(found[1]) == pytest.approx(value, abs=0.51 * 10**-digits, rel=1e-6, nan_ok=True), name


def test_every_kind_of_overlap_and_head_is_recorded() -> None:
    names = {path.stem for path in LOSSES}
    assert {"yolo", "yolo_mse", "yolo_iou", "yolo_giou", "yolo_diou", "yolo_ciou", "gaussian_yolo", "region", "detection"} <= names


FIRST = [f"{profile}-cpu/{net}_sub1" for profile in ("pjreddie", "alexeyab", "hank-ai") for net in ("yolo", "softmax_cost")]


@pytest.mark.usefixtures("system_functions")
@pytest.mark.parametrize("name", [*FIRST, *(name.replace("yolo", "softmax_conv") for name in FIRST[::2])])
def test_first_loss_of_a_recorded_training(name: str, golden: Path) -> None:
    """train_network gives the cost of a batch divided by its rows."""
    path, dialect = golden / "train" / name, name.partition("-cpu")[0]
    net = dn.load(path.with_suffix(".cfg"), path.parent / f"{path.name}.init.weights", dialect=dialect)
    with np.load(path.with_suffix(".npz")) as arrays:
        x, truth, want = arrays["X"][0], arrays["Y"][0].copy(), arrays["loss"][0]
    loss = net.loss(x.reshape(len(x), net.c, net.h, net.w).copy(), truth)
    got = np.float32(loss.value) / np.float32(len(x))
    assert got == want if libm.is_the_recorders() else got == pytest.approx(want, rel=1e-5)


# --- slopes of an overlap -------------------------------------------------------------------------------------------------------


def overlap_of(a: np.ndarray, b: np.ndarray, kind: str) -> float:
    """The overlap of two boxes x, y, w, h in float64, from its definition; diou with the exponent 1 whose slope the forks take."""
    low, high = np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2), np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    inner = float(np.prod(high - low)) if np.all(high > low) else 0.0
    outer = np.maximum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.minimum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    union = float(np.prod(a[2:]) + np.prod(b[2:])) - inner
    iou = inner / union
    if kind == "giou":
        return iou - (float(np.prod(outer)) - union) / float(np.prod(outer))
    if kind == "diou":
        return iou - float(np.sum((a[:2] - b[:2]) ** 2) / np.sum(outer**2))
    return iou


@pytest.mark.parametrize("kind", ["iou", "giou"])
@pytest.mark.parametrize("axis", range(4), ids="xywh")
def test_slopes_of_an_overlap_are_its_derivative(kind: str, axis: int) -> None:
    """By a side twice that: the forks leave out the half."""
    pred, truth = np.array([0.52, 0.41, 0.3, 0.2]), np.array([0.5, 0.45, 0.25, 0.3])
    step = np.zeros(4)
    step[axis] = 1e-6
    rise = (overlap_of(pred + step, truth, kind) - overlap_of(pred - step, truth, kind)) / 2e-6
    slopes = slopes_of(pred, truth, kind)
    assert slopes[axis] == pytest.approx(rise * (2 if axis >= 2 else 1), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("axis", range(2), ids="xy")
def test_diou_draws_the_middles_together(axis: int) -> None:
    pred, truth = np.array([0.52, 0.41, 0.3, 0.2]), np.array([0.5, 0.45, 0.25, 0.3])
    step = np.zeros(4)
    step[axis] = 1e-6
    rise = (overlap_of(pred + step, truth, "diou") - overlap_of(pred - step, truth, "diou")) / 2e-6
    drawn = slopes_of(pred, truth, "diou")[axis]
    assert math.copysign(1, drawn) == math.copysign(1, truth[axis] - pred[axis]) == math.copysign(1, rise)


def slopes_of(pred: np.ndarray, truth: np.ndarray, kind: str) -> list[float]:
    rule, slopes = core_rule(PROFILES["alexeyab-cpu"].layers), ffi.new("float[4]")
    boxes = [ffi.new("box *", [float(value) for value in box])[0] for box in (pred, truth)]
    lib.box_overlap_slopes(*boxes, _native.enum("iou_loss", kind), rule, slopes)
    return list(slopes)
