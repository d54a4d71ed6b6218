"""How far a profile's backward of a batchnorm is from the derivative of its own forward: `python tools/gradient_distance.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn
from pydarknetbn.dialect import BatchNormRule, profile_named, profiles

__all__ = ["SHAPES", "derivative", "distance"]

SHAPES = ((4, 1, 1, 1), (2, 1, 5, 5), (1, 1, 52, 52))
"""4, 50 and 2704 values in a channel."""
DRAWS = 101

_OVER = (0, 2, 3)


def derivative(rule: BatchNormRule, x: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """What sum(forward(x) * delta) rises by with each value of x, for scales of 1.

    Args:
        rule: whose forward in training.
        x: (batch, c, h, w).
        delta: of its shape.
    """
    n = x.size // x.shape[1]
    centred = x - x.mean(_OVER, keepdims=True)
    denominator = {"n": n, "n-1": n - 1}[rule.normalize_variance]
    variance = (centred**2).sum(_OVER, keepdims=True) / denominator
    inside = rule.forward.side == "inside"
    inner = np.sqrt(variance + rule.forward.value * inside)
    root = inner if inside else inner + rule.forward.value
    of_variance = -(delta * centred).sum(_OVER, keepdims=True) / root**2 / (2 * inner)
    return (delta - delta.mean(_OVER, keepdims=True)) / root + of_variance * 2 * centred / denominator


def distance(profile: str, shape: tuple[int, int, int, int]) -> float:
    """The largest difference between the two, relative to the largest element: the median over draws of normal numbers."""
    rng = np.random.default_rng(0)
    layer, rule = dn.BatchNorm(shape[1], profile=profile), profile_named(profile).rule("batchnorm")
    found = []
    for _ in range(DRAWS):
        x, delta = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        layer.forward(x, train=True)
        exact = derivative(rule, x.astype(np.float64), delta.astype(np.float64))
        found.append(np.abs(layer.backward(delta) - exact).max() / np.abs(exact).max())
    return float(np.median(found))


if __name__ == "__main__":
    for each in profiles():
        print(f"{each.name:<16}" + "  ".join(f"n={s[0] * s[2] * s[3]}: {distance(each.name, s):.1e}" for s in SHAPES))
