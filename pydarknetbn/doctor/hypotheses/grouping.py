"""What ports do otherwise between the groups of a convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place
from .sums import sums_of

__all__ = ["groups_of"]


def groups_of(place: Place) -> Iterator[Hypothesis]:
    """Of a convolution with groups: taken as one, in another order, or of another number."""
    groups = _count(place)
    fix = {
        "": f"groups of neighboring channels, {groups} of them",
        "torch": f"Conv2d(..., groups={groups})",
        "keras": f"Conv2D(..., groups={groups})",
        "onnx": f"group = {groups}",
    }
    for words, run in _FAULTS.items():
        told = f"{words}; Darknet has {groups} groups of neighbors"
        yield Hypothesis("convolution.groups", told, {"convolution": run}, fix)
    yield from _other_groups(place, fix)


def _count(place: Place) -> int:
    assert place.layer.native is not None
    return int(place.layer.native.groups)


def _first(place: Place) -> Array | None:
    depth = place.layer.weights.shape[1]
    return sums_of(place, place.layer.weights, groups=1, x=np.ascontiguousarray(place.inputs[0][:, :depth]))


def _summed(place: Place) -> Array | None:
    x, depth = place.inputs[0], place.layer.weights.shape[1]
    total = x.reshape(len(x), -1, depth, *x.shape[2:]).sum(1)
    return sums_of(place, place.layer.weights, groups=1, x=np.ascontiguousarray(total))


def _interleaved(place: Place) -> Array | None:
    return sums_of(place, place.layer.weights, x=_dealt(place.inputs[0], _count(place)))


def _backwards(place: Place) -> Array | None:
    x = place.inputs[0]
    turned = x.reshape(len(x), _count(place), -1, *x.shape[2:])[:, ::-1].reshape(x.shape)
    return sums_of(place, place.layer.weights, x=np.ascontiguousarray(turned))


def _shuffled(place: Place) -> Array | None:
    made = sums_of(place, place.layer.weights)
    return None if made is None else _dealt(made, _count(place))


def _dealt_filters(place: Place) -> Array | None:
    n, groups = place.layer.out_shape.c, _count(place)
    order = np.arange(n).reshape(-1, groups).T.ravel()  # filters 0, groups, 2 * groups, … read the first group
    made = sums_of(place, place.layer.weights[order])
    return None if made is None else np.ascontiguousarray(made[:, np.argsort(order)])


_FAULTS: Mapping[str, Callable[[Place], Array | None]] = {
    "every filter reads the first group of channels, as with groups=1": _first,
    "every filter reads all groups of channels added up, its kernel repeated for each, as with groups=1": _summed,
    "each group takes every so many channels instead of neighbors": _interleaved,
    "the groups of channels are taken from the last to the first": _backwards,
    "the filters are dealt out to the groups in turn": _dealt_filters,
    "the filters' outputs are shuffled between the groups": _shuffled,
}


def _dealt(x: Array, groups: int) -> Array:
    """Channels dealt out to the groups one by one, as a channel shuffle does."""
    batch, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(batch, c // groups, groups, h, w).swapaxes(1, 2).reshape(x.shape))


def _other_groups(place: Place, fix: Mapping[str, str]) -> Iterator[Hypothesis]:
    """Another number of groups, the kernel's first channels alone or the kernel repeated."""
    n, depth = place.layer.weights.shape[:2]
    c = place.inputs[0].shape[1]
    for groups in (number for number in range(1, c + 1) if c % number == 0 and n % number == 0 and c // number != depth):
        need = c // groups

        def run(place: Place, groups: int = groups, need: int = need) -> Array | None:
            weights = place.layer.weights
            if need <= weights.shape[1]:
                return sums_of(place, weights[:, :need], groups=groups)
            return (
                sums_of(place, np.tile(weights, (1, need // weights.shape[1], 1, 1)), groups=groups) if need % depth == 0 else None
            )

        words = f"the convolution has {groups} groups; Darknet has {c // depth}"
        yield Hypothesis("convolution.groups", words, {"convolution": run}, fix, {"groups": groups})
