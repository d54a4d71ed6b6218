"""Puts a network's layers with parameters and a port's modules together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..._native import Array
from ...layers import Layer
from ...layers.base import BATCHNORM_ARRAYS
from ...network import Network
from .watched import Watched

__all__ = ["Pair", "pairs"]

_USUAL = {"weight": "scales", "bias": "biases", "running_mean": "rolling_mean", "running_var": "rolling_variance"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A layer, or its batchnorm, and the module that stands for it.

    Args:
        layer: ours.
        part: "batchnorm" or "weights".
        module: theirs.
        names: our arrays' names -> the module's.
    """

    layer: Layer
    part: str
    module: Watched
    names: Mapping[str, str]

    def before(self, name: str) -> Array | None:
        """The module's array before the step, by our name."""
        found = self.names.get(name)
        return self.module.before[found].reshape(-1) if found else None

    def after(self, name: str) -> Array | None:
        """The same after it."""
        found = self.names.get(name)
        return self.module.after[found].reshape(-1) if found else None

    def gradient(self, name: str) -> Array | None:
        """The gradient that the module's parameter got."""
        found = self.module.gradients.get(self.names.get(name, ""))
        return None if found is None else found


def pairs(net: Network, watched: Sequence[Watched], names: Mapping[int, str] | None) -> list[Pair]:
    """In our order. A module is taken where its values are ours, else by name or as the next one of its kind and size.

    Args:
        net: ours.
        watched: theirs.
        names: layer -> path of a module, or of what holds it.
    """
    left = list(watched)
    made: list[Pair] = []
    for layer in net.layers:
        for part, arrays in _parts(layer):
            fitting = [each for each in left if _fits(each, part, arrays)]
            wanted = (names or {}).get(layer.index)
            if wanted is not None:
                fitting = [each for each in fitting if each.name == wanted or each.name.startswith(f"{wanted}.")]
            if fitting:
                chosen = next((each for each in fitting if _holds(each, arrays)), fitting[0])
                left.remove(chosen)
                made.append(Pair(layer, part, chosen, _roles(chosen, part, arrays)))
    return made


def _parts(layer: Layer) -> Iterator[tuple[str, dict[str, Array]]]:
    own = {name: getattr(layer, name) for name in layer.shapes}
    if layer.type in ("convolutional", "connected"):
        yield "weights", {"weights": own["weights"]} | ({"biases": own["biases"]} if "scales" not in own else {})
    if "scales" in own:
        yield "batchnorm", {name: own[name] for name in BATCHNORM_ARRAYS if name in own}


def _fits(each: Watched, part: str, arrays: Mapping[str, Array]) -> bool:
    """Whether a module of that kind has arrays of these sizes."""
    if part == "weights":
        return any(array.ndim > 1 and array.size == arrays["weights"].size for array in each.before.values())
    vectors = [array for array in each.before.values() if array.ndim == 1 and array.size == arrays["scales"].size]
    return len(vectors) >= 2 and not any(array.ndim > 1 for array in each.before.values())


def _holds(each: Watched, arrays: Mapping[str, Array]) -> bool:
    """Whether each of our arrays is among its own."""
    return all(any(_equal(own, array) for own in each.before.values()) for array in arrays.values())


def _equal(own: Array, array: Array) -> bool:
    return own.size == array.size and bool(np.allclose(own.reshape(-1), array.reshape(-1), rtol=2.0**-17, atol=2.0**-24))


def _roles(each: Watched, part: str, arrays: Mapping[str, Array]) -> dict[str, str]:
    """Which of its arrays is which of ours: the usual names, else equal values."""
    if part == "weights":
        weights = next(name for name, array in each.before.items() if array.ndim > 1 and array.size == arrays["weights"].size)
        vectors = [name for name, array in each.before.items() if array.ndim == 1] if "biases" in arrays else []
        return {"weights": weights} | ({"biases": vectors[0]} if vectors else {})
    usual = {ours: theirs for theirs, ours in _USUAL.items() if theirs in each.before}
    for ours, array in arrays.items():
        if ours not in usual:
            found = [name for name, own in each.before.items() if name not in usual.values() and _equal(own, array)]
            usual |= {ours: found[0]} if found else {}
    return usual
