"""The README's tables of the profiles beside other frameworks, from what `tools/parity.py` recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from parity import LAYOUTS, QUANTITIES, RECORD, compared, far_from_zero, run, state
from parity_layers import Floats, Ours
from pydarknetbn.dialect import profile_named, profiles

__all__ = ["COLUMNS", "PARTS", "ROUNDING", "distances", "far_table", "headings", "parity_table", "quantity_table", "recorded"]

ROUNDING = 1e-6
"""Relative to the largest value: what the order of a framework's sums may take."""

COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "PyTorch": ("torch",),
        "Keras": ("keras", "keras over torch"),
        "flax": ("flax",),
        "onnxruntime": ("onnx-9", "onnx-14", "onnx-15"),
        "burn": ("burn",),
    }
)
"""By the heading, whose records a column holds the worst of."""

_FEW, _MORE = LAYOUTS


def recorded(framework: str, n: int) -> dict[str, Floats]:
    """What a framework gave, flat, with n values in a channel."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))[framework]
    return {name: np.array(values, np.float32) for name, values in record.get(str(n), {}).items()}


def headings() -> list[str]:
    """The columns, each with the version that ran."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    ran = {heading: record[names[0]]["versions"].split()[1].split("+")[0] for heading, names in COLUMNS.items()}
    return [f"{heading} {'(recorded)' if heading == 'burn' else ran[heading]}" for heading in COLUMNS]


def _ours(profile: str, n: int) -> dict[str, Floats]:
    return {name: array.ravel() for name, array in run(Ours(state(), profile), n).items()}


def distances(profile: str, framework: str, n: int) -> dict[str, float]:
    """How far a profile is from what a framework gave, each quantity by itself."""
    return compared(_ours(profile, n), recorded(framework, n))


Cell = tuple[float, str]
"""A distance, and the quantity that it is of where that has to be said."""


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "none"
    return f"{_number(cell[0])} {cell[1]}".rstrip() if cell[0] > ROUNDING else "rounding"


def _table(headings: Sequence[str], cells: Callable[[str], Sequence[Cell | None]]) -> str:
    """One line for all profiles whose cells are the same but for rounding, of which the largest is shown."""
    alike: dict[tuple[str, ...], dict[str, Sequence[Cell | None]]] = {}
    for profile in profiles():
        line = cells(profile.name)
        alike.setdefault(tuple(map(_shown, line)), {})[f"`{profile.name}`"] = line
    rows = [f"| profile | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    for shown, lines in alike.items():
        largest = [max(cell[0] if cell else 0 for cell in column) for column in zip(*lines.values(), strict=True)]
        line = [
            f"*{value:.0e}*".replace("0e+00", "0") if text == "rounding" else text
            for text, value in zip(shown, largest, strict=True)
        ]
        rows.append(f"| {', '.join(lines)} | {' | '.join(line)} |")
    return "\n" + "\n".join(rows) + "\n"


def parity_table() -> str:
    """One line a profile: the largest distance to each framework with few values in a channel, and of which quantity."""

    def cells(profile: str) -> list[Cell]:
        ours = _ours(profile, _FEW)
        found = [
            [(value, name) for framework in names for name, value in compared(ours, recorded(framework, _FEW)).items()]
            for names in COLUMNS.values()
        ]
        return [max(each) for each in found]

    return _table(headings(), cells)


def quantity_table() -> str:
    """One line a profile: the distance of each quantity to PyTorch's with more values in a channel."""

    def cells(profile: str) -> list[Cell | None]:
        found = distances(profile, "torch", _MORE)
        return [(found[name], "") if name in found else None for name in QUANTITIES]

    return _table(QUANTITIES, cells)


_FAR = {
    "PyTorch": "torch",
    "Keras over jax": "keras",
    "Keras over PyTorch": "keras over torch",
    "flax": "flax",
    "onnxruntime": "onnx-14",
}


def far_table() -> str:
    """One column a framework: how far its output is off where the mean is large beside the deviation."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    epsilon = profile_named("torch").rule("batchnorm").forward.value
    found = {f"`{name}`": far_from_zero(partial(Ours, profile=name), epsilon) for name in ("alexeyab-cpu", "textbook")}
    found |= {heading: record[name]["far from zero"] for heading, name in _FAR.items()}
    cells = ["not a number" if value is None else _number(value) for value in found.values()]
    return f"\n| {' | '.join(found)} |\n{'|---' * len(found)}|\n| {' | '.join(cells)} |\n"


PARTS = {"parity": parity_table, "quantities": quantity_table, "far from zero": far_table}
"""By the marks in the README."""
