"""Which of the other side's values stands for which of a bundle's."""

from __future__ import annotations

from collections.abc import Iterable

from ..doctor.names import NameMap, read_names
from ..doctor.steps import Step
from ..layers import Shape
from .bundle import Golden, GoldenStep

__all__ = ["own_names", "told_names"]


def told_names(golden: Golden, given: Iterable[str], names: NameMap | None) -> dict[str, str]:
    """Key of a bundle's step -> the other side's name for it, as a map of names tells.

    Raises:
        CfgError: it names what one side does not have.
    """
    by_number = {step.number: step.key for step in golden.steps}
    told = read_names(names, [_step(step) for step in golden.steps], given)
    return {by_number[number]: name for number, name in told.items() if number in by_number}


def own_names(golden: Golden, given: Iterable[str]) -> dict[str, str]:
    """The same of values that are called as this package calls them: "12.post", "12_convolutional", "12"."""
    keys = {key: step.key for step in golden.steps for key in _keys(step)}
    found: dict[str, str] = {}
    for name in given:
        if name in keys:
            found.setdefault(keys[name], name)
    return found


def _keys(step: GoldenStep) -> tuple[str, ...]:
    stem = f"{step.layer}_{step.type}"
    full = (f"{step.layer}.{step.stage}", f"{stem}.{step.stage}", f"{step.layer} [{step.type}] {step.stage}")
    return (*full, stem, str(step.layer)) if step.stage == "post" else full


def _step(step: GoldenStep) -> Step:
    return Step(step.number, step.layer, step.kind, step.stage, (), Shape(*step.shape[1:]))
