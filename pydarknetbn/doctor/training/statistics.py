"""Judges what a port's batchnorm normalises with, and what it keeps of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...dialect import COMMON_EPSILONS, BatchNormRule, EpsilonRule
from ..noise import FACTOR
from .findings import Finding, Quantity, multiple_of, rounding
from .formulas import Doubles, Moments, moments, normalize, root, rows_of
from .pairing import Pair

__all__ = ["Forward", "judge_output", "judge_rolling"]

_NEAR = 0.02  # a recovered epsilon that is so near to a common one, relatively, is that one


@dataclass(frozen=True, slots=True)
class Forward:
    """What a batchnorm's forward was found to be.

    Args:
        rule: whose epsilon and variance it took.
        x: (c, n).
        batch: its moments.
        scales, biases: before the step.
        mean, variance: what it normalised with.
        constant: these are no function of x.
        output: how its output was judged.
    """

    rule: BatchNormRule
    x: Doubles
    batch: Moments
    scales: Doubles
    biases: Doubles
    mean: Doubles
    variance: Doubles
    constant: bool
    output: Quantity

    def predicted(self) -> Doubles:
        """The output, in double."""
        x_norm = normalize(self.x, self.mean, self.variance, self.rule.forward)
        return x_norm * self.scales[:, None] + self.biases[:, None]


def _wide(array: object, size: int, default: float) -> Doubles:
    return np.full(size, default) if array is None else np.asarray(array, np.float64).reshape(-1)


def judge_output(rule: BatchNormRule, pair: Pair) -> Forward:
    """The forward: with the batch's statistics as the rule says, or otherwise."""
    assert pair.module.x is not None
    assert pair.module.output is not None
    x, theirs = rows_of(pair.module.x), rows_of(pair.module.output)
    batch, size = moments(x), len(x)
    scales, biases = _wide(pair.before("scales"), size, 1), _wide(pair.before("biases"), size, 0)
    none = Quantity("output", theirs, theirs, 0.0)
    plain = Forward(rule, x, batch, scales, biases, batch.mean, batch.variance(rule.normalize_variance), False, none)
    first = _multiple(plain, theirs)
    quantity = Quantity("output", plain.predicted(), theirs, first)
    if not first > FACTOR:
        return replace(plain, output=quantity)
    for finding, other in _forwards(plain, pair, theirs):
        left = _multiple(other, theirs)
        if left <= FACTOR:
            return replace(other, output=replace(quantity, left=left, finding=finding))
    return replace(plain, output=quantity)


def _multiple(forward: Forward, theirs: Doubles) -> float:
    divisor = root(forward.variance, forward.rule.forward)
    reach = (np.abs(forward.x).max(axis=1) + np.abs(forward.mean)) / divisor * np.abs(forward.scales)
    noise = rounding(reach, np.abs(forward.biases))[:, None]
    return multiple_of(forward.predicted(), theirs, noise)


def _forwards(plain: Forward, pair: Pair, theirs: Doubles) -> Iterator[tuple[Finding, Forward]]:
    kept = plain.rule.normalize_variance
    other = "n" if kept == "n-1" else "n-1"
    words = f"the port normalizes with the variance over {other}, Darknet's program with that over {kept}"
    fix = f"take torch.var_mean(x, ..., correction={int(kept == 'n-1')}) and normalize with it"
    bessel = Finding("batchnorm.bessel", words, fix, {"denominator": other})
    over_other = replace(plain, rule=_normalizing_over(plain.rule, other), variance=plain.batch.variance(other))
    yield bessel, over_other
    for when, stale in (("before", False), ("after", True)):
        mean, variance = (getattr(pair, when)(name) for name in ("rolling_mean", "rolling_variance"))
        if mean is not None and variance is not None:
            fixed = replace(plain, mean=mean.astype(np.float64), variance=variance.astype(np.float64), constant=True)
            yield (_STALE if stale else _EVAL), fixed
    yield from _epsilons(plain, theirs)
    for finding, both in _epsilons(over_other, theirs):
        said = f"{finding.words}; and it normalizes with the variance over {other}, Darknet's program with that over {kept}"
        yield replace(finding, words=said, fix=f"{finding.fix}; and {fix}", values={**finding.values, "denominator": other}), both


def _normalizing_over(rule: BatchNormRule, denominator: str) -> BatchNormRule:
    return replace(rule, normalize_variance="n" if denominator == "n" else "n-1")


_EVAL = Finding(
    "training.eval_mode",
    "the port's batchnorm normalizes with its rolling arrays while it trains, Darknet's with the statistics of the batch",
    "call .train() on that batchnorm too",
)
_STALE = Finding(
    "training.stale_statistics",
    "the port normalizes with the rolling arrays after it has moved them, Darknet with the statistics of the batch",
    "normalize with the batch's own mean and variance; move the rolling arrays beside that",
)


def _epsilons(plain: Forward, theirs: Doubles) -> Iterator[tuple[Finding, Forward]]:
    """Another epsilon, from the slope of each channel."""
    away = plain.x - plain.mean[:, None]
    power = np.square(away).sum(axis=1)
    used = (power > 0) & (plain.scales != 0)
    if not used.any():
        return
    slope = ((theirs - plain.biases[:, None]) * away).sum(axis=1)[used] / power[used]
    divisor = plain.scales[used] / np.where(slope == 0, np.nan, slope)
    value = float(np.nanmedian(np.square(divisor) - plain.variance[used]))
    value = next((known for known in COMMON_EPSILONS if abs(known - value) <= _NEAR * known), value)
    if not value > 0:
        return
    found = EpsilonRule(value, "inside")
    words = f"the port's epsilon is {value:g} under the root, Darknet's {plain.rule.forward}"
    finding = Finding("batchnorm.epsilon", words, f"nn.BatchNorm2d(..., eps={plain.rule.forward.value:g})", {"epsilon": value})
    yield finding, replace(plain, rule=replace(plain.rule, forward=found, direct_term=found, statistic_terms=found))


