"""What hypotheses on a batch normalization are made of: its arrays, the statistics of a batch, and the pass itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ...dialect import EpsilonRule
from ...layers import Layer
from ..arithmetic import normalize
from ..situation import Place, Run

__all__ = ["FILE_ORDER", "Arrays", "Wide", "arrays_of", "epsilon_of", "normal", "statistics", "with_arrays", "with_statistics"]

Wide: TypeAlias = npt.NDArray[np.float64]
"""One number for each channel, in double."""

FILE_ORDER = ("biases", "scales", "rolling_mean", "rolling_variance")


@dataclass(frozen=True, slots=True)
class Arrays:
    """The four arrays, each (c,)."""

    biases: Array
    scales: Array
    rolling_mean: Array
    rolling_variance: Array


def arrays_of(layer: Layer) -> Arrays:
    """A layer's own; a [batchnorm] without biases in the file has zeros."""
    held = layer.params
    return Arrays(*(held.get(name, np.zeros(layer.out_shape.c, np.float32)) for name in FILE_ORDER))


def epsilon_of(place: Place) -> EpsilonRule:
    """The right epsilon."""
    return place.runner.rule_of(place.step).forward


def normal(place: Place, x: Array, arrays: Arrays, epsilon: EpsilonRule | None = None) -> Array:
    """(batch, c, h, w) normalized with those arrays, and with the right epsilon or another."""
    a = arrays
    return normalize(x, a.rolling_mean, a.rolling_variance, a.scales, a.biases, epsilon or epsilon_of(place))


def with_arrays(change: Callable[[Arrays], Arrays | None]) -> Run:
    """A run with other arrays; None from `change` where it does not apply."""

    def run(place: Place) -> Array | None:
        arrays = change(arrays_of(place.layer))
        return None if arrays is None else normal(place, place.inputs[0], arrays)

    return run


def with_statistics(change: Callable[[Wide, Wide], Wide], *, sample: bool) -> Run:
    """A run whose mean and variance are each made of the rolling one and the batch's, both in double."""

    def run(place: Place) -> Array | None:
        found = statistics(place.batch, sample)
        if found is None:
            return None
        arrays = arrays_of(place.layer)
        rolling = (arrays.rolling_mean.astype(np.float64), arrays.rolling_variance.astype(np.float64))
        mean, variance = (change(old, new).astype(np.float32) for old, new in zip(rolling, found, strict=True))
        return normal(place, place.inputs[0], replace(arrays, rolling_mean=mean, rolling_variance=variance))

    return run


def statistics(x: Array, sample: bool) -> tuple[Wide, Wide] | None:
    """Mean and variance of each channel of a batch, in double; over n - 1 for a sample, then None of a single value."""
    wide = x.astype(np.float64)
    count = x.size // x.shape[1]
    if count <= sample:
        return None
    mean = wide.mean(axis=(0, 2, 3))
    squares = np.square(wide - mean[:, None, None]).sum(axis=(0, 2, 3))
    return mean, squares / (count - sample)
