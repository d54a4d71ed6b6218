"""How the numbers of a comparison are written, on the command line and in the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .results import Errors, Row

__all__ = ["multiple_of", "ranges", "share", "state_of", "times", "used_errors"]


def share(value: float | None) -> str:
    """An error or a budget, such as "1.2e-6"; "" where there is none."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return _endless(value)
    if value == 0:
        return "0"
    number, exponent = f"{value:.1e}".split("e")
    return f"{number}e{int(exponent)}"


def times(value: float) -> str:
    """A multiple, such as "1.3", "47" or "12,400"; "" for NaN."""
    if not math.isfinite(value):
        return _endless(value)
    if value >= 1e7:
        return share(value)
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _endless(value: float) -> str:
    return "" if math.isnan(value) else "∞" if value > 0 else "-∞"


def used_errors(row: Row) -> Errors | None:
    """Those that are held against the budget."""
    return row.alone or row.free


def multiple_of(row: Row) -> float:
    """The difference on equal input as a multiple of the rounding noise; NaN where there is no value of the other side."""
    errors = used_errors(row)
    if errors is None:
        return math.nan
    if row.multiple or not errors.largest:
        return row.multiple
    return errors.largest / row.noise if row.noise > 0 else math.inf


def state_of(row: Row) -> str:
    """A few words."""
    if used_errors(row) is None:
        return "not shown"
    if not row.bad:
        return "within"
    multiple = times(multiple_of(row))
    told = f"{multiple} x noise" if multiple not in ("", "∞") else "no number"
    return told if row.cause is None else f"{told}, cause {row.cause + 1}"


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in rising order, neighbors joined: "0, 3-7"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(str(end) for end in run) for run in runs)
