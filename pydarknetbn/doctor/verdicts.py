"""What was found, as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from .diagnosing import Found
from .precision import Half
from .results import Cause, Comparison, Row
from .teacher import Segment

__all__ = ["cause_of", "half_cause", "verdict"]

_NAMED = 5  # names that a sentence tells at most
_STAGES = {"sums": "before its batchnorm", "normal": "after its batchnorm", "post": "", "boxes": "its boxes", "input": ""}


def cause_of(found: Found, segment: Segment, layers: tuple[int, ...], framework: str) -> tuple[Cause, ...]:
    """One cause for each hypothesis that was accepted.

    Args:
        found: them.
        segment: where they were found.
        layers: that they explain.
        framework: in whose words the fixes are.
    """
    place = _place(segment)
    together = " together" if len(found.hypotheses) > 1 else ""
    evidence = (
        f"{place} differs by {_times(found.before)} the rounding noise; with that{together} applied to Darknet's side "
        f"{_times(found.after)} is left"
    )
    return tuple(
        Cause(
            kind=each.kind,
            words=each.words,
            fix=each.fix.get(framework, each.fix.get("", "")),
            evidence=evidence,
            before=found.before,
            after=found.after,
            layers=tuple(dict.fromkeys(layers)),
            values=each.values,
            alternatives=tuple(other.words for other in found.others),
        )
        for each in found.hypotheses
    )


def half_cause(half: Half, framework: str, rows: Sequence[Row]) -> Cause:
    """Half precision: no fault, but what the differences come from."""
    largest = max((row.alone.largest for row in rows if row.alone), default=0.0)
    return Cause(
        kind="half.precision",
        words=f"the port computes in {half.name}, Darknet in float32",
        fix={"torch": "module.float()", "onnx": "export with float32"}.get(framework, "compute in float32"),
        evidence=f"its values are numbers of {half.name}, and one layer differs by at most {largest:.1e} of its range",
        before=largest,
        after=0.0,
        layers=(),
        values={"type": half.name},
    )


def verdict(comparison: Comparison) -> str:
    """One sentence."""
    rows = comparison.rows
    if not rows:
        return "nothing was compared: the two sides share no value; give names, or another kind of other side"
    unexplained = [row for row in rows if row.bad and row.cause is None]
    first = next((row for row in rows if row.bad), None)
    if first is None:
        return _clean(comparison)
    if first.cause is None and not first.tensor:
        return f"the other side has no value of the size of {_row(first)}; a layer before it gives another size there"
    if first.cause is None:
        where = f"at {_row(first)}, {_times(first.multiple)} the rounding noise"
        doubt = "" if first.certain else f"; that {first.tensor} is this value is uncertain, see names"
        return f"unknown cause, first {where}{doubt}"
    cause = comparison.causes[first.cause]
    several = "" if len(cause.layers) < 2 else f" and {len(cause.layers) - 1} more"
    rest = f"; {len(unexplained)} more values differ for other reasons" if unexplained else ""
    maybe = f" (or {cause.alternatives[0]})" if cause.alternatives else ""
    fix = f"; fix: {cause.fix}" if cause.fix else ""
    return f"{_row(first)}{several}: {cause.words}{maybe}: {cause.evidence}{fix}{rest}"


def _clean(comparison: Comparison) -> str:
    rows = comparison.rows
    worst = max((row for row in rows if row.cause is None), key=lambda row: row.multiple, default=rows[0])
    notes = "".join(f"; {cause.words}, which is no fault: {cause.evidence}" for cause in comparison.causes)
    found = f"all {len(rows)} values that the two sides share are within rounding, at most {_times(worst.multiple)} its noise"
    named = [name for name in comparison.unmatched if comparison.source == "arrays"]
    left = f"; not compared, since no value of ours is like them: {', '.join(named[:_NAMED])}" if named else ""
    return f"clean: {found} ({_row(worst)}){left}{notes}"


def _row(row: Row) -> str:
    if row.layer < 0:
        return "the network's input"
    stage = _STAGES[row.stage]
    return f"layer {row.layer} [{row.type}] (line {row.line}){', ' + stage if stage else ''}"


def _place(segment: Segment) -> str:
    if segment.step.layer < 0:
        return "the network's input"
    layer = segment.runner.net.layers[segment.step.layer]
    return f"layer {layer.index} [{layer.type}]"


def _times(number: float) -> str:
    return f"{number:.0f} times" if number >= 10 else f"{number:.1f} times"
