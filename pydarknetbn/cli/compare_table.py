"""A comparison in the terminal: the verdict, what stands behind it, and the rows that matter."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ..dialect import EVIDENCE
from ..doctor.numbers import multiple_of, ranges, share, state_of, times, used_errors
from ..doctor.results import Cause, Comparison, Row
from . import common

__all__ = ["print_comparison", "shown_rows"]

_BAD_AT_MOST = 6
_CLEAN_ROWS = 5
_COLUMNS = ("layer", "type", "stage", "their tensor", "match", "free", "alone", "noise", "budget", "ampl.", "state")
_WIDE_ALONE = ("match", "noise", "ampl.")
_CUT = ("their tensor", "match")
_WIDE, _LEAST = 140, 8
_RIGHT = ("layer", "free", "alone", "noise", "budget", "ampl.")


def print_comparison(out: Console, found: Comparison, *, quiet: bool, every: bool) -> None:
    """Prints it.

    Args:
        out: where to.
        found: what was found.
        quiet: the verdict alone.
        every: all rows instead of those that matter.
    """
    out.print(_text(found.verdict, style="bold"))
    if quiet:
        return
    for cause in found.causes:
        _print_cause(out, cause, found)
    shown = list(range(len(found.rows))) if every else shown_rows(found)
    if shown:
        out.print()
        out.print(_table(found.rows, shown, width=out.width))
        _print_rest(out, found, shown)
    out.print()
    _print_sides(out, found)


def shown_rows(found: Comparison) -> list[int]:
    """Numbers of the rows that matter: those over their budget with their neighbors; of a clean port those nearest to it."""
    rows = found.rows
    bad = [number for number, row in enumerate(rows) if row.bad][:_BAD_AT_MOST]
    if bad:
        return sorted({near for number in bad for near in (number - 1, number, number + 1) if 0 <= near < len(rows)})
    known = [number for number, row in enumerate(rows) if used_errors(row)]
    return sorted(sorted(known, key=lambda number: -multiple_of(rows[number]))[:_CLEAN_ROWS])


def _print_cause(out: Console, cause: Cause, found: Comparison) -> None:
    """What the verdict has not told."""
    facts = {
        "cause": "" if cause.words in found.verdict else cause.words,
        "proof": "" if cause.evidence in found.verdict else cause.evidence,
        "fix": cause.fix,
        "layers": ranges(cause.layers) if any(layer >= 0 for layer in cause.layers) else "",
        "or": "; ".join(cause.alternatives),
    }
    out.print()
    for name, text in facts.items():
        if text:
            _fact(out, name, text)


def _fact(out: Console, name: str, text: str) -> None:
    """A name in bold and a text that wraps beside it."""
    grid = common.Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=7, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(name, _text(text))
    out.print(grid)


def _table(rows: Sequence[Row], shown: Sequence[int], *, width: int) -> common.Table:
    """The rows, as wide as the terminal at most; a line of dots where some are left out."""
    narrow = width < _WIDE
    columns = [name for name in _COLUMNS if not narrow or name not in _WIDE_ALONE]
    cells = {number: _cells(rows[number], narrow=narrow) for number in shown}
    gap = 1 if narrow else 2
    longest = {name: max(len(name), *(len(each[name]) for each in cells.values())) for name in columns}
    room = width - sum(longest[name] + gap for name in columns if name not in _CUT)
    made = common.table(*columns, right=_RIGHT, gap=gap)
    each_room = room // sum(name in columns for name in _CUT) - gap
    before = shown[0] - 1
    for number, each in cells.items():
        if number != before + 1 and any(rows[place].bad for place in shown):
            made.add_row("…")
        before = number
        cut = {"their tensor": _cut(each["their tensor"], each_room), "match": _cut(each["match"][::-1], each_room)[::-1]}
        made.add_row(*(_text((each | cut)[name]) for name in columns), style="bold red" if rows[number].bad else "")
    return made


def _text(text: str, style: str = "") -> Text:
    """Without markup, and without characters that would steer the terminal."""
    return Text("".join(each if each.isprintable() else "?" for each in text), style=style)


def _cut(text: str, room: int) -> str:
    """Its end, where names differ."""
    room = max(room, _LEAST)
    return text if len(text) <= room else "…" + text[1 - room :]


def _cells(row: Row, *, narrow: bool) -> dict[str, str]:
    alone = used_errors(row)
    return {
        "layer": "input" if row.layer < 0 else str(row.layer),
        "type": row.type,
        "stage": row.stage,
        "their tensor": row.tensor,
        "match": row.match,
        "free": share(row.free.largest if row.free else None),
        "alone": share(alone.largest if alone else None),
        "noise": share(row.noise),
        "budget": share(row.budget),
        "ampl.": times(row.amplification),
        "state": state_of(row).replace(" x noise", " x") if narrow else state_of(row),
    }


def _print_rest(out: Console, found: Comparison, shown: Sequence[int]) -> None:
    if len(shown) == len(found.rows):
        return
    over = sum(row.bad for row in found.rows)
    told = f"{over} of {len(found.rows)} values are over their budget" if over else "the nearest to their budgets"
    text = f"{told}; {len(shown)} of {len(found.rows)} rows are shown, all with --all"
    out.print(Text(text, style="dim"))


def _print_sides(out: Console, found: Comparison) -> None:
    worth = EVIDENCE.get(found.evidence_of_profile, "")
    proof = f" ({found.evidence_of_profile}: {worth})" if worth else ""
    _fact(out, "ours", f"{found.name}, profile {found.profile}{proof}")
    _fact(out, "theirs", found.source)
    for note in found.notes:
        _fact(out, "note", note)
    if found.unmatched:
        count = len(found.unmatched)
        few = ", ".join(found.unmatched[:4]) + (", …" if count > 4 else "")
        _fact(out, "unused", f"{count} value{'s' if count > 1 else ''} of the other side: {few}")
