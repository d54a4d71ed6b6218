"""How far rounding alone takes two right programs apart, step by step and channel by channel.

Two programs that add the same products in another order differ by a few roundings of the partial sums. How large these are depends
on the values, so it is measured: the sums are taken once more with the channels from the last to the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .._native import Array
from .arithmetic import Padding, convolve
from .running import Runner
from .steps import Step

__all__ = ["FACTOR", "UNIT", "Noise", "jittered", "noise_of"]

Noise = npt.NDArray[np.float64]
"""(c): the largest absolute difference that rounding makes in each channel."""

UNIT = 2.0**-24
"""What one rounding changes at most, relatively, in float32."""

FACTOR = 8.0
"""A difference of more than that many times the noise is none of rounding."""

_MEASURED = 16  # channels of a kernel from which their order tells something
_SPREAD = 3.0  # the largest of many differences is about that many times their root mean square
_APPROXIMATED = 12.0  # roundings that exp, tanh and what is made of them are off in other libraries
_COPIES = frozenset({"maxpool", "route", "upsample", "reorg", "reorg3d", "dropout", "empty", "cost", "contrastive"})


def noise_of(runner: Runner, step: Step, inputs: Sequence[Array], output: Array, *, unit: float = UNIT) -> Noise:
    """What rounding makes of a step whose inputs are equal.

    Args:
        runner: of the network.
        step: the step.
        inputs: what it is given, each (batch, c, h, w).
        output: what it gives.
        unit: what one rounding changes at most, relatively.
    """
    size = peak(output)
    layer = runner.layer_of(step) if step.layer >= 0 else None
    if step.kind == "convolution" or (step.kind == "connected" and step.stage == "sums"):
        made = _of_sums(runner, step, inputs[0], output, unit)
    elif step.kind == "batchnorm" and layer is not None:
        gain = np.abs(layer.scales.astype(np.float64)) / _root(runner, step)
        biases = layer.biases if "biases" in layer.params else np.zeros(len(gain), np.float32)
        made = 2 * unit * ((peak(inputs[0]) + np.abs(layer.rolling_mean)) * gain + np.abs(biases))
    elif step.kind in ("biases", "shortcut", "scale_channels", "sam"):
        made = 2 * unit * (size + max(float(peak(each).max(initial=0)) for each in inputs))
    elif step.kind in _COPIES:
        made = np.zeros_like(size)
    elif step.kind == "boxes":
        made = 4 * _APPROXIMATED * unit * np.maximum(1, size)
    else:
        made = _APPROXIMATED * unit * np.maximum(1, size)
    return np.asarray(made + unit * size + np.finfo(np.float32).tiny)


def peak(x: Array) -> Noise:
    """The largest absolute value of each channel."""
    return np.asarray(np.abs(np.nan_to_num(x, posinf=0, neginf=0)).max(axis=(0, 2, 3)), np.float64)


def jittered(x: Array, noise: Noise, seed: int) -> Array:
    """The values as another program may round them: each moved at random, some as far as the noise of its channel."""
    moves = np.random.default_rng(seed).standard_normal(x.shape, np.float32)
    return np.asarray(x + moves * (noise / _SPREAD).astype(np.float32)[:, None, None], np.float32)


def _root(runner: Runner, step: Step) -> Noise:
    variance = runner.layer_of(step).rolling_variance.astype(np.float64)
    epsilon = runner.rule_of(step).forward
    with np.errstate(invalid="ignore"):
        root = np.sqrt(variance + epsilon.value) if epsilon.side == "inside" else np.sqrt(variance) + epsilon.value
    return np.asarray(np.where(root > 0, root, 1.0))


def _of_sums(runner: Runner, step: Step, x: Array, sums: Array, unit: float) -> Noise:
    layer = runner.layer_of(step)
    native = layer.native
    assert native is not None
    if step.kind == "connected":
        x, weights = np.ascontiguousarray(x.reshape(len(x), -1, 1, 1)), layer.weights.reshape(*layer.weights.shape[:2], 1, 1)
        border, stride, dilation, groups = 0, (1, 1), 1, 1
    else:
        weights, border, stride = layer.weights, native.pad * native.dilation, (native.stride_y, native.stride_x)
        dilation, groups = native.dilation, native.groups
    padding = Padding(border, border, border, border)
    depth = weights.shape[1]

    def convolved(image: Array, kernel: Array) -> Array:
        made = convolve(image, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
        assert made is not None
        return made

    if depth < _MEASURED or unit != UNIT:
        products = peak(convolved(np.abs(x), np.abs(weights)))
        return np.asarray(unit * products * (1 + math.sqrt(depth) / 4))
    turned = x.reshape(len(x), groups, depth, *x.shape[2:])[:, :, ::-1].reshape(x.shape)
    apart = sums.astype(np.float64) - convolved(np.ascontiguousarray(turned), weights[:, ::-1])
    return np.asarray(_SPREAD * np.sqrt(np.square(apart).mean(axis=(0, 2, 3))))
