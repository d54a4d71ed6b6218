"""What is told of all values of an array."""

from __future__ import annotations

import numpy as np

from .._native import Array

__all__ = ["channel_means", "moments"]


def moments(value: Array) -> tuple[float, float, float, float]:
    """Mean, standard deviation, smallest and largest of what is finite; zeros where nothing is."""
    finite = value[np.isfinite(value)].astype(np.float64)
    if not finite.size:
        return 0.0, 0.0, 0.0, 0.0
    return float(finite.mean()), float(finite.std()), float(finite.min()), float(finite.max())


def channel_means(value: Array) -> Array:
    """(c) of (batch, c, h, w), in double and rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(value.mean(axis=(0, 2, 3), dtype=np.float64), np.float32)
