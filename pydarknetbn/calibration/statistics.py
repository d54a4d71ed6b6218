"""Rolling arrays against what pictures give, of a whole network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ShapeError
from ..sync import Moments, merge
from .batchnorms import BatchNormPlace, batchnorms_of
from .calibrating import calibrated
from .findings import Mask, Statistics, findings_of
from .measuring import Meter
from .units import Batches, Units

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["statistics_of"]


def statistics_of(
    net: Network, batches: Batches | None = None, *, progress: Callable[[int, int], None] | None = None
) -> Statistics:
    """Looks at every batchnorm's arrays, and holds them against a data set as `calibrate` in one pass measures it.

    So each layer's statistics are those of an input normalised rightly, and a layer with stale ones does not make all behind it
    look stale.

    Args:
        net: stays as it is.
        batches: as `calibrate` takes them; None: the arrays alone.
        progress: called with batches done and in all, 0 where nobody knows.

    Raises:
        StateError, UnsupportedError, NumericsError, DtypeError, ShapeError: as `calibrate`.
    """
    with net.turn():
        places = batchnorms_of(net.layers, net.origin.cfg.name, folded=net.folded)
        if batches is None:
            return Statistics(tuple(findings_of(place, None, None) for place in places))
        watch = _Watch(net)
        watch.run(Units(batches), progress)
        measured = [calibrated(net, place, total) for place, total in zip(places, watch.totals, strict=True)]
        return Statistics(tuple(map(findings_of, places, measured, watch.silent())), watch.images)


@dataclass(slots=True)
class _Watch:
    """Moments and the range of the outputs of each batchnorm."""

    net: Network
    copy: Network = field(init=False)
    places: tuple[BatchNormPlace, ...] = field(init=False)
    totals: list[Moments] = field(default_factory=list)
    low: list[Any] = field(default_factory=list)
    high: list[Any] = field(default_factory=list)
    images: int = 0

    def __post_init__(self) -> None:
        self.copy = self.net.clone()
        self.places = batchnorms_of(self.copy.layers, self.net.origin.cfg.name)
        self.totals = [Moments(0, np.zeros(place.channels), np.zeros(place.channels)) for place in self.places]
        self.low = [np.full(place.channels, np.inf) for place in self.places]
        self.high = [np.full(place.channels, -np.inf) for place in self.places]

    def run(self, units: Units, progress: Callable[[int, int], None] | None) -> None:
        """Walks through all units."""
        meter, read, number = Meter(self.copy, self.places, keep=True), units.reader(), 0
        while (x := read(number)) is not None:
            found = meter.measure(number, x)
            self.totals = [merge(both) for both in zip(self.totals, found, strict=True)]
            self.images, number = self.images + len(x), number + 1
            if len(x):
                self._look()
            if progress:
                progress(number, units.count)
        if not self.images:
            raise ShapeError(f"{self.net.origin.cfg.name}: expected batches to measure, got none")

    def _look(self) -> None:
        for at, place in enumerate(self.places):
            for layer in place.layers:
                output = layer.output
                self.low[at] = np.minimum(self.low[at], output.min(axis=(0, 2, 3)))
                self.high[at] = np.maximum(self.high[at], output.max(axis=(0, 2, 3)))

    def silent(self) -> list[Mask]:
        """Channels of each that put out one value for everything."""
        return [low == high for low, high in zip(self.low, self.high, strict=True)]
