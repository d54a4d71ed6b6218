"""Which of the other side's values a layer is, as the user says it."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CfgError
from .steps import INPUT, Step

__all__ = ["NameMap", "read_names"]

NameMap = Mapping[Any, str] | str | os.PathLike[str]
"""Layer -> name of a value; or the path of a .json of that, or of lines `layer = name`."""

_KEY = re.compile(r"(\d+)(?:\s*\[\w+\])?(?:[\s./:_-]+(sums|normal|post|boxes))?")


def read_names(names: NameMap | None, steps: Sequence[Step], known: Iterable[str]) -> dict[int, str]:
    """Number of a step -> name of the other side's value.

    Args:
        names: keys are "12" or 12 for the output of layer 12, "12.sums", "12.normal", "12.boxes" for its other values, "input".
        steps: of our network.
        known: names that the other side has.

    Raises:
        CfgError: a key is no value of the network, or a name none of the other side's; it says what comes close.
    """
    if names is None:
        return {}
    where, entries = _entries(names)
    at: dict[tuple[int, str], int] = {(step.layer, step.stage): step.number for step in steps}
    known = list(known)
    found: dict[int, str] = {}
    for place, key, name in entries:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(known)}, such as {', '.join(known[:3])}"
            raise CfgError(f"{key} is called {name!r}, which is no value of the other side{hint}", file=where, line=place)
        number = _number(str(key).strip(), at, where, place)
        if number in found:
            raise CfgError(f"{key} is named twice, as {found[number]!r} and {name!r}", file=where, line=place)
        found[number] = name
    return found


def _number(key: str, at: Mapping[tuple[int, str], int], where: str, place: int | None) -> int:
    if key == "input":
        return INPUT
    match = _KEY.fullmatch(key)
    if not match:
        raise CfgError(f"expected a layer such as 12, 12.sums, 12.normal or input, got {key!r}", file=where, line=place)
    layer, stage = int(match[1]), match[2] or "post"
    if (layer, stage) in at:
        return at[layer, stage]
    stages = [each for number, each in at if number == layer]
    if stages:
        raise CfgError(f"layer {layer} has no {stage}; it has {', '.join(stages)}", file=where, line=place)
    raise CfgError(f"there is no layer {layer}; the network's are 0 to {max(number for number, _ in at)}", file=where, line=place)


def _entries(names: NameMap) -> tuple[str, list[tuple[int | None, Any, str]]]:
    """How messages call it, and line, key and name of each entry."""
    if isinstance(names, Mapping):
        return "names", [(None, key, str(name)) for key, name in names.items()]
    path = Path(names)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise CfgError(f"cannot be read as a map of names: {reason}", file=os.fspath(names)) from reason
    return os.fspath(names), _of_json(text, path) if path.suffix.lower() == ".json" else _of_lines(text, path)


def _of_json(text: str, path: Path) -> list[tuple[int | None, Any, str]]:
    try:
        read = json.loads(text)
    except ValueError as reason:
        raise CfgError(f"is no JSON: {reason}", file=str(path)) from reason
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read.values()):
        raise CfgError('expected an object such as {"12": "model.3.relu"}', file=str(path))
    return [(None, key, name) for key, name in read.items()]


def _of_lines(text: str, path: Path) -> list[tuple[int | None, Any, str]]:
    entries: list[tuple[int | None, Any, str]] = []
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        key, equals, name = content.partition("=")
        if not equals or not name.strip():
            raise CfgError(f"expected a line such as `12 = model.3.relu`, got {content.strip()!r}", file=str(path), line=line)
        entries.append((line, key.strip(), name.strip()))
    return entries
