"""Which of the other side's values stands for which of a bundle's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .bundle import Golden, GoldenStep
from .checking import keys_of

__all__ = ["named_pairs"]


def named_pairs(golden: Golden, given: Iterable[str], names: Mapping[str, str] | None) -> dict[str, str]:
    """Key of a bundle's step -> name of the other side's value.

    Args:
        golden: the bundle.
        given: the other side's names.
        names: maps its names to the bundle's ("12.post", "12_convolutional" or "12"), or the bundle's to its; where it says
            nothing of a value, that value's own name counts.

    Raises:
        ValueError: an entry that names a value which neither side has.
    """
    steps = {key: step for step in golden.steps for key in keys_of(step)}
    theirs = {str(name): name for name in given}
    found: dict[str, str] = {}
    for left, right in (names or {}).items():
        step, name = _entry(str(left), str(right), steps, theirs)
        found[step.key] = theirs[name]
    taken = set(found.values())
    for name, original in theirs.items():
        if name in steps and original not in taken:
            found.setdefault(steps[name].key, original)
    return found


def _entry(left: str, right: str, steps: Mapping[str, GoldenStep], theirs: Mapping[str, str]) -> tuple[GoldenStep, str]:
    if left in theirs and right in steps:
        return steps[right], left
    if right in theirs and left in steps:
        return steps[left], right
    ours = next((side for side in (right, left) if side in steps), None)
    side, there = ("activations have", theirs) if ours else ("golden bundle has", [step.key for step in steps.values()])
    missing = f"the {side} {_some(there)}"
    raise ValueError(f"names: {left!r}: {right!r} puts together what is not there; {missing}")


def _some(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:6]) + (f" and {len(unique) - 6} more" if len(unique) > 6 else "") if unique else "none"
