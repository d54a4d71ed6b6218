"""What a fold did, and how far two networks are apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["BUDGET", "Epsilon", "FoldReport", "FoldedLayer", "LayerDifference", "LeftLayer"]

Epsilon = Literal["forward", "fork"]

BUDGET = 10.0**-5
"""What rounding may change in a layer, as a share of the range of its values: some hundred float steps of the largest one."""


@dataclass(frozen=True, slots=True)
class FoldedLayer:
    """A layer that took up its batchnorm, or normalised its weights once and for all.

    Args:
        index, type: of the layer.
        channels: how many it has.
        largest_factor: the largest scale / root, by which a channel's weights were multiplied.
        smallest_variance: the smallest rolling variance, where an epsilon matters most.
        absorbed: numbers of the [batchnorm] layers that it took up beside its own.
        deviation: how far, relatively, a channel's factor is from that of the profile's own inference; 0 under "forward".
        deviating_channel, its_variance: the channel where that is largest.
    """

    index: int
    type: str
    channels: int
    largest_factor: float
    smallest_variance: float
    absorbed: tuple[int, ...] = ()
    deviation: float = 0.0
    deviating_channel: int = 0
    its_variance: float = 0.0


@dataclass(frozen=True, slots=True)
class LeftLayer:
    """A layer with a batchnorm that was not folded, and why."""

    index: int
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """How far two networks are apart after a layer.

    Args:
        index, type: of the layer in the second network.
        largest: the largest absolute difference, each network run on its own.
        range: largest minus smallest value of the first network's output; the value itself where all are equal.
        channel: where the largest difference is.
        alone: the largest absolute difference where the layer gets the very input of the first network, so that nothing but
            this layer's own rounding counts.
    """

    index: int
    type: str
    largest: float
    range: float
    channel: int
    alone: float

    @property
    def relative(self) -> float:
        """The largest difference as a share of the range."""
        return self.largest / self.range if self.range else self.largest

    @property
    def alone_relative(self) -> float:
        """The layer's own difference as a share of the range."""
        return self.alone / self.range if self.range else self.alone


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What `fold` did.

    Args:
        epsilon: "forward" or "fork".
        folded: the layers that took up a batchnorm; () where there was none, as in a second fold.
        differences: layer by layer, on the input that was to be checked.
        normalized: numbers of the shortcuts whose weights were normalised.
        left: layers that keep their batchnorm, with the reason.
        notes: sentences on what the files are good for.
        budget: what rounding may change, as a share of a layer's range.
    """

    epsilon: Epsilon
    folded: tuple[FoldedLayer, ...]
    differences: tuple[LayerDifference, ...] = ()
    normalized: tuple[int, ...] = ()
    left: tuple[LeftLayer, ...] = ()
    notes: tuple[str, ...] = ()
    budget: float = BUDGET

    @property
    def worst(self) -> LayerDifference | None:
        """The layer with the largest difference relative to its range."""
        return max(self.differences, key=lambda difference: difference.relative, default=None)

    @property
    def over_budget(self) -> tuple[LayerDifference, ...]:
        """The layers whose own difference is more than rounding; a NaN is."""
        return tuple(difference for difference in self.differences if not difference.alone_relative <= self.budget)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        return asdict(self)
