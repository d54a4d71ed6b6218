"""Changes single options in the text of a `.cfg` and leaves every other character as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .cfg import Cfg
from .options import Section

__all__ = ["rewrite"]

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_HEADING = re.compile(r"\[[^\]]*\]")
_VALUE = re.compile(r"(=[ \t]*)([^#;\r\n]*?)([ \t]*(?:[#;][^\r\n]*)?(?:\r\n|\r|\n|$))", re.DOTALL)


def rewrite(cfg: Cfg, changes: Mapping[tuple[int, str], str], *, headings: Mapping[int, str] | None = None) -> str:
    """The text with other values for some options, and other names for some sections.

    Args:
        cfg: what was read.
        changes: new values by (number of the layer, -1 for [net]; key). An option that is not there becomes the first of its
            section, and a last line without an end gets one before it.
        headings: new names by number of the layer, such as "[route]".
    """
    lines = _LINES.findall(cfg.text)
    by_index = {section.index: section for section in cfg.sections}
    inserted: dict[int, list[str]] = {}
    for (index, key), value in changes.items():
        section = by_index[index]
        line = _line_of(section, key)
        if line is None:
            end = _line_end(lines[section.line - 1]) or _line_end(lines[0]) or "\n"
            lines[section.line - 1] = lines[section.line - 1].rstrip("\r\n") + end
            inserted.setdefault(section.line, []).append(f"{key}={value}{end}")
        else:
            lines[line - 1] = _with_value(lines[line - 1], value)
    for index, name in (headings or {}).items():
        at = by_index[index].line - 1
        lines[at] = _HEADING.sub(lambda _, name=name: name, lines[at], count=1)  # type: ignore[misc]
    for number, added in inserted.items():
        lines[number - 1] += "".join(added)
    return "".join(lines)


def _with_value(line: str, value: str) -> str:
    return _VALUE.sub(lambda match: match[1] + value + match[3], line, count=1)


def _line_of(section: Section, key: str) -> int | None:
    return next((option.line for option in section.options if option.key == key), None)


def _line_end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
