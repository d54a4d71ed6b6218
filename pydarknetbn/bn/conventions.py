"""Batchnorm between conventions: epsilon and its side, which variance is kept, what momentum means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._native import Array
from ..dialect import CONVENTIONS_OF_STATISTICS, DARKNET_STATISTICS, BatchNormRule, EpsilonRule, Statistics, profile_named
from ..errors import NumericsError, ShapeError

__all__ = ["BatchNormArrays", "batchnorm", "through_epsilon"]

Wide = NDArray[np.float64]
_NAMES = ("scales", "biases", "rolling_mean", "rolling_variance")


@dataclass(frozen=True, slots=True)
class BatchNormArrays:
    """A batchnorm in another convention.

    Args:
        scales, biases, rolling_mean, rolling_variance: (c), float32.
        epsilon: of the target, and its side of the root.
        momentum: the source's, as the target calls it: the weight of the new value, of the old one, or (keep, add); None where
            the target cannot say it.
        error: (c), how far scale / root is from the source's, relatively, by the rounding to float32.
        notes: sentences on what was changed, and on what is not exact.
    """

    scales: Array
    biases: Array
    rolling_mean: Array
    rolling_variance: Array
    epsilon: EpsilonRule
    momentum: float | tuple[float, float] | None
    error: Wide
    notes: tuple[str, ...]


def batchnorm(
    arrays: Mapping[str, Array],
    *,
    source: str,
    target: str,
    n: int | Sequence[int] | None = None,
    steps: int | None = None,
    initial: float | None = None,
) -> BatchNormArrays:
    """Converts the arrays of a batchnorm so that its inference gives the same.

    The rolling variance takes up the difference of the epsilons where that leaves it 0 or more, elsewhere the scales do. Given n,
    it is first corrected where the two keep different ones, over n or n - 1: then it is what the target would have kept.

    Args:
        arrays: "scales", "biases", "rolling_mean", "rolling_variance", of (c) each; a layer's `params` will do. Without scales or
            biases they are 1 and 0.
        source: the profile that they were made under, see `profiles`.
        target: the one that will read them.
        n: values for each channel of a training batch, batch * h * w; several where batches were not equal. Where the kept
            variances differ, the rolling one is corrected with it; None leaves it, which keeps the inference as it was.
        steps: of training; None: so many that nothing of the initial variance is left.
        initial: variance that the rolling one started from; None takes the source's own.

    Raises:
        NumericsError: a variance has no root under the source's formula, or the target's is 0 there.
        ShapeError: arrays of other shapes.
        ValueError: n is less than 2, steps are less than 0, or no such profile.
    """
    rules = (profile_named(source).rule("convolutional"), profile_named(target).rule("convolutional"))
    ours, theirs = (CONVENTIONS_OF_STATISTICS.get(name, DARKNET_STATISTICS) for name in (source, target))
    scales, biases, mean, variance = _checked(arrays)
    notes: list[str] = []
    start = ours.initial_variance if initial is None else initial
    kept = _kept_variance(variance, rules, n, start * _share_left(rules[0], steps), notes)
    if np.any(kept != variance) and steps is None and start:
        notes.append(
            f"the initial variance of {start:g} is taken to have left the rolling one; pass steps= where training was short"
        )
    gain = scales / _checked_root(variance, rules[0].forward)
    # The gain that the target has to give comes from the corrected variance: it is another estimate of the same spread.
    gain = np.where(kept == variance, gain, scales / _checked_root(kept, rules[0].forward))
    new_variance, new_scales = through_epsilon(kept, scales, (rules[0].forward, rules[1].forward), notes)
    rounded = (new_scales.astype(np.float32), new_variance.astype(np.float32))
    got = rounded[0] / _checked_root(rounded[1].astype(np.float64), rules[1].forward)
    error = np.abs(np.divide(got, gain, out=np.ones_like(gain), where=gain != 0) - 1)
    return BatchNormArrays(
        scales=rounded[0],
        biases=biases.astype(np.float32),
        rolling_mean=mean.astype(np.float32),
        rolling_variance=rounded[1],
        epsilon=rules[1].forward,
        momentum=_momentum(rules[0], theirs, notes),
        error=error,
        notes=tuple(notes),
    )


def _checked(arrays: Mapping[str, Array]) -> tuple[Wide, Wide, Wide, Wide]:
    missing = [name for name in _NAMES[2:] if name not in arrays]
    if missing:
        raise ShapeError(f"expected arrays {', '.join(_NAMES)}, got no {missing[0]}")
    channels = np.asarray(arrays["rolling_variance"]).shape
    defaults = {"scales": np.ones(channels), "biases": np.zeros(channels)}
    found = [np.asarray(arrays.get(name, defaults.get(name)), np.float64) for name in _NAMES]
    for name, array in zip(_NAMES, found, strict=True):
        if array.ndim != 1 or array.shape != channels:
            raise ShapeError(f"expected {name} of shape {channels or '(c)'}, one value for each channel, got {array.shape}")
    return found[0], found[1], found[2], found[3]


# --- which variance is kept -----------------------------------------------------------------------------------------------------


def _share_left(rule: BatchNormRule, steps: int | None) -> float:
    if steps is None:
        return 0.0
    if steps < 0:
        raise ValueError(f"expected steps to be 0 or more, got {steps}")
    return float(rule.rolling_keep**steps)


def _kept_variance(
    variance: Wide, rules: tuple[BatchNormRule, BatchNormRule], n: int | Sequence[int] | None, left: float, notes: list[str]
) -> Wide:
    ours, theirs = rules[0].keep_variance, rules[1].keep_variance
    if ours == theirs:
        notes.append(f"both keep the variance over {ours}: it needs no correction")
        return variance
    counts = [n] if isinstance(n, int) else list(n or ())
    if not counts:
        what = f"the source keeps the variance over {ours} and the target over {theirs}"
        notes.append(f"{what}: left as it is, which keeps the inference; pass n to correct it for training")
        return variance
    if min(counts) < 2:
        raise ValueError(f"expected n to be 2 or more, the values for each channel of a batch, got {min(counts)}")
    largest, smallest = max(counts), min(counts)
    factors = [count / (count - 1) if ours == "n" else (count - 1) / count for count in (largest, smallest)]
    notes.append(f"the rolling variance is over {theirs} now, with {largest} values in each channel of a batch")
    if smallest != largest:
        off = abs(factors[1] / factors[0] - 1)
        notes.append(
            f"not exact: a batch of {smallest} values was corrected as one of {largest}, which is off by at most {off:.2%}"
        )
    return (variance - left) * factors[0] + left


# --- epsilon --------------------------------------------------------------------------------------------------------------------


def _root(variance: Wide, epsilon: EpsilonRule) -> Wide:
    with np.errstate(invalid="ignore"):
        if epsilon.side == "outside":
            return np.asarray(np.sqrt(variance) + epsilon.value)
        return np.asarray(np.sqrt(variance + epsilon.value))


def _checked_root(variance: Wide, epsilon: EpsilonRule) -> Wide:
    root = _root(variance, epsilon)
    bad = np.flatnonzero(~(root > 0))
    if bad.size:
        message = f"channel {bad[0]} has rolling_variance {variance[bad[0]]:g}, which has no root over 0"
        raise NumericsError(f"{message} with an epsilon of {epsilon.value:g} {epsilon.side} it")
    return root


def through_epsilon(variance: Wide, scales: Wide, epsilons: tuple[EpsilonRule, EpsilonRule], notes: list[str]) -> tuple[Wide, Wide]:
    """Variance and scales under the target's root: the variance takes up the difference where it stays 0 or more.

    Args:
        variance: (c), under the first of the epsilons.
        scales: (c).
        epsilons: the source's and the target's.
        notes: takes up a sentence on what was changed.
    """
    ours, theirs = epsilons
    if (ours.value, ours.side) == (theirs.value, theirs.side):
        return variance, scales
    root = _checked_root(variance, ours)
    inside = theirs.side == "inside"
    able = root * root >= theirs.value if inside else root >= theirs.value
    moved = root * root - theirs.value if inside else (root - theirs.value) ** 2
    new_variance = np.where(able, moved, np.maximum(variance, 0.0))
    new_scales = np.where(able, scales, scales * _checked_root(new_variance, theirs) / root)
    where = f"{int(able.sum())} channels in their variance, {int((~able).sum())} in their scale"
    notes.append(f"epsilon {ours.value:g} {ours.side} the root became {theirs.value:g} {theirs.side} it: {where}")
    return new_variance, new_scales


# --- momentum -------------------------------------------------------------------------------------------------------------------


def _momentum(rule: BatchNormRule, theirs: Statistics, notes: list[str]) -> float | tuple[float, float] | None:
    if theirs.momentum == "factors":
        return rule.rolling_keep, rule.rolling_add
    if not np.isclose(rule.rolling_keep + rule.rolling_add, 1):
        notes.append(
            f"rolling factors {rule.rolling_keep:g} and {rule.rolling_add:g} do not add up to 1: one momentum cannot say them"
        )
        return None
    return rule.rolling_add if theirs.momentum == "new" else rule.rolling_keep
