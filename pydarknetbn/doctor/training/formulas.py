"""A training step of a batchnorm in double precision, as a rule says it; no epsilon and no factor stands here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...dialect import BatchNormRule, EpsilonRule

__all__ = ["Doubles", "Moments", "StepGradients", "gradients", "moments", "normalize", "rows_of"]

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Of a batch, for each channel: n values, their mean, and the mean squared distance from it."""

    n: int
    mean: Doubles
    spread: Doubles

    def variance(self, denominator: str) -> Doubles:
        """Over n, or over n-1."""
        if denominator == "n":
            return self.spread
        return self.spread * (self.n / (self.n - 1) if self.n > 1 else np.inf)


@dataclass(frozen=True, slots=True)
class StepGradients:
    """Of minus the loss: with respect to scales, biases and x; `size` of each is what its terms add up to without their signs."""

    scales: Doubles
    biases: Doubles
    x: Doubles
    scales_size: Doubles
    biases_size: Doubles


def rows_of(array: NDArray[np.float32]) -> Doubles:
    """(batch, c, …) as (c, batch * …), in double."""
    flat = array.reshape(len(array), array.shape[1], -1).astype(np.float64)
    return np.ascontiguousarray(flat.transpose(1, 0, 2)).reshape(array.shape[1], -1)


def moments(x: Doubles) -> Moments:
    """Of x (c, n)."""
    mean = x.mean(axis=1)
    return Moments(x.shape[1], mean, np.square(x - mean[:, None]).mean(axis=1))


def root(variance: Doubles, epsilon: EpsilonRule) -> Doubles:
    """The root with its epsilon on the rule's side."""
    if epsilon.side == "inside":
        return np.sqrt(variance + epsilon.value)
    return np.sqrt(variance) + epsilon.value


def normalize(x: Doubles, mean: Doubles, variance: Doubles, epsilon: EpsilonRule) -> Doubles:
    """(x - mean) / root, of x (c, n)."""
    return (x - mean[:, None]) / root(variance, epsilon)[:, None]


def _slope(variance: Doubles, epsilon: EpsilonRule, divisor: Doubles, *, exact: bool) -> Doubles:
    """Minus the derivative of 1/root by the variance: 1/2 root^-3, and where the epsilon stands beside the root another one."""
    if exact and epsilon.side == "outside":
        return 0.5 / (np.square(divisor) * np.sqrt(variance))
    return 0.5 / divisor**3


def gradients(
    rule: BatchNormRule,
    x: Doubles,
    delta: Doubles,
    scales: Doubles,
    mean: Doubles,
    variance: Doubles,
    *,
    constant: bool,
    exact: bool = False,
) -> StepGradients:
    """Backward as the rule says it.

    Args:
        rule: epsilons of the terms.
        x: (c, n).
        delta: of the output, (c, n).
        scales: (c).
        mean: that normalised, (c).
        variance: that normalised, (c).
        constant: mean and variance do not depend on x.
        exact: the derivative of the forward instead, with its epsilon and its denominator.
    """
    x_norm = normalize(x, mean, variance, rule.forward)
    scaled, away, n = delta * scales[:, None], x - mean[:, None], x.shape[1]
    into = scaled / root(variance, rule.forward if exact else rule.direct_term)[:, None]
    if not constant:
        divisor = root(variance, rule.forward if exact else rule.statistic_terms)
        count = n - 1 if exact and rule.normalize_variance == "n-1" else n
        of_mean = -scaled.sum(axis=1) / divisor
        of_variance = -_slope(variance, rule.forward, divisor, exact=exact) * (scaled * away).sum(axis=1)
        into = into + 2 * of_variance[:, None] * away / count + of_mean[:, None] / n
    products = delta * x_norm
    return StepGradients(products.sum(axis=1), delta.sum(axis=1), into, np.abs(products).sum(axis=1), np.abs(delta).sum(axis=1))
