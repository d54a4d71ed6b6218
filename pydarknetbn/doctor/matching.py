"""Puts the other side's values to the steps of our network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .._native import Array
from ..errors import ShapeError
from ..layers import Shape
from .layouts import Parts, layouts_of
from .leftovers import Found
from .names import NameMap, read_names
from .pairing import Pairing
from .pool import Candidate, Pool
from .running import Runner
from .steps import INPUT, input_step
from .trace import Tensor, Trace

__all__ = ["Match", "Matching", "match"]


@dataclass(frozen=True, slots=True)
class Match:
    """A value of the other side that is one of ours.

    Args:
        step: number of the step, INPUT for the network's input.
        tensor: the other side's name; "input" for what it was given.
        array: (batch, c, h, w) float32 in C order, in our layout.
        how: "by name", "by content" or "by order and shape", with the layout where it is another, and "(uncertain)".
        certain: whether nothing else would fit as well.
    """

    step: int
    tensor: str
    array: Array = field(repr=False)
    how: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Matching:
    """All of them.

    Args:
        matches: in the order of the network; steps that the other side does not show are left out.
        unmatched: names of the other side's values that are none of ours.
    """

    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]

    @property
    def by_step(self) -> dict[int, Match]:
        """Number of a step -> its match."""
        return {each.step: each for each in self.matches}


def match(runner: Runner, x: Array, trace: Trace, *, names: NameMap | None = None) -> Matching:
    """Which of the other side's values is which of ours.

    What the user names comes first, then the names that this package's own exporter gives; all else is found by computing each step
    from the other side's own values, and by order, operation and shape where the other side computes it otherwise.

    Args:
        runner: of our network, which computes each step about once, or twice where the other side has a fault.
        x: (batch, c, h, w), our input.
        trace: the other side's values.
        names: layer -> name, see `names.read_names`.

    Raises:
        CfgError: the map names what is not there.
        ShapeError: a named value has another size than the layer's.
    """
    pool = Pool(runner, trace.tensors, len(x))
    named = _by_name(runner, pool, trace, names)
    given = _given(trace, x)
    start = given
    if INPUT in named:
        start = next(each for each in pool.of(input_step(runner.net)).all if each.index == named[INPUT])
    found = Pairing(runner, pool, x, named=named, outputs=trace.outputs).run(start.read() if start else x)
    if start and INPUT not in found:
        found[INPUT] = Found(start, "by name")
    matches = tuple(_match(number, found[number]) for number in sorted(found))
    taken = {each.tensor for each in matches}
    return Matching(matches, tuple(tensor.name for tensor in trace.tensors if tensor.name not in taken))


def _by_name(runner: Runner, pool: Pool, trace: Trace, names: NameMap | None) -> dict[int, int]:
    """Number of a step -> index of its tensor, by the user's map and by the names of this package's exporter."""
    places = {tensor.name: index for index, tensor in enumerate(trace.tensors)}
    named: dict[int, int] = {}
    for number, name in read_names(names, runner.steps, places).items():
        step = input_step(runner.net) if number == INPUT else runner.steps[number]
        if all(each.index != places[name] for each in pool.of(step).all):
            shape = trace.tensors[places[name]].array.shape
            what = "the input" if number == INPUT else f"layer {step.layer}"
            raise ShapeError(f"names: {what} is {step.shape}, {name} is {shape}, which cannot be the same values")
        named[number] = places[name]
    if trace.framework == "arrays":
        named |= _by_layer(runner, pool, places)
    if trace.framework == "onnx":
        taken = set(named.values())
        for step in runner.steps:
            index = places.get(f"{step.layer}_{runner.layer_of(step).type}")
            if step.stage != "post" or step.number in named or index is None or index in taken:
                continue
            if any(each.index == index for each in pool.of(step).all):
                named[step.number] = index
    return named


def _by_layer(runner: Runner, pool: Pool, places: Mapping[str, int]) -> dict[int, int]:
    """Arrays that bear the numbers of our layers, as those of a dump do: 12 or 12.sums."""
    named = {}
    for step in runner.steps:
        names = [f"{step.layer}.{step.stage}", *([str(step.layer)] if step.stage == "post" else [])]
        index = next((places[name] for name in names if name in places), None)
        if index is not None and any(each.index == index for each in pool.of(step).all):
            named[step.number] = index
    return named


def _match(number: int, found: Found) -> Match:
    candidate = found.candidate
    words = ", ".join(filter(None, [found.how, candidate.layout.words]))
    return Match(number, candidate.tensor.name, candidate.read(), words if found.certain else f"{words} (uncertain)", found.certain)


def _given(trace: Trace, x: Array) -> Candidate | None:
    """The other side's input, read as our layout says or, where it fits as well, as it looks."""
    if trace.input is None:
        return None
    tensor = Tensor("input", trace.input)
    shape = Shape(*x.shape[1:])
    found = [Candidate(-1, layout, tensor) for layout in layouts_of(trace.input.shape, shape, Parts())]
    if not found or len(trace.input) != len(x):
        return None
    return min(found, key=lambda each: (float(np.mean(np.abs(each.read() - x))), each.layout.rank))
