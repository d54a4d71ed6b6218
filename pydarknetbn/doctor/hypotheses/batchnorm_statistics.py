"""Other means and variances: the batch's own, none loaded, one update behind or ahead, or over another count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ..situation import Hypothesis, Place, Trial
from .batchnorm_pass import Arrays, Wide, with_arrays, with_statistics
from .fitting import as_well, recover, short, snap

__all__ = ["batch_statistics", "bessel", "rolling_not_loaded", "stale"]

_SHARES = tuple(np.geomspace(0.001, 0.9, 7))
_COMMON_SHARES = (0.01, 0.03, 0.05, 0.1)
_COUNTS = tuple(np.geomspace(2, 1e6, 9))

_EVAL: Mapping[str, str] = MappingProxyType(
    {
        "torch": "model.eval() before the forward",
        "keras": "call the model with training=False",
        "onnx": "export in evaluation mode: BatchNormalization with training_mode=0",
        "": "normalize with the file's rolling arrays at inference",
    }
)
_LOAD: Mapping[str, str] = MappingProxyType(
    {
        "torch": "copy rolling_mean and rolling_variance into running_mean and running_var; load_state_dict(strict=True) tells",
        "keras": "set moving_mean and moving_variance, the last two of layer.set_weights([gamma, beta, mean, variance])",
        "onnx": "give rolling_mean and rolling_variance as the inputs input_mean and input_var of BatchNormalization",
        "": "load rolling_mean and rolling_variance",
    }
)
_RELOAD: Mapping[str, str] = MappingProxyType(
    {
        "torch": "model.eval() before any forward, then load running_mean and running_var from the file again",
        "keras": "trainable=False or training=False before any call, then set moving_mean and moving_variance again",
        "": "load rolling_mean and rolling_variance from the same file, and update neither",
    }
)
_AS_STORED: Mapping[str, str] = MappingProxyType(
    {
        "torch": "running_var = rolling_variance, as it is in the file",
        "keras": "moving_variance = rolling_variance, as it is in the file",
        "": "rolling_variance as it is in the file, without a factor",
    }
)


def batch_statistics(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The batch's own mean and variance, this over n or n - 1."""

    def own(old: Wide, new: Wide) -> Wide:
        return new

    count = place.batch.size // place.step.shape.c
    for sample, name in ((False, "n"), (True, "n-1")):
        run = with_statistics(own, sample=sample)
        words = f"batchnorm normalizes with the batch's own mean and variance (over {name}, n = {count}), Darknet with the file's"
        values: dict[str, float | int | str] = {"denominator": name, "n": count}
        yield Hypothesis("batchnorm.batch_statistics", words, {"batchnorm": run}, _EVAL, values)


def rolling_not_loaded(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """A mean of 0, a variance of 1 or 0, or both."""
    for mean, variance in ((0, 1), (0, 0), (None, 1), (None, 0), (0, None)):

        def change(a: Arrays, mean: float | None = mean, variance: float | None = variance) -> Arrays:
            zeros = np.zeros_like(a.rolling_mean)
            means = a.rolling_mean if mean is None else zeros + np.float32(mean)
            variances = a.rolling_variance if variance is None else zeros + np.float32(variance)
            return replace(a, rolling_mean=means, rolling_variance=variances)

        given = {"rolling_mean": mean, "rolling_variance": variance}
        values: dict[str, float | int | str] = {name: value for name, value in given.items() if value is not None}
        told = " and ".join(f"a {name} of {value}" for name, value in values.items())
        words = f"batchnorm normalizes with {told}, as before any loading, Darknet with the file's"
        yield Hypothesis("batchnorm.rolling_not_loaded", words, {"batchnorm": with_arrays(change)}, _LOAD, values)


# --- one update behind or ahead -------------------------------------------------------------------------------------------------


def stale(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Rolling arrays before or after one update with this batch, of a share that is fitted."""
    own = place.runner.rule_of(place.step).rolling_add
    shares = [*_COMMON_SHARES, *([own] if own < 1 and own not in _COMMON_SHARES else [])]
    for side in ("ahead", "behind"):
        by_kind: list[Hypothesis] = []
        near: Sequence[float] = _SHARES
        for sample in (True, False):

            def make(share: float, side: str = side, sample: bool = sample) -> Hypothesis:
                return _updated(share, side, sample)

            share = recover(make, trial, near)
            near = share / 1.1, share, min(share * 1.1, _SHARES[-1])
            by_kind.append(snap(make, trial, make(share), shares))
        yield min(by_kind, key=trial)


def _updated(share: float, side: str, sample: bool) -> Hypothesis:
    def moved(old: Wide, new: Wide) -> Wide:
        return (1 - share) * old + share * new if side == "ahead" else (old - share * new) / (1 - share)

    meaning = f"{short(1 - share)} of the old and {short(share)} of this batch's, its variance over {'n-1' if sample else 'n'}"
    words = f"batchnorm's rolling arrays are one update {side} of the file's, each update {meaning}"
    values = {"share": share, "updates": 1 if side == "ahead" else -1}
    return Hypothesis("batchnorm.stale", words, {"batchnorm": with_statistics(moved, sample=sample)}, _RELOAD, values, parameters=1)


# --- over another count ---------------------------------------------------------------------------------------------------------


def bessel(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """A rolling variance times n/(n-1) or (n-1)/n, of a whole n that is fitted; another factor is no such fault."""
    batch, _, h, w = place.batch.shape
    own = [count for count in (batch * h * w, h * w) if count > 1]
    for inverse in (False, True):

        def make(count: float, inverse: bool = inverse) -> Hypothesis:
            return _counted(count, inverse)

        found = recover(make, trial, _COUNTS)
        whole = make(max(2.0, round(found)))
        if as_well(trial(whole), trial(make(found))):
            yield snap(make, trial, whole, own)


def _counted(count: float, inverse: bool) -> Hypothesis:
    factor = (count - 1) / count if inverse else count / (count - 1)

    def change(a: Arrays) -> Arrays:
        return replace(a, rolling_variance=(a.rolling_variance.astype(np.float64) * factor).astype(np.float32))

    formula = "(n-1)/n" if inverse else "n/(n-1)"
    words = f"batchnorm's rolling variance is {factor:.6g} times the file's, {formula} with n = {count:g}"
    values = {"n": round(count, 3), "factor": factor}
    return Hypothesis("batchnorm.bessel", words, {"batchnorm": with_arrays(change)}, _AS_STORED, values, parameters=1)
