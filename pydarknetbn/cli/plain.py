"""Reads the command lines that are as plain as most are, from the same signatures as typer.

Typer imports what takes as long as a whole `pydarknetbn info`; it does the rest, and so every message about a wrong command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

__all__ = ["plain_call"]

_SPECIAL = ("callback", "click_type", "envvar", "exists", "max", "min", "parser", "resolve_path")
_VALUES: dict[Any, Callable[[str], Any]] = {Path: Path, Path | None: Path, str: str, str | None: str}


def plain_call(verb: Callable[..., None], arguments: Sequence[str]) -> Callable[[], None] | None:
    """The call of a verb that a command line asks for.

    Args:
        verb: each of its parameters is an Annotated of typer's.
        arguments: what stands behind the verb.

    Returns:
        None where typer has to read it: for help, for anything wrong, and for values other than texts and paths.
    """
    hints = get_type_hints(verb, include_extras=True)
    parameters = {name: get_args(hints[name]) for name in inspect.signature(verb).parameters}
    places = [name for name, (_, told) in parameters.items() if isinstance(told, ArgumentInfo)]
    options = {
        written: name for name, (_, told) in parameters.items() if isinstance(told, OptionInfo) for written in _written(told, name)
    }
    given: dict[str, Any] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        name = options.get(word) if word.startswith("-") else next((place for place in places if place not in given), None)
        if name is None or name in given or any(getattr(parameters[name][1], special, None) for special in _SPECIAL):
            return None
        if name in places:
            left.insert(0, word)
        elif parameters[name][0] is bool:
            given[name] = True
            continue
        value = _VALUES.get(parameters[name][0])
        if value is None or not left or left[0].startswith("-"):
            return None
        given[name] = value(left.pop(0))
    missing = [
        name for name, each in inspect.signature(verb).parameters.items() if each.default is each.empty and name not in given
    ]
    return None if missing else partial(verb, **given)


def _written(told: OptionInfo, name: str) -> list[str]:
    """How an option is written; within Annotated the first of typer's names stands where a default would."""
    names = [each for each in (told.default, *(told.param_decls or ())) if isinstance(each, str)]
    return names or [f"--{name.replace('_', '-')}"]
