"""Where our values are in the order of the other side's: the best alignment of both by shape, operation, name and quantiles."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .._native import Array
from .operations import agreement, families, passes
from .pool import Candidate, Pool
from .running import Runner
from .steps import Step

__all__ = ["Alignment"]

Grid = npt.NDArray[np.float64]
_SHARES = np.linspace(0.02, 0.98, 33)
_OF_LAYER = re.compile(r"(?:^|[._/])(\d+)(?=[._/:\[ ]|$)")


class Alignment:
    """Of all our steps with all of the other side's values; no two of its pairs cross.

    Args:
        runner: of our network, which runs once.
        pool: the other side's values.
        x: our input.
    """

    def __init__(self, runner: Runner, pool: Pool, x: Array) -> None:
        kinds = families(pool.tensors)
        self._scores = np.full((len(runner.steps), len(pool.tensors)), -np.inf)
        self._best: dict[tuple[int, int], Candidate] = {}
        quantiles: dict[int, Grid] = {}
        for step, value in runner.forward(x):
            candidates = pool.of(step)
            ours = _quantiles(candidates.sample(value))
            for candidate, sample in zip(candidates.all, candidates.samples, strict=True):
                theirs = quantiles.setdefault(candidate.index, _quantiles(sample))
                score = _likeness(ours, theirs) + _hints(runner, step, candidate, kinds[candidate.index])
                pair = (step.number, candidate.index)
                if score > self._scores[pair]:
                    self._scores[pair], self._best[pair] = score, candidate

    def pairs(self, known: Mapping[int, int]) -> dict[int, Candidate]:
        """Number of a step -> candidate; steps without one are left out.

        Args:
            known: number of a step -> index of the tensor that it is.
        """
        scores = self._scores.copy()
        for number, index in known.items():
            if number >= 0:  # worth more than all else, and no other pair is made of either
                scores[number, :] = scores[:, index] = -np.inf
                scores[number, index] = 5.0
        return {pair[0]: self._best[pair] for pair in _path(scores) if pair in self._best}


def _hints(runner: Runner, step: Step, candidate: Candidate, family: str) -> float:
    layer = runner.layer_of(step)
    score = agreement(step, layer, family) - 0.1 * candidate.layout.rank
    numbers = _OF_LAYER.findall(candidate.tensor.name)
    if numbers and int(numbers[0]) == step.layer:
        score += 0.3
    return score - (1.5 if passes(layer) else 0.0)


def _quantiles(sample: Array) -> Grid:
    finite = sample[np.isfinite(sample)]
    return np.quantile(finite, _SHARES) if finite.size else np.zeros(len(_SHARES))


def _likeness(ours: Grid, theirs: Grid) -> float:
    """1 for the same distribution, 0 for one that is as far off as it is wide."""
    spread = float(np.mean(np.abs(ours - np.median(ours))) + np.mean(np.abs(theirs - np.median(theirs))))
    apart = float(np.mean(np.abs(ours - theirs)))
    if not spread:
        return float(apart == 0)
    return max(0.0, 1 - apart / spread)


def _path(scores: Grid) -> list[tuple[int, int]]:
    """The pairs of the best path; it goes on by a pair, or leaves out a row or a column."""
    rows, columns = scores.shape
    total = np.zeros((rows + 1, columns + 1))
    for row in range(rows):
        taken = np.concatenate([[0.0], total[row, :-1] + scores[row]])
        total[row + 1] = np.maximum.accumulate(np.maximum(total[row], taken))
    pairs: list[tuple[int, int]] = []
    row, column = rows, columns
    while row and column:
        if total[row, column] == total[row, column - 1]:
            column -= 1
        elif total[row, column] == total[row - 1, column]:
            row -= 1
        else:
            row, column = row - 1, column - 1
            pairs.append((row, column))
    return pairs[::-1]
