"""What ports do otherwise where layers are joined: route and shortcut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations

import numpy as np

from ... import _native
from ..._native import Array
from ...dialect import ACTIVATIONS
from ..arithmetic import activate
from ..situation import Hypothesis, Place, Trial
from ..steps import INPUT

__all__ = ["route", "shortcut", "told_of"]

_ORDERED = 4  # layers of a route up to which every order is tried


def told_of(
    kind: str, step: str, words: str, fix: str, run: Callable[[Place], Array | None], **values: float | int | str
) -> Hypothesis:
    """A hypothesis for one kind of step whose fix is the same in every framework."""
    return Hypothesis(kind, words, {step: run}, {"": fix}, values)


# --- route ---------------------------------------------------------------------------------------------------------------------


def route(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """Other groups, another order, other layers."""
    native, sources = place.layer.native, place.layer.sources
    if native is None:
        return
    groups, group = int(native.groups), int(native.group_id)
    told = ", ".join(str(source) for source in sources)
    if groups > 1:
        yield from _other_group(groups, group)
    if 1 < len(sources) <= _ORDERED:
        for order in permutations(range(len(sources))):
            if order != tuple(range(len(sources))):
                yield _in_order(order, told, sources, groups, group)
    for position in range(len(sources)):
        yield from _other_sources(place, position, groups, group)


def _joined(inputs: list[Array], groups: int, group: int) -> Array | None:
    """That group of the channels of each."""
    if len({each.shape[2:] for each in inputs}) > 1 or any(each.shape[1] % groups for each in inputs):
        return None
    parts = [each[:, each.shape[1] // groups * group : each.shape[1] // groups * (group + 1)] for each in inputs]
    return np.ascontiguousarray(np.concatenate(parts, 1))


def _other_group(groups: int, group: int) -> Iterator[Hypothesis]:
    fix = f"take group {group} of {groups}: channels from c * {group} // {groups}, c // {groups} of them"
    for other in range(groups):
        if other != group:

            def run(place: Place, other: int = other) -> Array | None:
                return _joined(list(place.inputs), groups, other)

            words = f"the route takes group {other} of {groups}; Darknet takes group {group}"
            yield told_of("route.group", "route", words, fix, run, group=other)

    def interleaved(place: Place) -> Array:
        return np.ascontiguousarray(np.concatenate([each[:, group::groups] for each in place.inputs], 1))

    words = f"the route takes every {groups}th channel; Darknet takes {groups} groups of neighbors"
    yield told_of("route.group", "route", words, fix, interleaved)


def _in_order(order: tuple[int, ...], told: str, sources: tuple[int, ...], groups: int, group: int) -> Hypothesis:
    def run(place: Place) -> Array | None:
        return _joined([place.inputs[position] for position in order], groups, group)

    found = ", ".join(str(sources[position]) for position in order)
    words = f"the route joins layers {found} in that order; Darknet joins {told}"
    return told_of("route.order", "route", words, f"concatenate layers {told} in that order", run, order=found)


def _other_sources(place: Place, position: int, groups: int, group: int) -> Iterator[Hypothesis]:
    """Each earlier value of the same shape in a source's place, the nearest first."""
    own = place.step.inputs[position]
    shape = place.inputs[position].shape
    right = place.layer.sources[position]
    for number in sorted(place.values, key=lambda number: abs(number - own)):
        if number == own or number >= place.step.number or place.values[number].shape != shape:
            continue
        name = "the network's input" if number == INPUT else _name(place, number)

        def run(place: Place, number: int = number) -> Array | None:
            if number not in place.values or len(place.inputs) <= position:
                return None
            inputs = list(place.inputs)
            inputs[position] = place.values[number]
            return _joined(inputs, groups, group)

        words = f"the route takes {name}; Darknet takes layer {right} (a negative number counts back from the route's own)"
        yield told_of("route.index", "route", words, f"take layer {right}", run, taken=number)


def _name(place: Place, number: int) -> str:
    step = place.runner.steps[number]
    after = {each.inputs[0]: each.kind for each in place.runner.steps if each.inputs and each.layer == step.layer}
    stages = {"sums": f" before its {after.get(number, '')}", "normal": " before its activation"}
    return f"layer {step.layer}{stages.get(step.stage, '')}"


# --- shortcut ------------------------------------------------------------------------------------------------------------------


