"""The table of the rows: which columns it has, and what stands in a cell."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..numbers import multiple_of, share, state_of, times, used_errors
from ..results import Row

__all__ = ["COLUMNS", "Cell", "Column", "cells_of"]


class Column(NamedTuple):
    """A column: its heading, what it means, whether it holds numbers, and whether it is shown only when asked for."""

    heading: str
    meaning: str
    number: bool = False
    more: bool = False


class Cell(NamedTuple):
    """What is shown, and for numbers what is sorted by: "" comes last."""

    text: str
    key: str = ""


COLUMNS = (
    Column("layer", "number of the layer in the cfg", number=True),
    Column("type", "the section of the cfg"),
    Column("stage", "which value of the layer: sums before the batchnorm, normal after it, post the layer's output"),
    Column("their tensor", "the name that the other side has for it"),
    Column("match", "how the two were put together"),
    Column("free", "largest difference as a share of the range, each side on its own", number=True),
    Column("alone", "the same with the other side's values as input of this one step", number=True),
    Column("noise", "what rounding alone is expected to give", number=True),
    Column("budget", "up to where a difference counts as rounding", number=True),
    Column("ampl.", "how many times as large the difference is when earlier ones come through", number=True),
    Column("99 %", "99th percentile of the differences alone", number=True, more=True),
    Column("cosine", "one minus the cosine of the angle between the two, alone", number=True, more=True),
    Column("SQNR", "signal to noise in dB, alone", number=True, more=True),
    Column("flips", "values of another sign, alone", number=True, more=True),
    Column("first NaN", "image, channel, row and column of the other side's first NaN", more=True),
    Column("state", "the difference alone as a multiple of the rounding noise of its channel", number=True),
)


def cells_of(row: Row) -> tuple[Cell, ...]:
    """A cell for each of `COLUMNS`."""
    free, alone = row.free, used_errors(row)
    nan = next((errors.nan for errors in (alone, free) if errors and errors.nan is not None), None)
    return (
        Cell("input" if row.layer < 0 else str(row.layer), str(row.layer)),
        Cell(row.type),
        Cell(row.stage),
        Cell(row.tensor),
        Cell(row.match),
        _cell(free.largest if free else None),
        _cell(alone.largest if alone else None),
        _cell(row.noise),
        _cell(row.budget),
        Cell(times(row.amplification), _key(row.amplification)),
        _cell(alone.p99 if alone else None),
        _cell(1 - alone.cosine if alone else None),
        Cell(times(alone.sqnr), _key(alone.sqnr)) if alone else Cell(""),
        Cell(f"{alone.flips:,}", str(alone.flips)) if alone else Cell(""),
        Cell("" if nan is None else ", ".join(str(place) for place in nan)),
        Cell(state_of(row), _key(multiple_of(row))),
    )


def _cell(value: float | None) -> Cell:
    return Cell(share(value), "" if value is None else _key(value))


def _key(value: float) -> str:
    """As JavaScript reads it."""
    if math.isnan(value):
        return ""
    return repr(float(value)) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
