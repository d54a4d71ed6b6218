"""Channels whose rolling variance is so small that the epsilon decides what they are multiplied by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from ..dialect import EpsilonRule, profiles
from ..layers import Layer
from .results import SmallVariance

__all__ = ["notes_on", "small_variances"]

_SMALL = 1e-3
_LAYERS, _CHANNELS = 3, 3  # that a note names


def small_variances(layers: Iterable[Layer]) -> Iterator[SmallVariance]:
    """Each channel with a rolling variance below 1e-3, and the gain 1 / root that each convention of a profile gives there."""
    conventions = {str(rule): rule for rule in (profile.rule("convolutional").forward for profile in profiles())}
    for layer in layers:
        for name, array in layer.params.items():
            if not name.endswith("rolling_variance"):
                continue
            for channel in np.flatnonzero(array < _SMALL):
                variance = float(array[channel])
                gains = {words: _gain(variance, rule) for words, rule in conventions.items()}
                yield SmallVariance(layer.index, layer.type, layer.line, name, int(channel), variance, gains)


def _gain(variance: float, epsilon: EpsilonRule) -> float:
    wide = np.float64(variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(wide + epsilon.value) if epsilon.side == "inside" else np.sqrt(wide) + epsilon.value
        return float(1 / root)


def notes_on(found: Sequence[SmallVariance]) -> tuple[str, ...]:
    """Sentences on the layers with the smallest of them, and on how many more there are."""
    layers = [list(of_layer) for _, of_layer in groupby(found, key=lambda each: (each.layer, each.array))]
    layers.sort(key=lambda of_layer: min(each.variance for each in of_layer))
    told = [_note(of_layer) for of_layer in layers[:_LAYERS]]
    if len(layers) > _LAYERS:
        channels = sum(map(len, layers[_LAYERS:]))
        told.append(
            f"{len(layers) - _LAYERS} more layers have {channels:,} channels with a variance below {_SMALL:g}; --json lists all"
        )
    return tuple(told)


def _note(of_layer: Sequence[SmallVariance]) -> str:
    first = of_layer[0]
    smallest = sorted(of_layer, key=lambda each: each.variance)[:_CHANNELS]
    channels = "; ".join(
        f"channel {each.channel}, {each.variance:g}: gain "
        + ", ".join(f"{gain:.9g} by {words}" for words, gain in each.gains.items())
        for each in smallest
    )
    count = f"{len(of_layer)} channel{'s have' if len(of_layer) > 1 else ' has'} a {first.array} below {_SMALL:g}"
    return f"layer {first.layer} [{first.type}] (line {first.line}): {count}, where the epsilon decides: {channels}"
