"""Layers whose output has another size on the other side: nothing there can be one of our values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import Array
from .arithmetic import Padding, convolve
from .operations import passes
from .results import Cause, Row
from .running import Runner
from .steps import INPUT, Step
from .trace import Tensor

__all__ = ["missing_row", "padding_cause"]

_CLOSE = 10.0**-4  # of the spread: another order of sums is far below, another padding far above


def missing_row(runner: Runner, theirs: Mapping[int, Array]) -> Row | None:
    """A row for the first head of which the other side shows neither the value nor what it is made of; None where it shows all."""
    heads = runner.net.heads or runner.net.layers[-1:]
    for step in runner.steps:
        layer = runner.layer_of(step)
        shown = step.number in theirs or any(number in theirs for number in step.inputs)
        if layer in heads and step.stage == "post" and not shown:
            return _row(runner, step, "")
    return None


def padding_cause(runner: Runner, x: Array, theirs: Mapping[int, Array], left: Sequence[Tensor]) -> tuple[Row, Cause] | None:
    """The first convolution that gives one of the other side's left values if it is padded otherwise.

    Args:
        runner: of our network.
        x: the other side's input.
        theirs: number of a step -> its value.
        left: its values that are none of ours.
    """
    for step in runner.steps:
        given = _given(runner, step, x, theirs)
        if step.kind != "convolution" or step.number in theirs or given is None:
            continue
        for border, values in _otherwise(runner, step, given):
            for tensor in left:
                if any(_equal(value, tensor.array) for value in values):
                    return _row(runner, step, tensor.name), _cause(runner, step, border, tensor)
    return None


def _given(runner: Runner, step: Step, x: Array, theirs: Mapping[int, Array]) -> Array | None:
    number = step.inputs[0] if step.inputs else INPUT
    while number != INPUT and number not in theirs and passes(runner.layer_of(runner.steps[number])):
        number = runner.steps[number].inputs[0]
    return x if number == INPUT else theirs.get(number)


def _otherwise(runner: Runner, step: Step, given: Array) -> Iterator[tuple[int, list[Array]]]:
    """Another border, and the values of the layer's steps with that."""
    layer = runner.layer_of(step)
    native = layer.native
    assert native is not None
    for border in range(int(native.size * native.dilation) + 1):
        if border == native.pad * native.dilation:
            continue
        sums = convolve(
            given,
            layer.weights,
            stride=(native.stride_y, native.stride_x),
            padding=Padding(border, border, border, border),
            dilation=native.dilation,
            groups=native.groups,
        )
        if sums is not None and sums.shape[1:] != tuple(step.shape):
            yield border, [sums, *_following(runner, step, sums)]


def _following(runner: Runner, step: Step, value: Array) -> Iterator[Array]:
    """What the later steps of a layer make of its sums, as far as they look at single pixels."""
    for later in runner.steps[step.number + 1 :]:
        if later.layer != step.layer or later.kind not in ("batchnorm", "biases", "activation"):
            return
        value = runner.run(later, [value])
        yield value


def _equal(value: Array, other: npt.NDArray[Any]) -> bool:
    if value.shape != other.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.abs(value - other).max() <= _CLOSE * max(float(np.ptp(value)), float(np.finfo(np.float32).tiny)))


def _row(runner: Runner, step: Step, tensor: str) -> Row:
    layer = runner.layer_of(step)
    match = "by content, of another size" if tensor else "no value of this size"
    nothing = (None, None, 0.0, 0.0)
    return Row(layer.index, layer.type, layer.line, step.stage, tensor, match, bool(tensor), *nothing, True, None, math.inf)


def _cause(runner: Runner, step: Step, border: int, tensor: Tensor) -> Cause:
    native = runner.layer_of(step).native
    assert native is not None
    own = int(native.pad * native.dilation)
    sizes = " x ".join(str(side) for side in tensor.array.shape[:1:-1])
    return Cause(
        kind="convolution.padding",
        words=f"the convolution pads {border} on each side and gives {sizes}; Darknet pads {own} and gives {step.shape}",
        fix=f"pad {own} on each side",
        evidence=f"with that on Darknet's side the values of {tensor.name} come out, within rounding",
        before=math.inf,
        after=0.0,
        layers=(step.layer,),
        values={"top": border, "bottom": border, "left": border, "right": border},
    )