def shortcut(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """Other weights, other channels, another layer, an activation that is not there."""
    native = place.layer.native
    if native is None:
        return
    yield from _left_out(place)
    if native.nweights:
        yield from _weights(place)
    yield from _channels(place)
    yield from _other_layers(place)
    if place.step.stage == "post":
        for name in sorted(ACTIVATIONS - {"linear"}):
            if not name.startswith("normalize_channels"):

                def run(place: Place, name: str = name) -> Array:
                    return activate(place.right, name, place.runner.profile.layers.arithmetic)

                words = f"the shortcut has the activation {name}; Darknet's has none"
                yield told_of("shortcut.activation", "shortcut", words, "no activation after the sum", run, activation=name)


def _left_out(place: Place) -> Iterator[Hypothesis]:
    sources = place.layer.sources
    for left, name in [(0, "the layer before"), *((at + 1, f"layer {source}") for at, source in enumerate(sources))]:

        def run(place: Place, left: int = left) -> Array | None:
            inputs = list(place.inputs)
            if left >= len(inputs):
                return None
            inputs[left] = np.zeros_like(inputs[left])
            return place.runner.run(place.step, inputs)

        words = f"the shortcut leaves out {name}; Darknet adds it"
        yield told_of("shortcut.index", "shortcut", words, f"add {name}", run)


def _weights(place: Place) -> Iterator[Hypothesis]:
    native = place.layer.native
    assert native is not None
    count = len(place.layer.sources) + 1
    weights = place.layer.weights.astype(np.float64).reshape(count, -1)
    told: Mapping[str, Array] = {
        "adds without its weights": np.ones_like(weights),
        "takes the ReLU of its weights without a sum": np.maximum(weights, 0),
        "takes the mean": np.full_like(weights, 1 / count),
    }
    for words, factors in told.items():

        def run(place: Place, factors: Array = factors) -> Array | None:
            return _weighted(place, factors)

        yield _weighting(words, run)
    yield _weighting("takes its weights from the last layer to the first", _backwards)
    for name, words in _NORMALIZATIONS.items():

        def normalized(place: Place, name: str = name) -> Array:
            native = place.layer.native
            assert native is not None
            kept = native.weights_normalization
            native.weights_normalization = _native.enum("normalization", name)
            try:
                return place.right
            finally:
                native.weights_normalization = kept

        if _native.enum("normalization", name) != native.weights_normalization:
            yield _weighting(words, normalized)


_NORMALIZATIONS = {
    "none": "takes its weights as they are",
    "softmax": "normalizes its weights by softmax",
    "relu": "normalizes its weights by ReLU",
}


def _backwards(place: Place) -> Array | None:
    """Equal shapes alone: then the layers from the last to the first are the same."""
    alike = len({each.shape for each in place.inputs}) == 1
    return place.runner.run(place.step, place.inputs[::-1]) if alike else None


def _weighting(words: str, run: Callable[[Place], Array | None]) -> Hypothesis:
    fix = "use the weights of the file with the cfg's weights_normalization"
    full = f"the shortcut {words}; Darknet multiplies each layer by the file's weights, normalized as the cfg says"
    return told_of("shortcut.weights", "shortcut", full, fix, run)


def _weighted(place: Place, factors: Array) -> Array | None:
    c = place.inputs[0].shape[1]
    if len(factors) != len(place.inputs):
        return None
    total = np.zeros(place.inputs[0].shape)
    for x, factor in zip(place.inputs, factors, strict=True):
        if x.shape[2:] != total.shape[2:]:
            return None
        shared = min(c, x.shape[1])
        total[:, :shared] += x[:, :shared] * np.broadcast_to(factor.reshape(-1, 1, 1), (c, 1, 1))[:shared]
    return total.astype(np.float32)


def _offsets(place: Place) -> list[int]:
    """How far the channels of a source can be shifted against those of the sum, the last ones and the middle first."""
    c = place.inputs[0].shape[1]
    most = max(abs(each.shape[1] - c) for each in place.inputs[1:])
    return sorted(range(1, most + 1), key=lambda at: (at not in (most, most // 2), at))


def _offset_words(at: int) -> str:
    return f"adds the channels from channel {at} on of the larger layer"


def _added_at(place: Place, *, at: int) -> Array | None:
    """Each source against the sum, the larger of the two from that channel on."""
    total = np.array(place.inputs[0])
    for x in place.inputs[1:]:
        if x.shape[2:] != total.shape[2:]:
            return None
        into, taken = total[:, at:] if x.shape[1] < total.shape[1] else total, x[:, at:] if x.shape[1] > total.shape[1] else x
        shared = min(into.shape[1], taken.shape[1])
        into[:, :shared] += taken[:, :shared]
    return total


def _channels(place: Place) -> Iterator[Hypothesis]:
    """Sources of more or fewer channels: the last ones, or the first ones again and again."""
    c = place.inputs[0].shape[1]
    fix = "add the channels that both have, from the first; the others stay as they are"
    if all(each.shape[1] == c for each in place.inputs[1:]):
        return

    def repeated(place: Place) -> Array | None:
        total = np.array(place.inputs[0])
        for x in place.inputs[1:]:
            if x.shape[2:] != total.shape[2:]:
                return None
            total += np.tile(x, (1, -(-c // x.shape[1]), 1, 1))[:, :c]
        return total

    def alone(place: Place) -> Array:
        return place.inputs[0]

    faults: dict[str, Callable[[Place], Array | None]] = {
        **{_offset_words(at): partial(_added_at, at=at) for at in _offsets(place)},
        "repeats the channels of the smaller layer": repeated,
        "adds nothing where the numbers of channels differ": alone,
    }
    for words, run in faults.items():
        yield told_of("shortcut.channels", "shortcut", f"the shortcut {words}; Darknet adds the first ones", fix, run)


def _other_layers(place: Place) -> Iterator[Hypothesis]:
    for position, own in enumerate(place.step.inputs):
        shape = place.inputs[position].shape
        right = "the layer before" if position == 0 else f"layer {place.layer.sources[position - 1]}"
        for number in sorted(place.values, key=lambda number, own=own: abs(number - own)):  # type: ignore[misc]
            if number == own or number >= place.step.number or place.values[number].shape != shape:
                continue

            def run(place: Place, position: int = position, number: int = number) -> Array | None:
                if number not in place.values:
                    return None
                inputs = list(place.inputs)
                inputs[position] = place.values[number]
                return place.runner.run(place.step, inputs)

            name = "the network's input" if number == INPUT else _name(place, number)
            words = f"the shortcut adds {name}; Darknet adds {right}"
            yield told_of("shortcut.index", "shortcut", words, f"add {right}", run, taken=number)
