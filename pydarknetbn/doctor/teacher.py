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
from .steps import INPUT, Step, input_step

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
            value = runs[step.number](step, inputs) if step.number in runs else self.runner.run(step, inputs)
            if value is None or value.shape[1:] != tuple(step.shape):
                return None
            made[step.number] = value
        return made[self.step.number]


@dataclass(frozen=True, slots=True)
class Value:
    """What is kept of a step while later ones need it.

    Args:
        array: the value.
        moved: the same after rounding of its own in this step and the unseen ones before it; None for the other side's own.
        steps: its segment so far.
    """

    array: Array
    moved: Array | None
    steps: tuple[Step, ...]


def walk(
    runner: Runner, x: Array, theirs: Mapping[int, Array], *, unit: float = UNIT, forced: bool = True, known: bool = True
) -> Iterator[Segment | Step]:
    """Goes through the network on the other side's values: a segment where it shows one, else the step.

    Args:
        runner: of our network.
        x: the other side's input.
        theirs: number of a step -> its value.
        unit: what one rounding changes at most, relatively.
        forced: later steps get the other side's values; else ours, and every segment begins at the input.
        known: x is what the other side was given; else it may be another, and is a step of the first segments.
    """
    last_use = {number: step.number for step in runner.steps for number in step.inputs}
    held = {INPUT: Value(x, None, () if known else (input_step(runner.net),))}
    for step in runner.steps:
        given = [held[number] for number in step.inputs]
        inputs = [value.array for value in given]
        ours = runner.run(step, inputs)
        own = noise_of(runner, step, inputs, ours, unit=unit)
        moved = _passed_on(runner, step, given, ours)
        steps = tuple(sorted({each for value in given for each in value.steps} | {step}, key=lambda each: each.number))
        if step.number in theirs:
            values = {number: value.array for number, value in held.items()}
            noise = own if moved is ours else own + peak(moved - ours)
            yield Segment(runner, steps, values, theirs[step.number], ours, noise)
        else:
            yield step
        if forced and step.number in theirs:
            held[step.number] = Value(theirs[step.number], None, ())
        else:
            held[step.number] = Value(ours, jittered(moved, own, step.number), steps)
        _let_go(held, runner, last_use, theirs)


def _let_go(held: dict[int, Value], runner: Runner, last_use: Mapping[int, int], theirs: Mapping[int, Array]) -> None:
    """Forgets ours of what is inside a layer, once no later step takes it, nor a segment that is still open."""
    now = max(held)
    needed = {number for value in held.values() for step in value.steps for number in step.inputs}
    inner = [number for number in held if number != INPUT and number not in theirs and runner.steps[number].stage != "post"]
    for number in inner:
        if last_use.get(number, -1) <= now and number not in needed:
            del held[number]


def _passed_on(runner: Runner, step: Step, given: Sequence[Value], ours: Array) -> Array:
    """What the step makes of the rounding of unseen steps before it: its value for moved inputs, without rounding of its own."""
    if all(value.moved is None for value in given):
        return ours
    with np.errstate(all="ignore"):
        return runner.run(step, [value.array if value.moved is None else value.moved for value in given])
