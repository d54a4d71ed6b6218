"""What a hypothesis is, and what it is told about the place where it is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from .._native import Array
from ..layers import Layer
from .running import Runner
from .steps import Step

__all__ = ["Generator", "Hypothesis", "Place", "Run", "Trial", "fit"]


@dataclass(frozen=True, slots=True)
class Place:
    """One step, about to be computed.

    Args:
        runner: of our network; `runner.run(step, inputs)` is what Darknet does.
        step: the step.
        inputs: what it is given, in the order of `step.inputs`; each (batch, c, h, w).
        values: number of a step -> what the other side has for it, or ours where it shows nothing; all steps before this one and
            the network's input as INPUT, as far as they are still held.
        picture: (c, height, width), 0 to 1, of which the network's input was made; None where that is not known.
        theirs: what the other side has for this very step; None where it shows but a later one.
        whole: the inputs, where `inputs` are but a sample of their pixels; see `batch`.
    """

    runner: Runner
    step: Step
    inputs: Sequence[Array]
    values: Mapping[int, Array]
    picture: Array | None = None
    theirs: Array | None = None
    whole: Sequence[Array] = ()

    @property
    def batch(self) -> Array:
        """The first input with all of its pixels, for statistics over the batch."""
        return self.whole[0] if self.whole else self.inputs[0]

    @property
    def layer(self) -> Layer:
        """The step's layer."""
        return self.runner.layer_of(self.step)

    @property
    def right(self) -> Array:
        """What Darknet gives here."""
        return self.runner.run(self.step, self.inputs)


Run: TypeAlias = Callable[[Place], Array | None]
"""What a port would give at a place; None where it does not apply or the sizes do not fit."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A fault that a port may have.

    Args:
        kind: what belongs together, such as "batchnorm.epsilon" or "convolution.padding".
        words: the cause as the middle of a sentence: "batchnorm normalizes with epsilon 0.001 inside the root, Darknet with 1e-05".
        runs: kind of a step -> what that step would give. Steps of other kinds, and other layers, stay right.
        fix: framework ("torch", "keras", "onnx", or "" for any other) -> what to change in its words.
        values: what was recovered, such as {"epsilon": 0.001}.
        parameters: how many numbers were fitted; of two that explain the same the one with fewer is taken.
        local: number of the layer that its runs are for; at another one the same fault is found anew. None: they are for any.
    """

    kind: str
    words: str
    runs: Mapping[str, Run]
    fix: Mapping[str, str]
    values: Mapping[str, float | int | str] = field(default_factory=dict)
    parameters: int = 0
    local: int | None = None

    def with_values(self, **values: float | int | str) -> Hypothesis:
        """The same with further values."""
        return replace(self, values={**self.values, **values})


Trial: TypeAlias = Callable[[Hypothesis], float]
"""How well a hypothesis explains the other side: the root of the mean square of what is left over, in multiples of the rounding
noise, over a sample of the values; infinite where it does not apply."""

Generator: TypeAlias = Callable[[Place, Trial], Iterable[Hypothesis]]
"""Hypotheses for a place; those with a free number fit it by the trial before they give them out."""


def fit(make: Callable[[float], Hypothesis], trial: Trial, grid: Sequence[float], *, rounds: int = 40) -> Hypothesis:
    """The hypothesis of the number that explains most.

    Args:
        make: a hypothesis for a number.
        trial: how well one does.
        grid: numbers to begin with, in rising order; the best one's neighbours enclose what is searched.
        rounds: of golden-section search between them.
    """
    scores = [trial(make(value)) for value in grid]
    best = int(np.argmin(scores))
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    found = _golden(lambda value: trial(make(value)), low, high, rounds)
    return make(min(found, grid[best], key=lambda value: trial(make(value))))


def _golden(score: Callable[[float], float], low: float, high: float, rounds: int) -> float:
    ratio = (np.sqrt(5.0) - 1) / 2
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    found = [score(value) for value in inner]
    for _ in range(rounds):
        if found[0] <= found[1]:
            high, inner[1], found[1] = inner[1], inner[0], found[0]
            inner[0] = high - ratio * (high - low)
            found[0] = score(inner[0])
        else:
            low, inner[0], found[0] = inner[0], inner[1], found[1]
            inner[1] = low + ratio * (high - low)
            found[1] = score(inner[1])
    return float(inner[int(found[1] < found[0])])


def several(*generators: Generator) -> Generator:
    """One generator of several."""

    def generate(place: Place, trial: Trial) -> Iterator[Hypothesis]:
        for generator in generators:
            yield from generator(place, trial)

    return generate
