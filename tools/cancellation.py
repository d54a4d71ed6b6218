"""How far a variance is off that four ranks make together, by what they send each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn
from pydarknetbn import sync

__all__ = ["CHANNELS", "WAYS", "errors"]

RANKS = (4096, 1, 700, 2048)  # values of each
CHANNELS = ((0, 1), (100, 1), (1000, 0.1), (10_000, 0.1), (3, 0.001))  # mean and deviation
_DRAWS = 5

Values = NDArray[np.floating[Any]]


def _sum(values: Values, kind: type) -> Any:
    """In pairs, and pairs of these: the sum of least error, in the same order on every processor."""
    left = values.astype(kind)
    while len(left) > 1:
        left = np.append(left, kind(0)) if len(left) % 2 else left
        left = left[0::2] + left[1::2]
    return left[0]


def _squares(parts: list[Values], kind: type) -> float:
    """Of the sums of x and of x^2."""
    n = kind(sum(len(part) for part in parts))
    mean = sum((_sum(part, kind) for part in parts), kind(0)) / n
    return float(sum((_sum(part.astype(kind) ** 2, kind) for part in parts), kind(0)) / n - mean * mean)


def _two_passes(part: Values, kind: type) -> tuple[Any, Any]:
    mean = _sum(part, kind) / kind(len(part))
    return mean, _sum((part.astype(kind) - mean) ** 2, kind)


def _merged(moments: list[tuple[Any, Any, Any]], kind: type) -> float:
    """Of n, mean and squared distances, two at a time."""
    n, mean, m2 = moments[0]
    for other, its_mean, its_m2 in moments[1:]:
        apart, both = its_mean - mean, n + other
        mean, m2 = mean + apart * other / both, m2 + its_m2 + apart * apart * n * other / both
        n = both
    return float(m2 / kind(n))


def _chan(parts: list[Values]) -> float:
    kind = np.float32
    return _merged([(kind(len(part)), *_two_passes(part, kind)) for part in parts], kind)


def _inverse_deviations(parts: list[Values]) -> float:
    """Of mean and 1/sqrt(variance + epsilon), as torch.nn.SyncBatchNorm sends them."""
    kind, epsilon, moments = np.float32, np.float32(1e-5), []
    for part in parts:
        n, (mean, m2) = kind(len(part)), _two_passes(part, np.float32)
        root = kind(1) / (kind(1) / np.sqrt(m2 / n + epsilon))
        moments.append((n, mean, (root * root - epsilon) * n))
    return _merged(moments, kind)


class _Listener:
    """The communicator of one rank that notes what a batchnorm sends."""

    rank, size, merges_alone = 0, 1, True

    def __init__(self) -> None:
        self.sent: Any = None

    def allgather(self, values: Any) -> Any:
        self.sent = values.copy()
        return self.sent[None]


def _ours(parts: list[Values]) -> float:
    moments = []
    for part in parts:
        listener, bn = _Listener(), dn.BatchNorm(1, profile="torch", allow_degenerate=True)
        bn.sync(listener)
        bn.forward(part.reshape(-1, 1), train=True)
        moments.append(sync.Moments.of_message(listener.sent))
    return float(sync.merge(moments).variance(unbiased=False)[0])


WAYS: Mapping[str, Any] = {
    "Σx, Σx² in float32": lambda parts: _squares(parts, np.float32),
    "Σx, Σx² in float64": lambda parts: _squares(parts, np.float64),
    "mean, 1/√(variance + ε) in float32": _inverse_deviations,
    "n, mean, M2 in float32": _chan,
    "n, mean, M2 in float64 (ours)": _ours,
}


def errors(mean: float, deviation: float) -> list[float]:
    """The relative error of each way, the median of some draws, against sums that are rounded once."""
    found = []
    for seed in range(_DRAWS):
        rng = np.random.default_rng(seed)
        parts: list[Values] = [rng.normal(mean, deviation, n).astype(np.float32) for n in RANKS]
        values = np.concatenate(parts).astype(np.float64)
        middle = math.fsum(values) / len(values)
        exact = (math.fsum((values - middle) ** 2) - math.fsum(values - middle) ** 2 / len(values)) / len(values)
        found.append([abs(way(parts) - exact) / exact for way in WAYS.values()])
    return [float(each) for each in np.median(found, axis=0)]
