"""How far a network's training is, and what it needs to go on bit for bit beside its parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._native import Array
from .settings import TrainSettings

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Of one network.

    Args:
        seen: images (rows) that it was trained with, to which the forks' programs add with each minibatch; None: as many as the
            header says.
        iteration: steps; None: as many as `seen` says, once a step tells how large it is.
        rows: of the last step, 0 before one.
        updates: of Adam, whose first estimates are corrected by their number.
        moments: Adam's first and second, by layer number and name of the parameter.
        cost: of the last minibatch, as the fork's program counts it.
        rate: learning rate of the last step.
        settings: what [net] says, once it was asked for, or what was set.
        told: what the profile trains wrongly was said.
    """

    seen: int | None = None
    settings: TrainSettings | None = None
    iteration: int | None = None
    rows: int = 0
    updates: int = 0
    moments: dict[tuple[int, str], tuple[Array, Array]] = field(default_factory=dict)
    cost: float = 0.0
    rate: float = 0.0
    told: bool = False

    def of_a_clone(self) -> Progress:
        """What a copy of the network begins with: as far as this one, its moments and random numbers its own."""
        return Progress(seen=self.seen, settings=self.settings, iteration=self.iteration, rows=self.rows)
