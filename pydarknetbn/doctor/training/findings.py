"""What a judge of one module says: rows of quantities, and causes that further modules may share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..noise import FACTOR, UNIT
from .formulas import Doubles

__all__ = ["Finding", "Quantity", "multiple_of", "rounding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause.

    Args:
        kind: such as "training.momentum".
        words: what the port does and what Darknet does.
        fix: in PyTorch's words.
        values: what was recovered.
    """

    kind: str
    words: str
    fix: str
    values: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Quantity:
    """One compared quantity of a module.

    Args:
        stage: what it is, such as "rolling_mean".
        ours, theirs: its values.
        multiple: the largest difference in terms of rounding.
        left: the same with `finding` applied to our side.
        finding: what explains it; None.
        share: the largest difference as a share of the largest value.
    """

    stage: str
    ours: Doubles
    theirs: Doubles
    multiple: float
    left: float = 0.0
    finding: Finding | None = None

    @property
    def bad(self) -> bool:
        """It is more than rounding."""
        return not self.multiple <= FACTOR

    @property
    def share(self) -> float:
        """The largest difference as a share of the largest of our values."""
        largest = float(np.abs(self.ours).max(initial=0)) or 1.0
        return float(np.abs(self.ours - self.theirs).max(initial=0)) / largest


def rounding(*sizes: Doubles) -> Doubles:
    """What rounding makes of a sum of terms of these sizes."""
    return np.asarray(2 * UNIT * sum(sizes[1:], start=sizes[0]))


def multiple_of(ours: Doubles, theirs: Doubles, noise: Doubles) -> float:
    """The largest difference as a multiple of its noise; infinite where only one is a number."""
    apart = np.abs(ours - theirs)
    with np.errstate(all="ignore"):
        ratio = np.where(apart == 0, 0, apart / np.maximum(noise, np.finfo(np.float32).tiny))
    return float(np.where(np.isnan(ratio), np.inf, ratio).max(initial=0))
