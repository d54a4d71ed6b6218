"""The moments of one unit at each batchnorm, in an inference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._native import Array
from ..errors import DtypeError, NumericsError, ShapeError, UnsupportedError
from ..exchanging import Exchange
from ..layers import Layer
from ..recurrence import reset_state
from ..running import Runner
from ..sync import Moments, merge
from ..sync.moments import Doubles
from ..training import Pass
from .batchnorms import BatchNormPlace, native_of

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["Meter"]


@dataclass(slots=True)
class Meter:
    """Runs units through a network of its own.

    Args:
        net: which nobody else uses.
        places: its batchnorms.
        only: number of the one that is measured, with all layers normalising with their rolling arrays; None: all are, each
            normalising with the unit's own mean and variance.
        keep: the layers' outputs stay until the next unit.
    """

    net: Network
    places: Sequence[BatchNormPlace]
    only: int | None = None
    keep: bool = False
    runner: Runner = field(init=False)
    found: dict[int, Moments] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        chosen = self.places if self.only is None else self.places[self.only : self.only + 1]
        measured = [layer for place in chosen for layer in place.layers]
        end = max(layer.index for layer in measured)
        self.runner = Runner(self.net.layers[: end + 1], self.net.layers[end : end + 1], self.name)
        self.runner.exchanges = {layer.index: self._exchange(layer) for layer in measured}

    @property
    def name(self) -> str:
        """How messages call the network."""
        return self.net.origin.cfg.name

    def _exchange(self, layer: Layer) -> Exchange:
        def take(_: str, values: Doubles) -> None:
            self.found[layer.index] = Moments.of_message(values.copy())

        return Exchange(take, in_inference=True, normalizes=self.only is None)

    def measure(self, number: int, x: Any) -> tuple[Moments, ...]:
        """Of each batchnorm, with n = 0 where it is not measured.

        Args:
            number: of the unit, for messages.
            x: its batch.

        Raises:
            DtypeError, ShapeError: x is none of this network.
            NumericsError: moments that are not finite, or of one value.
        """
        if isinstance(x, np.ndarray) and x.ndim and not len(x):
            return tuple(map(_nothing, self.places))
        x = self._checked(number, x)
        self._check_counts(number, x)
        self.found.clear()
        reset_state(self.net.layers, None)
        self.runner.run(Pass(x, train=False, time_steps=self.net.time_steps), keep_all=self.keep)
        self._check_finite(number)
        return tuple(self._of(place) for place in self.places)

    def _of(self, place: BatchNormPlace) -> Moments:
        parts = [self.found[layer.index] for layer in place.layers if layer.index in self.found]
        return merge(parts) if parts else _nothing(place)

    def _checked(self, number: int, x: Any) -> Array:
        try:
            return self.net.checked(x)
        except (DtypeError, ShapeError) as reason:
            raise type(reason)(f"{self.name}: batch {number}: {reason}") from None

    def _check_counts(self, number: int, x: Array) -> None:
        """A batch's own statistics normalise only where they are of more than one value."""
        for layer in self._measured() if self.only is None else ():
            native = native_of(layer)
            if len(x) == 1 and native is not None and native.h * native.w == 1:
                raise NumericsError(
                    f"{self.name}: batch {number} is one row, and layer {layer.index} [{layer.type}] has one pixel: one value has "
                    "no statistics to normalise with; give batches of 2 rows and more, the last too, or take sequential"
                )

    def _measured(self) -> Iterator[Layer]:
        return (self.net.layers[index] for index in sorted(self.runner.exchanges))

    def _check_finite(self, number: int) -> None:
        for layer in self._measured():
            found = self.found[layer.index]
            bad = np.flatnonzero(~(np.isfinite(found.mean) & np.isfinite(found.m2)))
            if bad.size:
                channel = int(bad[0])
                others = f" and {bad.size - 1:,} more channels" if bad.size > 1 else ""
                values = f"mean {found.mean[channel]:.3g}, sum of squares {found.m2[channel]:.3g}"
                place = f"layer {layer.index} [{layer.type}] (line {layer.line})"
                raise NumericsError(
                    f"{self.name}: batch {number}: {place}, channel {channel}{others}: {values}; nothing was changed"
                )


def _nothing(place: BatchNormPlace) -> Moments:
    return Moments(0, np.zeros(place.channels), np.zeros(place.channels))


def refuse_shared(places: Sequence[BatchNormPlace], name: str) -> None:
    """Layer after layer, a batchnorm of several layers would have to be set before it is measured.

    Raises:
        UnsupportedError: there is one.
    """
    for place in places:
        if len(place.layers) > 1:
            first, second = place.layers[:2]
            what = f"layer {second.index} shares the batchnorm of layer {first.index}, which would be set before both are measured"
            raise UnsupportedError(f"{name}:{second.line}: {what}; calibrate without sequential")
