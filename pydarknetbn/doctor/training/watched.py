"""What is kept of a training step of another program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..._native import Array

__all__ = ["Step", "Watched"]


@dataclass(slots=True)
class Watched:
    """One module that has arrays of its own, in one step.

    Args:
        name: its path.
        module: itself.
        before, after: its own parameters and buffers by name, around the step.
        storage: where each of them lies.
        x, output: what went in and came out; None where it did not run.
        output_gradient, input_gradient: of the sum that goes backward; None where nothing arrived.
        gradients: of its parameters, None where there is none.
        runs: how often it ran.
    """

    name: str
    module: Any
    before: dict[str, Array]
    storage: dict[str, int]
    after: dict[str, Array] = field(default_factory=dict)
    x: Array | None = None
    output: Array | None = None
    output_gradient: Array | None = None
    input_gradient: Array | None = None
    gradients: dict[str, Array | None] = field(default_factory=dict)
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The modules in the order in which they ran, those that did not at the end; the outputs, and the deltas that went in there."""

    watched: tuple[Watched, ...]
    outputs: tuple[Array, ...]
    deltas: tuple[Array, ...]
