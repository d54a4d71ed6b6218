"""Nothing grows: forwards, loads and loads that fail give back what they take."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from nets import TINY, noise, tiny_yolo

STATM = Path("/proc/self/statm")
ROUNDS, WARM, LIMIT = 2000, 200, 8 * 2**20

pytestmark = [pytest.mark.long, pytest.mark.skipif(not STATM.exists(), reason="the memory in use is read from /proc")]


def resident() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(call: Callable[[int], object]) -> int:
    """Bytes that 2,000 calls leave behind after a warm-up."""
    for index in range(WARM):
        call(index)
    before = resident()
    for index in range(ROUNDS):
        call(index)
    return resident() - before


def test_forwards_and_their_views_leave_nothing():
    net, x = tiny_yolo(), noise(2, 3, 32, 32)

    def call(index: int) -> float:
        heads = net.forward(x[: 1 + index % 2], train=index % 5 == 0)
        outputs = [layer.output for layer in net.layers]
        return float(outputs[4].sum()) + len(heads)

    assert growth(call) < LIMIT


def test_detections_leave_nothing():
    net, picture = tiny_yolo(), noise(3, 48, 64)
    assert growth(lambda _: net.detect(picture).to_json()) < LIMIT


def test_loads_leave_nothing_whether_closed_or_dropped():
    data, text, x = tiny_yolo().to_bytes(), TINY.read_bytes(), noise(1, 3, 32, 32)

    def call(index: int) -> None:
        net = dn.load(text, data)
        net.forward(x)
        kept = net.layers[0].output
        if index % 2:
            net.close()
        del net
        assert np.isfinite(kept).all()

    assert growth(call) < LIMIT


FAILURES = {
    "cut off": (TINY.read_bytes(), tiny_yolo().to_bytes()[:-4]),
    "too long": (TINY.read_bytes(), tiny_yolo().to_bytes() + b"1234"),
    "a web page": (TINY.read_bytes(), b"<!DOCTYPE html><html></html>"),
    "a head that does not fit": (TINY.read_bytes().replace(b"classes=3", b"classes=4"), tiny_yolo().to_bytes()),
    "a last layer of no size": (TINY.read_bytes() + b"[maxpool]\nsize=99\npadding=0\n", None),
}


def test_failed_loads_leave_nothing():
    failures = list(FAILURES.values())

    def call(index: int) -> None:
        with contextlib.suppress(dn.CfgError, dn.WeightsError):
            dn.load(*failures[index % len(failures)])
            pytest.fail("loaded")

    assert growth(call) < LIMIT


def test_refused_forwards_leave_nothing():
    net, wrong = tiny_yolo(), noise(1, 3, 32, 31)

    def call(_: int) -> None:
        with contextlib.suppress(dn.ShapeError):
            net.forward(wrong)

    assert growth(call) < LIMIT
