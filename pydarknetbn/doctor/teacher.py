"""The two passes: each side on its own, and ours on the other side's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from .._native import Array
from .measures import multiple, multiples
from .noise import UNIT, Noise, jittered, noise_of, peak
from .running import Runner
from .steps import INPUT, Step

__all__ = ["Runs", "Segment", "walk"]

Runs: TypeAlias = dict[int, Callable[[Step, Sequence[Array]], Array | None]]
"""Number of a step -> how it is computed instead; None where sizes do not fit."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps between a value that the other side shows and those right before it.

    Args:
        runner: of our network.
        steps: in order; the last one gives the value.
        values: number of a step outside -> what the other side has for it, or ours computed on its values.
        theirs: the other side's value, (batch, c, h, w).
        ours: what our steps give on the values.
        noise: what rounding makes of that, by channel.
    """

    runner: Runner
    steps: tuple[Step, ...]
    values: Mapping[int, Array] = field(repr=False)
    theirs: Array = field(repr=False)
    ours: Array = field(repr=False)
    noise: Noise = field(repr=False)

    @property
    def step(self) -> Step:
        """The last step."""
        return self.steps[-1]

    @property
    def multiple(self) -> float:
        """The largest difference in multiples of the noise."""
        return multiple(self.ours, self.theirs, self.noise)

    def left_over(self, value: Array, theirs: Array | None = None) -> tuple[float, float]:
        """Root mean square and largest of what a value leaves of the other side's, in multiples of the noise.

        Args:
            value: of a hypothesis; where it is larger than ours, so is its noise.
            theirs: the other side's values of the same places, where `value` is a sample.
        """
        size = peak(value) / np.maximum(peak(self.ours), np.finfo(np.float32).tiny)
        return multiples(value, self.theirs if theirs is None else theirs, self.noise * np.maximum(1, size))

    def rerun(self, runs: Runs, known: Mapping[int, Array] | None = None) -> Array | None:
        """The last step's value where some steps are computed otherwise; None where sizes do not fit.

        Args:
            runs: number of a step -> how; the others are ours.
            known: values of the segment's own steps that are not to be computed again.
        """
        made: dict[int, Array] = dict(known or {})
        for step in self.steps:
            if step.number in made:
                continue
            inputs = [made[number] if number in made else self.values[number] for number in step.inputs]
            value = runs[step.number](step, inputs) if step.number in runs else self._right(step, inputs)
            if value is None:
                return None
            made[step.number] = value
        return made[self.step.number] if made[self.step.number].shape == self.theirs.shape else None

    def _right(self, step: Step, inputs: Sequence[Array]) -> Array | None:
        """What the step gives; None where a step before gave another shape than it takes."""
        shapes = [self.values[number].shape[1:] if number in self.values else None for number in step.inputs]
        wanted = [shape or self._shape(number) for shape, number in zip(shapes, step.inputs, strict=True)]
        if any(each.shape[1:] != tuple(shape) for each, shape in zip(inputs, wanted, strict=True)):
            return None
        return self.runner.run(step, inputs)

    def _shape(self, number: int) -> tuple[int, ...]:
        return tuple(self.runner.steps[number].shape)


@dataclass(frozen=True, slots=True)
class Value:
    """What is kept of a step while later ones need it: the value, its noise (None: the other side's own), and its segment."""

    array: Array
    noise: Noise | None
    steps: tuple[Step, ...]


def walk(
    runner: Runner, x: Array, theirs: Mapping[int, Array], *, unit: float = UNIT, forced: bool = True
) -> Iterator[Segment | Step]:
    """Goes through the network on the other side's values: a segment where it shows one, else the step.

    Args:
        runner: of our network.
        x: the other side's input.
        theirs: number of a step -> its value.
        unit: what one rounding changes at most, relatively.
        forced: later steps get the other side's values; else ours, and every segment begins at the input.
    """
    last_use = {number: step.number for step in runner.steps for number in step.inputs}
    held = {INPUT: Value(x, None, ())}
    for step in runner.steps:
        given = [held[number] for number in step.inputs]
        inputs = [value.array for value in given]
        ours = runner.run(step, inputs)
        noise = noise_of(runner, step, inputs, ours, unit=unit) + _passed_on(runner, step, given, ours)
        steps = tuple(sorted({each for value in given for each in value.steps} | {step}, key=lambda each: each.number))
        if step.number in theirs:
            values = {number: value.array for number, value in held.items()}
            yield Segment(runner, steps, values, theirs[step.number], ours, noise)
        else:
            yield step
        shown = forced and step.number in theirs
        held[step.number] = Value(theirs[step.number], None, ()) if shown else Value(ours, noise, steps)
        _let_go(held, runner, last_use, theirs)


def _let_go(held: dict[int, Value], runner: Runner, last_use: Mapping[int, int], theirs: Mapping[int, Array]) -> None:
    """Forgets ours of what is inside a layer, once no later step takes it, nor a segment that is still open."""
    now = max(held)
    needed = {number for value in held.values() for step in value.steps for number in step.inputs}
    inner = [number for number in held if number != INPUT and number not in theirs and runner.steps[number].stage != "post"]
    for number in inner:
        if last_use.get(number, -1) <= now and number not in needed:
            del held[number]


def _passed_on(runner: Runner, step: Step, given: Sequence[Value], ours: Array) -> Noise | float:
    """What the noise of unseen steps before becomes in this one."""
    if all(value.noise is None for value in given):
        return 0.0
    moved = [value.array if value.noise is None else jittered(value.array, value.noise, step.number) for value in given]
    with np.errstate(invalid="ignore"):
        apart = np.abs(runner.run(step, moved) - ours)
    return np.asarray(np.nan_to_num(apart, posinf=0).max(axis=(0, 2, 3)), np.float64)
