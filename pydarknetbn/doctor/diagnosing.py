"""Why a value is another: hypotheses are tried on our own steps, and one is accepted only where nothing but rounding is left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .._native import Array
from .hypotheses import GENERATORS
from .noise import FACTOR
from .situation import Hypothesis, Place
from .steps import INPUT, Step
from .teacher import Runs, Segment

__all__ = ["Found", "diagnose", "explains"]

_POINTWISE = frozenset({"batchnorm", "biases", "activation"})
_SAMPLE = 4096  # pixels of an image on which a number is fitted
_NEAR = 4.0  # a sample of a right hypothesis is within that many budgets
_CLEARLY = 3.0  # of two that explain a value, one that leaves that many times less is the better one
_PAIRED = 6  # hypotheses that a second one is tried on top of
_FAR = 6  # layers of a segment from which a fault is sought everywhere at once alone: each trial computes all of them


@dataclass(frozen=True, slots=True)
class Found:
    """Hypotheses that explain a value.

    Args:
        hypotheses: all together; more than one where a value has several faults.
        before, after: the largest difference without and with them, in multiples of the noise.
        others: different ones that explain it as well.
    """

    hypotheses: tuple[Hypothesis, ...]
    before: float
    after: float
    others: tuple[Hypothesis, ...] = ()


@dataclass(frozen=True, slots=True)
class _Score:
    """One hypothesis, tried."""

    hypothesis: Hypothesis
    steps: tuple[Step, ...]
    rms: float
    largest: float

    @property
    def fits(self) -> bool:
        return self.largest <= FACTOR


def explains(segment: Segment, hypotheses: Sequence[Hypothesis], *, picture: Array | None = None) -> bool:
    """Whether hypotheses, applied to all steps of their kinds, leave nothing but rounding of a segment's difference."""
    runs: Runs = {}
    for hypothesis in hypotheses:
        runs |= _runs(segment, hypothesis, segment.steps, picture)
    value = segment.rerun(runs) if runs else None
    return value is not None and segment.left_over(value)[1] <= FACTOR


def diagnose(segment: Segment, *, picture: Array | None = None, kinds: frozenset[str] | None = None) -> Found | None:
    """The fault that explains a segment's difference, or two together.

    Args:
        segment: with a difference over the budget.
        picture: of which the network's input was made.
        kinds: of the hypotheses to try; None tries all.

    Returns:
        None where nothing explains it.
    """
    scores = [score for score in _tried(segment, picture, {}) if kinds is None or score.hypothesis.kind in kinds]
    found = _best(segment, [score for score in scores if score.fits])
    if found or kinds is not None or _is_far(segment):
        return found
    return _pair(segment, picture, scores)


def _best(segment: Segment, fitting: Sequence[_Score], before: tuple[Hypothesis, ...] = ()) -> Found | None:
    if not fitting:
        return None
    least = min(score.largest for score in fitting)
    close = [score for score in fitting if score.largest <= max(least * _CLEARLY, 1.0)]
    chosen = min(close, key=lambda score: score.hypothesis.parameters)  # the first of equals
    others = {score.hypothesis.kind: score.hypothesis for score in close if score.hypothesis.kind != chosen.hypothesis.kind}
    return Found((*before, chosen.hypothesis), segment.multiple, chosen.largest, tuple(others.values()))


def _pair(segment: Segment, picture: Array | None, scores: Sequence[_Score]) -> Found | None:
    """Two hypotheses on different steps; the first ones are those that leave least."""
    known: dict[str, _Score] = {}
    for score in sorted(scores, key=lambda score: score.rms):
        known.setdefault(score.hypothesis.kind, score)
    for first in list(known.values())[:_PAIRED]:
        runs = _runs(segment, first.hypothesis, first.steps, picture)
        fitting = [score for score in _tried(segment, picture, runs) if score.fits]
        found = _best(segment, fitting, (first.hypothesis,))
        if found:
            return found
    return None


# --- one step's hypotheses -----------------------------------------------------------------------------------------------------


def _tried(segment: Segment, picture: Array | None, applied: Runs) -> Iterator[_Score]:
    """Every hypothesis at every step of a segment, on top of those applied already."""
    for step in _places(segment):
        generator = GENERATORS.get(step.kind)
        if step.number in applied or generator is None:
            continue
        bench = _Bench(segment, step, picture, applied)
        for hypothesis in generator(bench.place, bench.trial):
            score = bench.score(hypothesis)
            if score is not None:
                yield score


def _is_far(segment: Segment) -> bool:
    return len({step.layer for step in segment.steps}) > _FAR


def _places(segment: Segment) -> Sequence[Step]:
    """Where hypotheses are made: at each step, in a far segment at the first of each kind."""
    if not _is_far(segment):
        return segment.steps
    first: dict[str, Step] = {}
    for step in segment.steps:
        first.setdefault(step.kind, step)
    return tuple(first.values())


def _runs(segment: Segment, hypothesis: Hypothesis, steps: Sequence[Step], picture: Array | None) -> Runs:
    """Number of each step that a hypothesis changes -> how it is computed then."""

    def run(step: Step, inputs: Sequence[Array]) -> Array | None:
        return hypothesis.runs[step.kind](Place(segment.runner, step, inputs, segment.values, picture))

    return {step.number: run for step in steps if step.kind in hypothesis.runs and hypothesis.local in (None, step.layer)}


