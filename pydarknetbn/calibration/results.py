"""What a calibration found and set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._native import Array
from ..sync.moments import Doubles

__all__ = ["Calibration", "LayerCalibration"]

_TOLD = 10  # layers of a summary


@dataclass(frozen=True, slots=True, eq=False)
class LayerCalibration:
    """One batchnorm.

    Args:
        layer: its number; of those that share it the first.
        type: of that layer's section.
        n: values that mean and variance of a channel are of.
        old_mean, old_variance: rolling arrays before, (c).
        mean, variance: as they were set, (c).
    """

    layer: int
    type: str
    n: int
    old_mean: Array
    old_variance: Array
    mean: Array
    variance: Array

    @property
    def mean_drift(self) -> Doubles:
        """How far the old mean is from the new one, in new standard deviations; infinite where there are none, (c)."""
        with np.errstate(all="ignore"):
            apart = np.abs(self.old_mean.astype(np.float64) - self.mean)
            drift: Doubles = np.where(apart == 0, 0.0, apart / np.sqrt(self.variance.astype(np.float64)))
        return drift

    @property
    def variance_ratio(self) -> Doubles:
        """Old over new variance, 1 where both are 0, (c)."""
        old, new = self.old_variance.astype(np.float64), self.variance.astype(np.float64)
        with np.errstate(all="ignore"):
            ratio: Doubles = np.where(old == new, 1.0, old / new)
        return ratio

    @property
    def drift(self) -> Doubles:
        """Of each channel, the larger of mean_drift and the distance of both deviations' logarithms, (c); 0: nothing changed."""
        with np.errstate(all="ignore"):
            apart = 0.5 * np.abs(np.log(np.abs(self.variance_ratio)))
        return np.fmax(self.mean_drift, np.where(self.variance_ratio < 0, np.inf, apart))

    def to_json(self) -> dict[str, Any]:
        """All of it; what is not finite as None."""
        arrays = {name: getattr(self, name) for name in ("old_mean", "old_variance", "mean", "variance")}
        arrays |= {"mean_drift": self.mean_drift, "variance_ratio": self.variance_ratio}
        lists = {name: [_plain(value) for value in array.tolist()] for name, array in arrays.items()}
        return {"layer": self.layer, "type": self.type, "n": self.n, **lists}


@dataclass(frozen=True, slots=True)
class Calibration:
    """What `Network.calibrate` set. `str()` of it is a summary, the layers that changed most first.

    Args:
        layers: each batchnorm.
        units: batches that there were.
        images: rows of all of them.
        sequential: measured layer after layer.
    """

    layers: tuple[LayerCalibration, ...]
    units: int
    images: int
    sequential: bool

    @property
    def worst_first(self) -> tuple[LayerCalibration, ...]:
        """The layers by their largest drift."""
        return tuple(sorted(self.layers, key=lambda layer: -_largest(layer.drift)))

    def __str__(self) -> str:
        how = "layer after layer" if self.sequential else "in one pass"
        lines = [f"calibrated {len(self.layers)} batchnorms {how} over {self.images:,} images in {self.units:,} batches"]
        for layer in self.worst_first[:_TOLD]:
            ratio = layer.variance_ratio
            span = f"old / new variance {ratio.min():.3g} to {ratio.max():.3g}"
            off = f"mean off by up to {_largest(layer.mean_drift):.3g} deviations"
            lines.append(f"layer {layer.layer} [{layer.type}]: {off}, {span}")
        if len(self.layers) > _TOLD:
            lines.append(f"and {len(self.layers) - _TOLD} more, which changed less")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All of it, for `json.dumps`."""
        layers = [layer.to_json() for layer in self.layers]
        return {"units": self.units, "images": self.images, "sequential": self.sequential, "layers": layers}


def _largest(values: Doubles) -> float:
    return float(np.max(np.where(np.isnan(values), np.inf, values)))


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