# --- rolling arrays -------------------------------------------------------------------------------------------------------------


def judge_rolling(rule: BatchNormRule, forward: Forward, pair: Pair, shared: tuple[str, ...]) -> list[Quantity]:
    """What the step made of the rolling arrays.

    Args:
        rule: factors and the variance that is kept.
        forward: whose batch it was.
        pair: layer and module.
        shared: other modules that have the same arrays.
    """
    before = [pair.before(name) for name in ("rolling_mean", "rolling_variance")]
    after = [pair.after(name) for name in ("rolling_mean", "rolling_variance")]
    if any(each is None for each in (*before, *after)):
        return []
    moves = _Moves(rule, forward.batch, *(np.asarray(each, np.float64) for each in (*before, *after)))
    plain = moves.quantities(rule.rolling_keep, rule.rolling_add, rule.keep_variance)
    if not any(each.bad for each in plain):
        return plain
    for finding, keep, add, denominator in moves.candidates(shared):
        with_it = moves.quantities(keep, add, denominator)
        if finding.kind == "training.shared_statistics" or not any(each.bad for each in with_it):
            said = forward.output.finding if finding is _FROZEN and forward.constant else finding
            pairs = zip(plain, with_it, strict=True)
            return [replace(each, left=other.multiple, finding=said if each.bad else None) for each, other in pairs]
    return plain


@dataclass(frozen=True, slots=True)
class _Moves:
    rule: BatchNormRule
    batch: Moments
    mean0: Doubles
    variance0: Doubles
    mean1: Doubles
    variance1: Doubles

    def quantities(self, keep: float, add: float, denominator: str) -> list[Quantity]:
        """How far the rolling arrays are from what these factors make."""
        made = []
        given = (
            ("rolling_mean", self.mean0, self.batch.mean, self.mean1),
            ("rolling_variance", self.variance0, self.batch.variance(denominator), self.variance1),
        )
        for stage, before, new, after in given:
            noise = rounding(np.abs(keep * before), np.abs(add * new), abs(add) * np.sqrt(self.batch.spread))
            ours = keep * before + add * new
            made.append(Quantity(stage, ours, after, multiple_of(ours, after, noise)))
        return made

    def candidates(self, shared: tuple[str, ...]) -> Iterator[tuple[Finding, float, float, str]]:
        rule, kept = self.rule, self.rule.keep_variance
        other = "n" if kept == "n-1" else "n-1"
        if shared:
            words = f"the port's batchnorm has its rolling arrays in common with {', '.join(shared)}; each moves those of the other"
            fix = "copy.deepcopy the module, or give each its own running_mean and running_var"
            yield Finding("training.shared_statistics", words, fix), rule.rolling_keep, rule.rolling_add, kept
        yield _FROZEN, 1.0, 0.0, kept
        words = f"the port keeps the variance over {other}, Darknet's program that over {kept}: their ratio is (n-1)/n"
        biased = Finding("training.running_variance", words, _of_denominator(kept, self.batch.n), {"denominator": other})
        yield biased, rule.rolling_keep, rule.rolling_add, other
        for denominator in (kept, other):
            keep, add = self._factors(denominator)
            if np.isfinite(keep) and np.isfinite(add):
                yield self._momentum(keep, add, denominator), keep, add, denominator

    def _factors(self, denominator: str) -> tuple[float, float]:
        """Of old and new, by least squares over both arrays."""
        old, new = np.r_[self.mean0, self.variance0], np.r_[self.batch.mean, self.batch.variance(denominator)]
        after = np.r_[self.mean1, self.variance1]
        (keep, add), *_ = np.linalg.lstsq(np.stack([old, new], axis=1), after, rcond=None)
        return _rounded(float(keep)), _rounded(float(add))

    def _momentum(self, keep: float, add: float, denominator: str) -> Finding:
        rule = self.rule
        here = f"{rule.rolling_keep:g} of the old and {rule.rolling_add:g} of the new value"
        words = f"the port's rolling arrays take {keep:g} of the old and {add:g} of the new value, Darknet's {here}"
        if np.isclose(keep, rule.rolling_add) and np.isclose(add, rule.rolling_keep):
            words += ": its momentum is read the other way round"
        if denominator != rule.keep_variance:
            words += f"; and the variance over {denominator}, not over {rule.keep_variance}"
        return Finding(
            "training.momentum", words, f"nn.BatchNorm2d(..., momentum={rule.rolling_add:g})", {"keep": keep, "add": add}
        )


_FROZEN = Finding(
    "training.frozen_statistics",
    "the port's rolling arrays stay as they are while it trains, Darknet's move with each batch",
    "nn.BatchNorm2d(..., track_running_stats=True), and .train() before the step",
)


def _of_denominator(kept: str, n: int) -> str:
    factor = f"{n} / {n - 1}" if kept == "n-1" else f"{n - 1} / {n}"
    return f"multiply the variance that goes into running_var by {factor}, n being batch * height * width"


def _rounded(value: float) -> float:
    """The nearest number of three digits where it is that but for rounding."""
    near = float(f"{value:.3g}")
    return near if abs(near - value) <= 2.0**-13 * abs(near) else value