class _Bench:
    """Where the hypotheses of one step are tried."""

    def __init__(self, segment: Segment, step: Step, picture: Array | None, applied: Runs) -> None:
        self.segment, self.step, self.picture, self.applied = segment, step, picture, applied
        before = [each for each in segment.steps if each.number < step.number]
        values = dict(segment.values)
        if applied:
            values |= self._values_before(before)
        self.known = {each.number: values[each.number] for each in before}
        self.inputs = [values[number] for number in step.inputs]
        theirs = segment.theirs if step == segment.step else None
        self.place = Place(segment.runner, step, self.inputs, values, picture, theirs)
        self.sampled = self._sample()

    def _values_before(self, before: Sequence[Step]) -> dict[int, Array]:
        made: dict[int, Array] = {}
        for each in before:
            inputs = [made[number] if number in made else self.segment.values[number] for number in each.inputs]
            changed = self.applied[each.number](each, inputs) if each.number in self.applied else None
            fits = changed is not None and changed.shape[1:] == tuple(each.shape)
            made[each.number] = changed if changed is not None and fits else self.segment.runner.run(each, inputs)
        return made

    def _sample(self) -> tuple[Place, Array] | None:
        """The place and the other side's value at some pixels, where every step from here on looks at one pixel alone."""
        rest = [each for each in self.segment.steps if each.number >= self.step.number]
        chain = all(each.inputs == (before.number,) for before, each in pairwise(rest))
        x = self.inputs[0]
        pixels = x.shape[2] * x.shape[3]
        if not chain or any(each.kind not in _POINTWISE for each in rest) or pixels <= _SAMPLE:
            return None
        at = np.sort(np.random.default_rng(self.step.number).choice(pixels, _SAMPLE, replace=False))

        def cut(array: Array) -> Array:
            return np.ascontiguousarray(array.reshape(*array.shape[:2], 1, -1)[..., at])

        alike = {number: cut(value) for number, value in self.place.values.items() if value.shape == x.shape}
        sampled = replace(self.place, inputs=[cut(x)], values={**self.place.values, **alike}, whole=self.inputs)
        return sampled, cut(self.segment.theirs)

    def trial(self, hypothesis: Hypothesis) -> float:
        """See `situation.Trial`."""
        if self.sampled is None:
            return self._whole(hypothesis, self._targets(hypothesis)[0])[0]
        place, theirs = self.sampled
        value = (
            hypothesis.runs[self.step.kind](place)
            if self.step.kind in hypothesis.runs
            else self.segment.runner.run(self.step, place.inputs)
        )
        for each in self.segment.steps:
            if each.number > self.step.number and value is not None:
                value = self._next(hypothesis, each, value)
        if value is None or value.shape != theirs.shape:
            return math.inf
        return self.segment.left_over(value, theirs)[0]

    def _next(self, hypothesis: Hypothesis, step: Step, value: Array) -> Array | None:
        changed = step.kind in hypothesis.runs and step.layer == self.step.layer
        place = replace(self.place, step=step, inputs=[value])
        if changed:
            return hypothesis.runs[step.kind](place)
        return self.segment.runner.run(step, [value])

    def score(self, hypothesis: Hypothesis) -> _Score | None:
        """How well a hypothesis explains the whole value: at this layer, or at every step of its kinds."""
        if self.sampled is not None and self.trial(hypothesis) > _NEAR * FACTOR:
            return _Score(hypothesis, self._own(hypothesis), self.trial(hypothesis), math.inf)
        best = None
        for steps in self._targets(hypothesis):
            rms, largest = self._whole(hypothesis, steps)
            if best is None or largest < best.largest:
                best = _Score(hypothesis, steps, rms, largest)
        return best

    def _targets(self, hypothesis: Hypothesis) -> Sequence[tuple[Step, ...]]:
        """The steps to change: those of this layer, or all of their kinds."""
        own, everywhere = self._own(hypothesis), self._everywhere(hypothesis)
        if _is_far(self.segment):
            return (everywhere,)
        return (own,) if own == everywhere else (own, everywhere)

    def _own(self, hypothesis: Hypothesis) -> tuple[Step, ...]:
        return tuple(each for each in self._everywhere(hypothesis) if each.layer == self.step.layer)

    def _everywhere(self, hypothesis: Hypothesis) -> tuple[Step, ...]:
        fit = hypothesis.local
        return tuple(each for each in self.segment.steps if each.kind in hypothesis.runs and fit in (None, each.layer))

    def _whole(self, hypothesis: Hypothesis, steps: Sequence[Step]) -> tuple[float, float]:
        runs = {**self.applied, **_runs(self.segment, hypothesis, steps, self.picture)}
        first = min((each.number for each in steps), default=INPUT)
        known = {number: value for number, value in self.known.items() if number < first}
        value = self.segment.rerun(runs, known)
        if value is None:
            return math.inf, math.inf
        return self.segment.left_over(value)
