"""Comparisons made by hand: what a report and a table have to show, without a network."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pydarknetbn.doctor import Cause, Closeup, Comparison, Errors, Row

HOSTILE = '</td><script>document.title="owned"</script>"&amp;<img src=x onerror=alert(1)>'


def errors(largest: float, **others: Any) -> Errors:
    return replace(
        Errors(largest, largest / 3, 1 - largest**2, -20 * math.log10(largest or 1), int(min(largest, 1.0) * 1000), 3), **others
    )


def row(layer: int, stage: str, free: float | None, alone: float | None, *, budget: float = 2e-6, **others: Any) -> Row:
    shown = free is not None
    over = (alone if alone is not None else free or 0.0) > budget
    made = Row(
        layer=layer,
        type="input" if layer < 0 else "convolutional" if stage != "boxes" else "yolo",
        line=5 + 10 * layer,
        stage=stage,
        tensor=f"backbone.{layer}.{stage}_out" if shown else "",
        match="by order and shape" if shown else "",
        certain=True,
        free=None if free is None else errors(free),
        alone=None if alone is None else errors(alone),
        noise=budget / 8,
        budget=budget,
        bad=over,
        multiple=(alone if alone is not None else free or 0.0) / (budget / 8),
    )
    return replace(made, **others)


EPSILON = Cause(
    kind="batchnorm.epsilon",
    words="batchnorm normalizes with epsilon 0.001 inside the root, Darknet with 1e-05",
    fix="BatchNorm2d(channels, eps=1e-5)",
    evidence="layer 1 [convolutional] differs by 31400 times the noise; with that applied 1.3 times is left",
    before=31_400.0,
    after=1.3,
    layers=(1, 3, 4, 5, 9),
    values={"epsilon": 0.0010003, "side": "inside"},
)
SLOPE = Cause(
    kind="activation.slope",
    words="leaky has slope 0.01, Darknet 0.1",
    fix="LeakyReLU(0.1)",
    evidence="layer 6 [convolutional] differs by 9120 times the noise; with that applied 1.0 times is left",
    before=9_120.0,
    after=1.0,
    layers=(6,),
    values={"slope": 0.01},
    alternatives=("a PReLU of one weight",),
)


def closeup(at: int, *, channels: int = 24, side: int = 20) -> Closeup:
    generator = np.random.default_rng(5)
    ours = generator.normal(0, 1, 2000).astype(np.float32)
    channel = generator.gamma(1.2, 0.004, (channels, 1))
    error = channel * np.abs(generator.normal(0, 1, (channels, side * side)))
    return Closeup(at, error.astype(np.float32), 1, 1, (channels, side, side), ours, (ours * 0.97).astype(np.float32))


def clean() -> Comparison:
    rows = (row(-1, "input", 0.0, None), *(row(n, "post", 3e-7 * (n + 1), 2e-7) for n in range(6)))
    verdict = "clean: 7 values of port.onnx agree with tiny-yolo within rounding, the largest difference is 0.1 of its budget"
    return Comparison(
        "tiny-yolo", "alexeyab-cpu", "recorded", "port.onnx in onnxruntime 1.27.0", verdict, (), rows, (), None, (), True
    )


def caused() -> Comparison:
    """Two causes; the first one in five batchnorms."""
    rows = [row(-1, "input", 0.0, None)]
    free = 4e-7
    for layer in range(11):
        rows.append(row(layer, "sums", free * 1.1, 3e-7))
        if layer in EPSILON.layers:
            free = max(free * 3, 1.1e-2)
            rows.append(row(layer, "normal", free, 1.1e-2 / (layer + 1), cause=0))
        if layer == 6:
            free *= 1.6
            rows.append(row(layer, "post", free, 8.1e-2, cause=1))
        else:
            rows.append(row(layer, "post", free * 0.9, 0.0 if layer == 7 else 2.4e-7))
    rows.append(row(11, "boxes", 0.31, 1.2e-6, budget=9e-6))
    return Comparison(
        name="tiny-yolo",
        profile="alexeyab-cpu",
        evidence_of_profile="recorded",
        source="port.onnx in onnxruntime 1.27.0",
        verdict=f"layer 1 [convolutional] (line 15) and 4 more: {EPSILON.words}: {EPSILON.evidence}; fix: {EPSILON.fix}",
        causes=(EPSILON, SLOPE),
        rows=tuple(rows),
        unmatched=("onnx::Reshape_412", "onnx::Transpose_413"),
        closeup=closeup(next(n for n, found in enumerate(rows) if found.bad)),
        notes=("the picture was decoded by another JPEG decoder: at most 2 levels apart, mean 0.00, not a fault",),
        clean=False,
    )


def unknown() -> Comparison:
    rows = (
        row(-1, "input", 0.0, None),
        row(0, "post", 1e-7, 1e-7),
        row(1, "post", 0.2, 0.2),
        row(2, "post", None, None),
        row(3, "post", 0.3, 1e-7),
    )
    verdict = "unknown, first at layer 1 [convolutional]: 0.2 of the range on equal input, 100,000 times the budget"
    return Comparison("tiny-yolo", "hank-ai-cpu-avx", "source", "a callable", verdict, (), rows, (), closeup(2), (), False)


def without_numbers() -> Comparison:
    """The other side has a NaN from layer 1 on."""
    lost = errors(math.inf, p99=math.nan, cosine=math.nan, sqnr=-math.inf, flips=0, nan=(0, 2, 5, 7))
    rows = (
        row(0, "post", 1e-7, 1e-7),
        replace(row(1, "post", 0.0, 0.0), free=lost, alone=lost, bad=True, multiple=math.inf),
        replace(row(2, "post", 0.0, 0.0), free=lost, alone=None, budget=math.inf, noise=math.nan, bad=True, multiple=math.nan),
    )
    look = closeup(1)
    error, theirs = look.error.copy(), look.theirs.copy()
    error[2, 107] = error[3] = np.nan
    error[4] = np.inf
    theirs[::3] = np.nan
    verdict = "unknown, first at layer 1 [convolutional]: theirs has a NaN in channel 2 where ours has 0.31"
    looked = replace(look, error=error, theirs=theirs)
    return Comparison("tiny-yolo", "torch", "run", "port.pt in torch 2.13.0", verdict, (), rows, (), looked, (), False)


def hostile() -> Comparison:
    """Every text that comes from a file or another program is an attack."""
    plain = caused()
    rows = tuple(replace(found, tensor=HOSTILE, match=HOSTILE) for found in plain.rows)
    cause = replace(EPSILON, words=HOSTILE, fix=HOSTILE, evidence=HOSTILE, values={HOSTILE: HOSTILE}, alternatives=(HOSTILE,))
    texts = dict.fromkeys(("name", "profile", "evidence_of_profile", "source", "verdict"), HOSTILE)
    return replace(plain, rows=rows, causes=(cause, cause), notes=(HOSTILE,), unmatched=(HOSTILE,), **texts)


def long(count: int = 300) -> Comparison:
    generator = np.random.default_rng(3)
    free = 3e-7 * np.exp(np.cumsum(generator.normal(0.02, 0.15, count)))
    free[180:] = np.maximum(free[180:], 0.04 * np.exp(generator.normal(0, 0.4, count - 180)))
    rows = [
        row(n // 3, ("sums", "normal", "post")[n % 3], free[n], 0.05 if n == 180 else 3e-7 * generator.random())
        for n in range(count)
    ]
    verdict = "unknown, first at layer 60 [convolutional]: 0.05 of the range on equal input, 25,000 times the budget"
    look = closeup(180, channels=200, side=19)
    source = "yolov4.onnx in onnxruntime 1.27.0"
    return Comparison("yolov4", "alexeyab-cpu", "recorded", source, verdict, (), tuple(rows), (), look, (), False)


ALL = {made.__name__: made for made in (clean, caused, unknown, without_numbers, hostile, long)}
