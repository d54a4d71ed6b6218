"""Moments of a batch, for each channel, and of several batches together.

    n, mean, m2 = sum of (x - mean)^2

Two of them become one by  d = mean_b - mean_a,  mean = mean_a + d n_b / n,  m2 = m2_a + m2_b + d^2 n_a n_b / n  (Chan, Golub and
LeVeque 1979). Sums of x and x^2 would do with one addition, but their difference cancels: with a mean of 10,000 and a deviation of
0.1 nothing of the variance is left in float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._native import Array
from ..errors import NumericsError, ShapeError

__all__ = ["Doubles", "Moments", "local_stats", "merge"]

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the values that a batch has in each channel.

    Args:
        n: how many values each channel has; 0 of an empty batch.
        mean: (c), float64.
        m2: the sum of squared distances from the mean, (c), float64.
    """

    n: int
    mean: Doubles
    m2: Doubles

    def variance(self, *, unbiased: bool) -> Doubles:
        """m2 over n-1, or over n.

        Raises:
            NumericsError: there is no value, or but one for n-1.
        """
        divisor = self.n - 1 if unbiased else self.n
        if divisor < 1:
            over = "n-1" if unbiased else "n"
            raise NumericsError(f"{self.n} values in each channel have no variance over {over} = {divisor}; give a larger batch")
        return self.m2 / divisor

    def message(self) -> Doubles:
        """As one array: n, the means, the m2."""
        return np.concatenate([[float(self.n)], self.mean, self.m2])

    @staticmethod
    def of_message(message: Doubles) -> Moments:
        """The same back."""
        channels = (len(message) - 1) // 2
        return Moments(int(message[0]), message[1 : 1 + channels], message[1 + channels :])


def local_stats(x: Array) -> Moments:
    """Moments of (batch, c, …), in double and two passes; those of an empty batch are 0.

    Raises:
        ShapeError: x has no channels.
    """
    if x.ndim < 2:
        raise ShapeError(f"expected x of shape (batch, c, ...), got {x.shape}")
    values = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1).astype(np.float64)
    n = values.shape[1]
    if n == 0:
        return Moments(0, np.zeros(x.shape[1]), np.zeros(x.shape[1]))
    mean = values.mean(axis=1)
    return Moments(n, mean, np.square(values - mean[:, None]).sum(axis=1))


def merge(parts: Iterable[Moments]) -> Moments:
    """Moments of all values together, merged in the order that is given: the same order gives the same bits.

    Raises:
        ShapeError: of another number of channels, or of nothing.
    """
    total: Moments | None = None
    for part in parts:
        if total is not None and len(part.mean) != len(total.mean):
            raise ShapeError(f"expected moments of {len(total.mean)} channels, got those of {len(part.mean)}")
        if total is None or total.n == 0:
            total = part
        elif part.n:
            total = _both(total, part)
    if total is None:
        raise ShapeError("expected moments to merge, got none")
    return total


def _both(a: Moments, b: Moments) -> Moments:
    n, apart = a.n + b.n, b.mean - a.mean
    return Moments(n, a.mean + apart * (b.n / n), a.m2 + b.m2 + np.square(apart) * (a.n * b.n / n))
