"""Values that no later one depends on, as behind a weight of 0: a port may be wrong there and yet nothing after it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .pool import Candidate, Pool
from .running import Runner
from .steps import Step

__all__ = ["Found", "with_leftovers"]

_ALIKE = 1 / 1000

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "convolution": ("convolution", "folded"),
    "batchnorm": ("norm",),
    "activation": ("activation",),
    "dropout": ("move", "product"),
}
"""Kind of a step -> the operations that give its value."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a step is on the other side.

    Args:
        candidate: the value.
        how: "by name", "by content" or "by order and shape".
        certain: whether nothing else would fit as well.
    """

    candidate: Candidate
    how: str
    certain: bool = True


def with_leftovers(runner: Runner, pool: Pool, families: Sequence[str], found: Mapping[int, Found]) -> dict[int, Found]:
    """What was found, and for steps that were not the value of their operation that stands between their neighbors'.

    Args:
        runner: of our network.
        pool: the other side's values.
        families: of each of them, see `operations.families`.
        found: number of a step -> what it is.
    """
    made = dict(found)
    for step in runner.steps:
        if step.number not in made and step.kind in _FAMILIES and not _is_folded(runner, step, made, families):
            candidate = _between(pool, families, made, step)
            if candidate is not None:
                made[step.number] = Found(candidate, "by order and shape", False)
    return made


def _is_folded(runner: Runner, step: Step, found: Mapping[int, Found], families: Sequence[str]) -> bool:
    """Whether a later step of the layer is a convolution's value already."""
    later = [each for each in runner.steps[step.number + 1 : step.number + 3] if each.layer == step.layer and each.number in found]
    return step.kind == "convolution" and any(
        families[found[each.number].candidate.index] in ("convolution", "folded") for each in later
    )


def _between(pool: Pool, families: Sequence[str], found: Mapping[int, Found], step: Step) -> Candidate | None:
    used = {each.candidate.index for each in found.values()}
    before = max((found[number].candidate.index for number in found if number < step.number), default=-1)
    after = min((index for number, index in _indices(found) if number > step.number and index > before), default=len(families))
    candidates = pool.of(step)
    free = [
        candidate
        for candidate, repeated in zip(candidates.all, candidates.repeats, strict=True)
        if before < candidate.index < after and candidate.index not in used and not repeated
    ]
    own = [candidate for candidate in free if families[candidate.index] in _FAMILIES[step.kind]]
    if step.kind == "dropout":  # which most ports have nothing in the place of
        given = found.get(step.inputs[0])
        own = [candidate for candidate in own if given is not None and _is_masked(given.candidate, candidate)]
    if step.kind == "activation":  # which a port may leave out
        own = [candidate for candidate in own if candidate.index == before + 1]
    return own[0] if own else None


def _is_masked(given: Candidate, candidate: Candidate) -> bool:
    """Whether a value is another with some numbers 0 and the rest multiplied by one factor."""
    before, after = given.read(), candidate.read()
    kept = (before != 0) & (after != 0)
    if not 0 < kept.sum() < np.count_nonzero(before):
        return False
    factors = after[kept] / before[kept]
    return bool(np.ptp(factors) <= _ALIKE * np.abs(factors).max())


def _indices(found: Mapping[int, Found]) -> list[tuple[int, int]]:
    return [(number, each.candidate.index) for number, each in found.items()]
