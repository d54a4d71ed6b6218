"""Which fork's program runs a cfg, and why another does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..dialect import DIALECTS, INFERENCE_KEYS, PARSERS, Dialect, Parser
from ..options import quoted
from .findings import Finding, Fork
from .statements import RawOption, RawSection, raw_sections

__all__ = ["fork_of", "forks_of"]

_PLAIN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)[-.\d]*")
# Sections whose layer has the width and height of its input, so that a program's mean over them is of something.
_FLAT = frozenset("connected rnn lstm gru crnn".split())


def forks_of(file: str, text: str) -> tuple[Fork, ...]:
    """A fork after the other, in the order of the dialects."""
    return tuple(fork_of(file, text, dialect) for dialect in DIALECTS.values())


def fork_of(file: str, text: str, dialect: Dialect) -> Fork:
    """The fork of that dialect alone."""
    parser = PARSERS[dialect.name]
    sections, early = raw_sections(text, dialect, parser)
    reader = _Program(file, dialect, parser)
    reasons = [*reader.reading(sections, early), *reader.building(sections)]
    fatal = [reason for reason in reasons if reason.severity == "error"]
    runs = "no" if fatal else "differently" if reasons else "yes"
    return Fork(dialect.name, runs, tuple(fatal + [reason for reason in reasons if reason not in fatal]))  # type: ignore[arg-type]


class _Program:
    """The steps of one fork's program in its own order; an error is where it would end, a warning where its result differs."""

    def __init__(self, file: str, dialect: Dialect, parser: Parser) -> None:
        self.file, self.dialect, self.parser = file, dialect, parser
        self.refuses = parser.unknown == "refused"

    def fatal(self, line: int, message: str, key: str | None = None) -> Finding:
        return Finding(self.file, line, "error", message, key)

    def other(self, line: int, message: str, key: str | None = None) -> Finding:
        return Finding(self.file, line, "warning", message, key)

    # --- reading ---

    def reading(self, sections: list[RawSection], early: list[RawOption]) -> Iterator[Finding]:
        """What is met while the lines are read."""
        found: list[Finding] = []
        if early:
            found.append(self.fatal(early[0].line, f"{early[0].key}= stands before any section", early[0].key))
        for position, section in enumerate(sections):
            found += self._heading(section, position)
            found += self._duplicates(section)
        yield from sorted(found, key=lambda finding: finding.line)

    def _heading(self, section: RawSection, position: int) -> Iterator[Finding]:
        if section.type not in self.dialect.sections:
            cr = "; a carriage return belongs to the name" if section.name.endswith("\r") else ""
            yield self.fatal(section.line, f"section {quoted(section.name)} is not known{cr}")
        elif position == 0 and section.type != "net":
            yield self.fatal(section.line, f"the first section is [{section.name}], not [net]")

    def _duplicates(self, section: RawSection) -> Iterator[Finding]:
        if self.dialect.duplicate_key != "error":
            return
        seen: dict[str, int] = {}
        for option in section.options:
            if option.key in seen:
                message = f"{option.key}= stands in [{section.name}] twice, on lines {seen[option.key]} and {option.line}"
                yield self.fatal(option.line, message, option.key)
            seen.setdefault(option.key, option.line)

    # --- building ---

    def building(self, sections: list[RawSection]) -> Iterator[Finding]:
        """What is met while layers are made."""
        for section in sections:
            yield from self._values(section)
            yield from self._unread(section)
        if not sections[1:]:
            yield self.fatal(sections[0].line if sections else 1, "no layer stands in it")
            return
        net, first, last = sections[0], sections[1], sections[-1]
        sides = net.number("width", 0), net.number("height", 0)
        if self.parser.needs_image and (min(sides) <= 1 or first.type in _FLAT):
            message = "no layer has an input with width and height: it divides by their number, which is 0"
            yield self.fatal(first.line, message)
        if last.type in ("yolo", "region") and any(side % self.parser.sides for side in sides):
            what = f"width and height of a network that ends with [{last.type}] have to be multiples of {self.parser.sides}"
            yield self.fatal((net.first("width") or net).line, f"{what}, here {sides[0]:g} and {sides[1]:g}", "width")

    def _values(self, section: RawSection) -> Iterator[Finding]:
        for option in section.options:
            kind = self.parser.kind(section.type, option.key)
            if kind in ("i", "f") and self.parser.numbers == "plain" and not _PLAIN.fullmatch(option.value):
                message = f'{option.key}={quoted(option.value)} is no number in digits, "." and "-"'
                yield self.fatal(option.line, message, option.key)
            known = self.dialect.activations if option.key == "activation" else self.parser.values.get(option.key)
            if kind == "s" and known and option.value not in known:
                yield self._word(option)

    def _word(self, option: RawOption) -> Finding:
        message = f"{option.key}={quoted(option.value)} is not known"
        if self.refuses:
            return self.fatal(option.line, message, option.key)
        if option.key == "activation":
            return self.fatal(option.line, f"{message}, and runs as relu", option.key)
        return self.other(option.line, f"{message}, and is replaced by the default", option.key)

    def _unread(self, section: RawSection) -> Iterator[Finding]:
        # In the order of the keys, as the program that refuses them goes through them.
        for option in sorted(section.options, key=lambda option: option.key.encode()):
            if section.type not in self.dialect.sections or self._reads(section, option):
                continue
            if self.refuses:
                yield self.fatal(option.line, f"[{section.name}] does not read {option.key}=", option.key)
            elif option.key in INFERENCE_KEYS.get(section.type, ()) and option.value not in ("0", "1", "none"):
                yield self.other(option.line, f"[{section.name}] does not read {option.key}={option.value}", option.key)

    def _reads(self, section: RawSection, option: RawOption) -> bool:
        if self.parser.kind(section.type, option.key) is None:
            return False
        if section.type != "net" or option.key not in self.parser.read_with:
            return True
        key, words = self.parser.read_with[option.key]
        if "!0" in words:
            return section.number(key, 0) != 0
        asked = section.first(key)
        return asked is not None and asked.value in words
