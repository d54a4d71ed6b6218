"""The definitions in float64. Batch normalization takes a rule; no epsilon, factor or profile is written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydarknetbn.dialect import BatchNormRule, EpsilonRule

Doubles = NDArray[np.float64]
_OVER = (0, 2)  # batch and pixels of (batch, c, spatial)


@dataclass(frozen=True)
class Parameters:
    """Of c channels."""

    scales: Doubles
    biases: Doubles
    rolling_mean: Doubles
    rolling_variance: Doubles


@dataclass(frozen=True)
class Forward:
    output: Doubles
    x: Doubles
    x_norm: Doubles
    mean: Doubles
    variance: Doubles
    parameters: Parameters  # with the rolling arrays after it


@dataclass(frozen=True)
class Backward:
    delta: Doubles
    mean_delta: Doubles
    variance_delta: Doubles
    scale_updates: Doubles
    bias_updates: Doubles


def doubles(array: ArrayLike) -> Doubles:
    return np.asarray(array, np.float64)


def root(variance: Doubles, epsilon: EpsilonRule) -> Doubles:
    value = float(np.float32(epsilon.value)) if epsilon.literal == "float" else epsilon.value
    return np.sqrt(variance + value) if epsilon.side == "inside" else np.sqrt(variance) + value


def _spread(channels: Doubles) -> Doubles:
    return channels[None, :, None]


def _per(denominator: str, n: int) -> float:
    return {"n": n, "n-1": n - 1}[denominator]


def forward(rule: BatchNormRule, x: ArrayLike, p: Parameters, *, train: bool) -> Forward:
    """x: (batch, c, spatial). In training the batch's statistics normalise and the rolling arrays move."""
    x = doubles(x)
    mean, variance = p.rolling_mean, p.rolling_variance
    if train:
        n = x.shape[0] * x.shape[2]
        mean = x.sum(_OVER) / n
        squares = ((x - _spread(mean)) ** 2).sum(_OVER)
        variance = squares / _per(rule.normalize_variance, n)
        kept = squares / _per(rule.keep_variance, n)
        p = replace(
            p,
            rolling_mean=p.rolling_mean * rule.rolling_keep + mean * rule.rolling_add,
            rolling_variance=p.rolling_variance * rule.rolling_keep + kept * rule.rolling_add,
        )
    x_norm = (x - _spread(mean)) / _spread(root(variance, rule.forward))
    output = x_norm * _spread(p.scales) + _spread(p.biases)
    return Forward(output, x, x_norm, mean, variance, p)


def backward(rule: BatchNormRule, after: Forward, delta: ArrayLike, *, train: bool) -> Backward:
    """Through a training forward; outside training with the statistics that the rule names."""
    x, p, delta = after.x, after.parameters, doubles(delta)
    n = x.shape[0] * x.shape[2]
    mean, variance = after.mean, after.variance
    if not train and rule.eval_statistics != "batch":
        mean, variance = p.rolling_mean, p.rolling_variance
    scaled = delta * _spread(p.scales)
    statistic_root = root(variance, rule.statistic_terms)
    mean_delta = -scaled.sum(_OVER) / statistic_root
    variance_delta = -(scaled * (x - _spread(mean))).sum(_OVER) / (2 * statistic_root**3)
    direct = scaled / _spread(root(variance, rule.direct_term))
    through_statistics = _spread(variance_delta) * 2 * (x - _spread(mean)) / n + _spread(mean_delta) / n
    constant = not train and rule.eval_statistics == "constant"
    return Backward(
        delta=direct if constant else direct + through_statistics,
        mean_delta=mean_delta,
        variance_delta=variance_delta,
        scale_updates=(delta * after.x_norm).sum(_OVER),
        bias_updates=delta.sum(_OVER) * bool(rule.bias_gradient),
    )


def update(
    parameter: ArrayLike, updates: ArrayLike, *, learning_rate: float, momentum: float, batch: int
) -> tuple[Doubles, Doubles]:
    """The parameter and its updates after one step; decay is the weights' alone."""
    return doubles(parameter) + learning_rate / batch * doubles(updates), momentum * doubles(updates)


def convolution(x: ArrayLike, weights: ArrayLike, options: Mapping[str, int]) -> Doubles:
    """x (batch, c, h, w), weights (n, c/groups, size, size) to (batch, n, out_h, out_w): each output by its definition."""
    x, weights = doubles(x), doubles(weights)
    groups, dilation, size = options.get("groups", 1), options.get("dilation", 1), weights.shape[2]
    step_x, step_y = options.get("stride_x", 1), options.get("stride_y", 1)
    border = options.get("pad", 0) * dilation
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    reach = dilation * (size - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), (2, 3))
    windows = windows[:, :, ::step_y, ::step_x, ::dilation, ::dilation]
    batch, c, out_h, out_w = windows.shape[:4]
    windows = windows.reshape(batch, groups, c // groups, out_h, out_w, size, size)
    grouped = weights.reshape(groups, -1, *weights.shape[1:])
    return np.einsum("bgchwij,gfcij->bgfhw", windows, grouped).reshape(batch, -1, out_h, out_w)
