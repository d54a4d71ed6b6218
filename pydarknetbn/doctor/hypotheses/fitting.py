"""How a fitted number becomes a plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..situation import Hypothesis, Trial

__all__ = ["as_well", "short", "snap"]


def as_well(score: float, best: float) -> bool:
    """Whether a hypothesis of that residual explains as much as one of the other.

    What rounding leaves over is the same for both, so a tenth more, or a twentieth of the noise, is already the hypothesis's own.
    """
    return score <= 1.1 * best + 0.05


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
