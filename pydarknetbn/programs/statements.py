"""The lines of a cfg as one fork's program takes them apart, whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..cfg import ALIASES
from ..dialect import Dialect, Parser

__all__ = ["RawOption", "RawSection", "raw_sections"]

_LF = re.compile(r"\r\n|\n")
_ANY_END = re.compile(r"\r\n|\r|\n")
_ANYWHERE = re.compile(r"\[(?P<section>.+)\]|(?P<key>[^#= \t]+)[ \t]*=[ \t]*(?P<value>[^#]+)")


@dataclass(frozen=True, slots=True)
class RawOption:
    """A key, its value as the fork has it, and the line."""

    key: str
    value: str
    line: int


@dataclass(slots=True)
class RawSection:
    """A section: its name as written, its canonical type, its line and all of its options, equal keys too."""

    name: str
    type: str
    line: int
    options: list[RawOption] = field(default_factory=list)

    def first(self, key: str) -> RawOption | None:
        """The option of that key that counts."""
        return next((option for option in self.options if option.key == key), None)

    def number(self, key: str, default: float) -> float:
        """The value of a key as C reads a number; the default where there is none."""
        option = self.first(key)
        match = re.match(r"[-+]?\d*\.?\d*", option.value) if option else None
        try:
            return float(match[0]) if match else default
        except ValueError:
            return 0.0


def raw_sections(
    text: str, dialect: Dialect | None = None, parser: Parser | None = None
) -> tuple[list[RawSection], list[RawOption]]:
    """The sections, and the options before the first one.

    Args:
        text: of the cfg.
        dialect: whose handling of carriage returns counts; None: every line end is one.
        parser: whose comments and blanks count; None: comments anywhere.
    """
    anywhere = parser is None or parser.comments == "anywhere"
    kept = dialect is not None and dialect.carriage_return == "kept"
    sections: list[RawSection] = []
    early: list[RawOption] = []
    for number, content in enumerate(_ends(dialect).split(text) if not kept else text.split("\n"), start=1):
        for name, key, value in _anywhere(content) if anywhere else _by_line(content, kept):
            if name is not None:
                sections.append(RawSection(name, ALIASES.get(name, name), number))
            else:
                (sections[-1].options if sections else early).append(RawOption(key, value, number))
    return sections, early


def _ends(dialect: Dialect | None) -> re.Pattern[str]:
    return _ANY_END if dialect is None else _LF


def _anywhere(content: str) -> Iterator[tuple[str | None, str, str]]:
    match = _ANYWHERE.match(content.strip(" \t\r\n"))
    if match and match["section"]:
        yield match["section"], "", ""
    elif match and match["value"].strip():
        yield None, match["key"], match["value"].strip()


def _by_line(content: str, kept: bool) -> Iterator[tuple[str | None, str, str]]:
    line = re.sub(r"[ \t]" if kept else r"[ \t\r]", "", content)
    if line.startswith("["):
        yield (line[1:-1] if line.endswith("]") else line[1:]), "", ""
    elif line and line[0] not in "#;" and not line.endswith("="):
        key, _, value = line.partition("=")
        yield None, key, value
