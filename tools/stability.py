"""What a batchnorm of each profile makes of channels that are hard on it: `python tools/stability.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn
from pydarknetbn.dialect import CONVENTIONS_OF_STATISTICS, DARKNET_STATISTICS, profile_named, profiles

__all__ = ["COLUMNS", "behavior"]

COLUMNS = (
    "gain at variance 0",
    "at 1e-8",
    "1.2345678 everywhere: training",
    "then inference",
    "variance of 10,001 ± 0.01 over the true one",
)
_CONSTANT = np.full((4, 1, 5, 5), 1.2345678, np.float32)


def behavior(profile: str) -> tuple[str, ...]:
    """A cell for each of the columns, measured: scales are 1, biases 0."""
    return (
        f"{_gain(profile, 0):.6g}",
        f"{_gain(profile, 1e-8):.6g}",
        *(f"{value:.2g}" for value in _of_a_constant(profile)),
        f"{_far(profile):.2g}",
    )


def _gain(profile: str, variance: float) -> float:
    layer = dn.BatchNorm(1, profile=profile)
    layer.rolling_mean[...], layer.rolling_variance[...] = 0, variance
    return float(layer.forward(np.ones((1, 1), np.float32), train=False).item())


def _of_a_constant(profile: str) -> tuple[float, float]:
    """What a step of training gives from the framework's or fork's start, and an inference after it."""
    layer = dn.BatchNorm(1, profile=profile)
    layer.rolling_variance[...] = CONVENTIONS_OF_STATISTICS.get(profile, DARKNET_STATISTICS).initial_variance
    trained, after = (layer.forward(_CONSTANT, train=train)[0, 0, 0, 0] for train in (True, False))
    return float(trained), float(after)


def _far(profile: str) -> float:
    """16,384 values: their sum passes 2^24, from where each addition is rounded to a whole even number, or a coarser one."""
    draws: NDArray[np.float64] = np.random.default_rng(0).normal(size=(16, 1, 32, 32))
    x = (10001 + 1e-2 * draws).astype(np.float32)
    layer = dn.BatchNorm(1, profile=profile)
    layer.forward(x, train=True)
    unbiased = profile_named(profile).rule("batchnorm").normalize_variance == "n-1"
    return float(layer.variance[0] / np.var(x, dtype=np.float64, ddof=int(unbiased)))


if __name__ == "__main__":
    for each in profiles():
        print(f"{each.name:<16}" + "  ".join(behavior(each.name)))
