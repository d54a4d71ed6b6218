"""How far two values are apart."""

from __future__ import annotations

import math

import numpy as np

from .._native import Array
from .noise import Noise
from .results import Errors

__all__ = ["errors", "multiple", "multiples", "spread"]

_COUNTED = 1 << 16


def spread(reference: Array) -> float:
    """Largest minus smallest value, or their size where all are equal; 1 where there is none."""
    finite = reference[np.isfinite(reference)]
    if not finite.size:
        return 1.0
    return float(np.ptp(finite)) or float(np.abs(finite).max()) or 1.0


def _apart(ours: Array, theirs: Array) -> Array:
    """Absolute differences; infinite where one has a number and the other none, 0 where both have none."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours - theirs)
    strange = ~np.isfinite(apart)
    if strange.any():
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        apart = np.where(strange, np.where(same, 0, np.inf), apart)
    return np.asarray(apart, np.float32)


def errors(ours: Array, theirs: Array) -> Errors:
    """The differences of two arrays (batch, c, h, w); ours is the reference."""
    apart = _apart(ours, theirs)
    size = spread(ours)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    whole = bool(finite.all())
    a, b = (ours, theirs) if whole else (ours[finite], theirs[finite])
    a64, b64 = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    signal, other, noise = a64 @ a64, b64 @ b64, float(np.square(a64 - b64).sum())
    missing: list[list[int]] = [] if whole else np.argwhere(np.isnan(theirs))[:1].tolist()
    return Errors(
        largest=float(apart.max(initial=0)) / size,
        p99=_p99(apart) / size,
        cosine=float(a64 @ b64 / math.sqrt(signal * other)) if signal and other else float(signal == other),
        sqnr=10 * math.log10(signal / noise) if signal and noise else (math.inf if not noise else -math.inf),
        flips=int(np.count_nonzero(np.signbit(a) != np.signbit(b)) - _zero_flips(a, b)),
        channel=int(apart.max(axis=(0, 2, 3)).argmax()),
        nan=tuple(missing[0]) if missing else None,
    )


def _p99(apart: Array) -> float:
    """The 99th percentile, of evenly spaced ones where there are many."""
    some = apart.ravel()[:: max(1, apart.size // _COUNTED)]
    at = int(0.99 * (some.size - 1))
    return float(np.partition(some, at)[at])


def _zero_flips(a: Array, b: Array) -> int:
    return int(np.count_nonzero((np.signbit(a) != np.signbit(b)) & ((a == 0) | (b == 0))))


def multiples(ours: Array, theirs: Array, noise: Noise) -> tuple[float, float]:
    """Root mean square and largest of the differences as multiples of the noise of their channel."""
    apart = _apart(ours, theirs) / noise[:, None, None]
    return float(np.sqrt(np.square(np.minimum(apart, 1e30)).mean())), float(apart.max())


def multiple(ours: Array, theirs: Array, noise: Noise) -> float:
    """The largest difference as a multiple of the noise of its channel."""
    return float((_apart(ours, theirs).max(axis=(0, 2, 3)) / noise).max())
