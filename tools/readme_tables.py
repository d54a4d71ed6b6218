"""Writes what comes from the code into the README: `python tools/readme_tables.py`."""

from __future__ import annotations

import re
from pathlib import Path

import half_sums
import parity_table
from cancellation import CHANNELS, WAYS, errors
from gradient_distance import SHAPES, distance
from pydarknetbn.dialect import (
    CONVENTIONS_OF_STATISTICS,
    DARKNET_STATISTICS,
    DIALECTS,
    EVIDENCE,
    EpsilonRule,
    Profile,
    profiles,
)
from pydarknetbn.layers import BUILDERS
from stability import COLUMNS, behavior

__all__ = ["PARTS", "filled", "profile_table"]

_ROUNDING = 1e-6  # of floats, whose sums cancel
_README = Path(__file__).parent.parent / "README.md"


def _root(epsilon: EpsilonRule) -> str:
    return f"√(v + {epsilon.value:g})" if epsilon.side == "inside" else f"√v + {epsilon.value:g}"


def _factors(profile: Profile) -> str:
    pairs = dict.fromkeys(f"{rule.rolling_keep:g}/{rule.rolling_add:g}" for rule in profile.batchnorm.values())
    return ", after `[connected]` ".join(pairs)


def profile_table() -> str:
    """One line a profile: epsilons, factors, variance, types, evidence."""
    rows = ["| profile | inference | backward | rolling keep/add | variance over | root and quotient in | evidence |"]
    rows.append("|---|---|---|---|---|---|---|")
    for profile in profiles():
        rule = profile.rule("convolutional")
        backward = dict.fromkeys(_root(epsilon) for epsilon in (rule.direct_term, rule.statistic_terms))
        cells = [
            f"`{profile.name}`",
            _root(rule.forward),
            " and ".join(backward),
            _factors(profile),
            rule.normalize_variance,
            rule.intermediate,
            f"*{profile.evidence}*: {EVIDENCE[profile.evidence]}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n" + "\n".join(rows) + "\n"


def section_table() -> str:
    """One line a section: which dialects know it, and whether it is computed."""
    names = sorted({name for dialect in DIALECTS.values() for name in dialect.sections} - {"net"}, key=str.lower)
    rows = [f"| section | {' | '.join(DIALECTS)} |", "|---" * (len(DIALECTS) + 1) + "|"]
    for name in names:
        cells = ["-" if name not in dialect.sections else "yes" if name in BUILDERS else "refused" for dialect in DIALECTS.values()]
        rows.append(f"| `[{name}]` | {' | '.join(cells)} |")
    return "\n" + "\n".join(rows) + "\n"


def gradient_table() -> str:
    """One line for all profiles of the same distances: how far backward is from the derivative of the forward."""
    shown: dict[tuple[str, ...], list[str]] = {}
    for profile in profiles():
        off = (distance(profile.name, shape) for shape in SHAPES)
        shown.setdefault(tuple(f"{each:.1e}" if each > _ROUNDING else "rounding" for each in off), []).append(f"`{profile.name}`")
    rows = ["| profile | " + " | ".join(f"n = {batch * h * w}" for batch, _, h, w in SHAPES) + " |", "|---" * 4 + "|"]
    rows += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in shown.items()]
    return "\n" + "\n".join(rows) + "\n"


def stability_table() -> str:
    """One line for all profiles that behave alike: what becomes of channels without variance."""
    shown: dict[tuple[str, ...], list[str]] = {}
    for profile in profiles():
        shown.setdefault(behavior(profile.name), []).append(f"`{profile.name}`")
    rows = [f"| profile | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    rows += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in shown.items()]
    return "\n" + "\n".join(rows) + "\n"


_MOMENTUM = {"new": "the new value", "old": "the old value", "factors": "none: two factors"}


def batchnorm_table() -> str:
    """One line for all profiles of the same variances, momentum and start."""
    shown: dict[tuple[str, ...], list[str]] = {}
    for profile in profiles():
        rule, theirs = profile.rule("batchnorm"), CONVENTIONS_OF_STATISTICS.get(profile.name, DARKNET_STATISTICS)
        cells = (rule.normalize_variance, rule.keep_variance, _MOMENTUM[theirs.momentum], f"{theirs.initial_variance:g}")
        shown.setdefault(cells, []).append(f"`{profile.name}`")
    rows = ["| profile | normalizes by the variance over | keeps that over | its momentum weighs | rolling variance starts at |"]
    rows.append("|---" * 5 + "|")
    rows += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in shown.items()]
    return "\n" + "\n".join(rows) + "\n"


def half_table() -> str:
    """One line for each half type and type of the sums: the worst channel's errors."""
    names = ("mean", "variance", "output")
    rows = [f"| x | sums in | {' | '.join(names)} |", "|---|---|---|---|---|"]
    for dtype in half_sums.TYPES:
        for sums in half_sums.SUMS:
            worst = [half_sums.record(dtype, sums).errors[name].relative.max() for name in names]
            cells = " | ".join("overflow" if each == float("inf") else f"{each:.0e}" for each in worst)
            rows.append(f"| {dtype} | {dtype if sums == 'half' else sums} | {cells} |")
    return "\n" + "\n".join(rows) + "\n"


def cancellation_table() -> str:
    """One line for each mean and deviation: the relative error of a merged variance, by what ranks send each other."""
    rows = [f"| mean, deviation | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    for mean, deviation in CHANNELS:
        rows.append(f"| {mean:g}, {deviation:g} | {' | '.join(f'{each:.0e}' for each in errors(mean, deviation))} |")
    return "\n" + "\n".join(rows) + "\n"


PARTS = {
    "profiles": profile_table,
    "batchnorms": batchnorm_table,
    "sections": section_table,
    "gradients": gradient_table,
    "stability": stability_table,
    "half": half_table,
    "cancellation": cancellation_table,
}


def filled(text: str) -> str:
    """A README with each marked part as the code has it."""
    for name, part in (PARTS | parity_table.PARTS).items():
        text = re.sub(
            f"(<!-- {name} -->).*?(<!-- /{name} -->)", lambda match, part=part: match[1] + part() + match[2], text, flags=re.DOTALL
        )
    return text


if __name__ == "__main__":
    _README.write_text(filled(_README.read_text(encoding="utf-8")), encoding="utf-8")
