"""What is doubtful about a batchnorm's arrays, channel by channel: of its file alone, and against what pictures give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import Array, CData
from ..dialect import CONVENTIONS
from .batchnorms import BatchNormPlace
from .results import LayerCalibration

__all__ = ["MEANINGS", "LayerFindings", "Statistics", "findings_of"]

FAR_OFF, FAR_APART = 1.0, 10.0
TINY = 1e-3
_FAINT = 1e-3
_ROUNDING = 2.0**-22  # of the mean: deviations below are of the rounding of its floats

Mask = NDArray[np.bool_]

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "invalid": "a rolling mean or variance that is no number, infinite, or a variance below 0",
        "initial": "rolling arrays as they start: no training forward ever moved them",
        "stale": f"the mean is over {FAR_OFF:g} measured deviation off, or the variance over {FAR_APART:g} times too large or low",
        "constant": "the same value at every pixel of every picture; from the file alone: a rolling variance of 0",
        "dead": "a scale of a thousandth of the layer's or less, or behind the activation one value for everything",
        "tiny": f"a rolling variance below {TINY:g}: there the epsilon decides, see the gains (no fault by itself)",
    }
)
"""What each finding says of a channel, the gravest first; the last one is a note."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerFindings:
    """One batchnorm.

    Args:
        layer: its number; of those that share it the first.
        type: of that layer's section.
        rolling_mean, rolling_variance, scales: of the file, (c).
        channels: name of a finding -> channels that it is true of; only those that there are.
        gains: of the channel with the smallest variance, 1 / root under the profile ("profile") and other epsilons.
        measured: against pictures; None without.
    """

    layer: int
    type: str
    rolling_mean: Array
    rolling_variance: Array
    scales: Array
    channels: Mapping[str, tuple[int, ...]]
    gains: Mapping[str, float]
    measured: LayerCalibration | None = None

    @property
    def faults(self) -> dict[str, tuple[int, ...]]:
        """The findings without notes."""
        return {name: found for name, found in self.channels.items() if name != "tiny"}

    @property
    def least(self) -> int:
        """The channel with the smallest variance that is none below 0."""
        return int(np.argmin(np.where(self.rolling_variance >= 0, self.rolling_variance, np.inf)))

    @property
    def rank(self) -> tuple[float, ...]:
        """Worst first: how many channels have a fault, then how far those of the pictures are, or how small a variance is."""
        drift = self.measured.drift if self.measured else np.zeros(1)
        farthest = float(np.max(np.where(np.isnan(drift), np.inf, drift)))
        flawed = {channel for found in self.faults.values() for channel in found}
        tiny = len(self.channels.get("tiny", ()))
        return (-len(flawed) / len(self.scales), -tiny / len(self.scales), -farthest, float(self.rolling_variance[self.least]))

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        made = {"layer": self.layer, "type": self.type, "count": len(self.scales)}
        made |= {"findings": {name: list(found) for name, found in self.channels.items()}}
        made |= {"least_variance": _number(self.rolling_variance.min()), "gains": {n: _number(v) for n, v in self.gains.items()}}
        return made | ({"measured": self.measured.to_json()} if self.measured else {})


@dataclass(frozen=True, slots=True)
class Statistics:
    """All batchnorms of a network.

    Args:
        layers: in order.
        images: that were measured; 0: none.
    """

    layers: tuple[LayerFindings, ...]
    images: int = 0

    @property
    def worst_first(self) -> tuple[LayerFindings, ...]:
        """The layers by what was found of them."""
        return tuple(sorted(self.layers, key=lambda layer: layer.rank))

    @property
    def counts(self) -> dict[str, int]:
        """Channels of all layers, by finding; only those that there are."""
        found = {name: sum(len(layer.channels.get(name, ())) for layer in self.layers) for name in MEANINGS}
        return {name: count for name, count in found.items() if count}

    @property
    def exit_code(self) -> int:
        """1 where a channel has a fault."""
        return int(any(layer.faults for layer in self.layers))

    def to_json(self) -> dict[str, Any]:
        """All of it, for `json.dumps`."""
        layers = [layer.to_json() for layer in self.layers]
        return {"images": self.images, "counts": self.counts, "exit_code": self.exit_code, "layers": layers}


def findings_of(place: BatchNormPlace, measured: LayerCalibration | None, silent: Mask | None) -> LayerFindings:
    """What is found of one batchnorm.

    Args:
        place: which.
        measured: what pictures give.
        silent: channels that put out one value for all of them, (c).
    """
    mean, variance, scales = (place.array(name).copy() for name in ("rolling_mean", "rolling_variance", "scales"))
    masks = dict(_masks(mean, variance, scales, measured, silent))
    channels = {name: tuple(np.flatnonzero(masks[name]).tolist()) for name in MEANINGS if masks[name].any()}
    gains = _gains(place.natives[0], variance) if "tiny" in channels else {}
    return LayerFindings(place.first.index, place.first.type, mean, variance, scales, channels, gains, measured)


def _masks(
    mean: Array, variance: Array, scales: Array, measured: LayerCalibration | None, silent: Mask | None
) -> Iterator[tuple[str, Mask]]:
    invalid = ~(np.isfinite(mean) & np.isfinite(variance) & (variance >= 0))
    initial = np.full(mean.shape, not mean.any() and (not variance.any() or bool((variance == 1).all())))
    faint = np.abs(scales) <= _FAINT * np.median(np.abs(scales))
    constant = variance == 0 if measured is None else _is_constant(measured)
    yield "invalid", invalid
    yield "initial", initial
    yield "constant", constant & ~initial if measured is None else constant
    yield "stale", np.zeros_like(invalid) if measured is None else _is_stale(measured) & ~constant & ~invalid & ~initial
    yield "dead", faint if silent is None else faint | (silent & ~constant)
    yield "tiny", (variance >= 0) & (variance < TINY) & ~initial


def _is_constant(measured: LayerCalibration) -> Mask:
    limit = np.square(measured.mean.astype(np.float64) * _ROUNDING)
    found: Mask = measured.variance.astype(np.float64) <= limit
    return found


def _is_stale(measured: LayerCalibration) -> Mask:
    ratio = measured.variance_ratio
    with np.errstate(invalid="ignore"):
        found: Mask = (measured.mean_drift > FAR_OFF) | (ratio > FAR_APART) | (ratio < 1 / FAR_APART)
    return found


def _gains(native: CData, variance: Array) -> dict[str, float]:
    """What the least variance's channel is multiplied by."""
    least = float(np.min(variance[variance >= 0]))
    own = native.batchnorm_rule.forward
    inside = own.side == _native.enum("side", "inside")
    made = {"profile": _gain(least, own.value, inside)}
    return made | {str(other): _gain(least, other.value, other.side == "inside") for other in CONVENTIONS}


def _gain(variance: float, epsilon: float, inside: bool) -> float:
    root = np.sqrt(variance + epsilon) if inside else np.sqrt(variance) + epsilon
    return float(1 / root) if root else float("inf")


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
