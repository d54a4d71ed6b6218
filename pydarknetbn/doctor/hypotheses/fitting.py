"""Numbers of hypotheses: recovered from what they leave over, and made plain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..situation import Hypothesis, Trial, fit

__all__ = ["as_well", "recover", "short", "snap"]

_ROUNDS = 8
_PARABOLAS = 5


def as_well(score: float, best: float) -> bool:
    """Whether a hypothesis of that residual explains as much as one of the other.

    What rounding leaves over is nearly the same for both; what is a tenth more, and a third of the noise, is the hypothesis's own.
    """
    return score <= 1.1 * best + 0.3


def recover(make: Callable[[float], Hypothesis], trial: Trial, grid: Sequence[float]) -> float:
    """The positive number whose hypothesis explains most, as exactly as the noise lets it be known.

    Near the best number the square of what is left over is a parabola, whose lowest point three values give.

    Args:
        make: a hypothesis for a number.
        trial: how well one does.
        grid: numbers to begin with, in rising order.
    """
    found = [math.log(value) for value in grid]

    def of_log(value: float) -> Hypothesis:
        return make(math.exp(value)).with_values(log=value)

    def square(value: float) -> float:
        return trial(of_log(value)) ** 2

    best = float(fit(of_log, trial, found, rounds=_ROUNDS).values["log"])
    lowest = square(best)
    width = (found[-1] - found[0]) / (len(found) - 1) / 20
    for _ in range(_PARABOLAS):
        below, above = square(best - width), square(best + width)
        bend = below - 2 * lowest + above
        step = width / 2 * (below - above) / bend if math.isfinite(bend) and bend > 0 else 0.0
        tried = min(max(best + min(width, max(-width, step)), found[0]), found[-1])
        if (score := square(tried)) < lowest:
            best, lowest = tried, score
        width /= 8
    return math.exp(best)


def snap(make: Callable[[float], Hypothesis], trial: Trial, fitted: Hypothesis, values: Iterable[float]) -> Hypothesis:
    """The hypothesis of the best of some plain values, no longer a fitted one, where it explains as well; else the fitted one."""
    plain = [make(value) for value in values]
    scores = [trial(hypothesis) for hypothesis in plain]
    if not scores or not as_well(min(scores), trial(fitted)):
        return fitted
    return replace(plain[scores.index(min(scores))], parameters=0)


def short(value: float) -> str:
    """A number as people write it: 1e-5, 0.001, 1.016."""
    return f"{value:.4g}".replace("e-0", "e-")
