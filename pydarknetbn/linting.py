"""`lint`: what in a `.cfg` is wrong, read in several ways, or not read at all; and which fork's program runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .building import build_layers
from .cfg import read_text
from .dialect import INFERENCE_KEYS, PARSERS, SILENT_DEFAULTS, profile_named
from .errors import CfgError, UnsupportedError
from .loading import CfgSource, decide, room_for
from .options import close_match, quoted
from .programs import Finding, Fork, RawOption, RawSection, forks_of, raw_sections

__all__ = ["Finding", "Fork", "forks", "lint"]

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SEVERITIES = ("error", "warning", "note")


def lint(cfg: CfgSource) -> list[Finding]:
    """What is to be said about a `.cfg`, in the order of its lines.

    Args:
        cfg: as `load` takes it.

    Returns:
        Errors: no network comes from it. Warnings: duplicates, keys that nobody reads, defaults taken in silence, values read in
        one of several ways. Notes: keys and line ends that only some forks' programs read. `forks` says who runs the file.

    Raises:
        CfgError: it cannot be read, or is no text.
    """
    name, text = read_text(cfg)
    return _findings(name, text, cfg if isinstance(cfg, str) else text.encode())


def forks(cfg: CfgSource) -> tuple[Fork, ...]:
    """Which fork's program runs a `.cfg`, with the reasons why not.

    Args:
        cfg: as `load` takes it.

    Raises:
        CfgError: it cannot be read, or is no text.
    """
    return forks_of(*read_text(cfg))


def _findings(name: str, text: str, source: str | bytes) -> list[Finding]:
    found = list(_own_reading(name, source))
    told = {finding.line for finding in found if finding.severity != "note"}
    sections, _ = raw_sections(text)
    for section in sections:
        by_line = (*_values(name, section), *_keys(name, section))
        found += [finding for finding in by_line if finding.line not in told]
        found += [finding for finding in _defaults(name, section) if not _is_told(finding, found)]
    found += _line_ends(name, text)
    return sorted(found, key=lambda finding: (finding.line, _SEVERITIES.index(finding.severity)))


def _is_told(finding: Finding, found: list[Finding]) -> bool:
    return any(other.line == finding.line and f" {finding.key}=" in other.message for other in found)


# --- what this package makes of it ----------------------------------------------------------------------------------------------


def _own_reading(name: str, source: str | bytes) -> Iterator[Finding]:
    try:
        with room_for(None):
            decision = decide(source, None, "auto")
            built = build_layers(decision.cfg, decision.dialect, profile_named(decision.dialect.profile))
    except CfgError as error:
        yield _located(name, str(error), "error", error.key, error.line)
    except UnsupportedError as error:
        yield _located(name, str(error), "note")
    except MemoryError as error:
        yield _located(name, str(error), "error")
    else:
        for warning in built.warnings:
            yield _located(name, warning, "warning")


def _located(name: str, sentence: str, severity: str, key: str | None = None, line: int | None = None) -> Finding:
    """A sentence that begins with file and line as a finding."""
    match = re.match(r"(?:.*?):(\d+): (.*)", sentence.removeprefix(name), re.DOTALL)
    message = match[2] if match else sentence
    return Finding(name, line or (int(match[1]) if match else 1), severity, message, key)  # type: ignore[arg-type]


# --- what its lines say ---------------------------------------------------------------------------------------------------------


def _kinds(section: RawSection, option: RawOption) -> set[str]:
    kinds = (parser.kind(section.type, option.key) for parser in PARSERS.values())
    return {kind for kind in kinds if kind}


def _values(name: str, section: RawSection) -> Iterator[Finding]:
    seen: dict[str, RawOption] = {}
    for option in section.options:
        value = option.value.split(";")[0].strip()
        if _kinds(section, option) and _kinds(section, option) <= {"i", "f"} and not _NUMBER.fullmatch(value.replace(" ", "")):
            yield Finding(name, option.line, "error", f"{option.key}={quoted(value)}, expected a number", option.key)
        first = seen.setdefault(option.key, option)
        if first is not option:
            message = f"{option.key}= stands twice: {quoted(first.value)} on line {first.line} counts, {quoted(value)} does not"
            yield Finding(name, option.line, "warning", message, option.key)


def _keys(name: str, section: RawSection) -> Iterator[Finding]:
    known = {key for parser in PARSERS.values() for part in (section.type, "*") for key in parser.keys.get(part, ())}
    for option in section.options:
        readers = [fork for fork, parser in PARSERS.items() if parser.kind(section.type, option.key)]
        if not readers:
            near = close_match(option.key, known)
            hint = f"; did you mean {near}?" if near else ""
            yield Finding(name, option.line, "warning", f"no fork reads {option.key}= of [{section.name}]{hint}", option.key)
        elif len(readers) < len(PARSERS) and option.key in INFERENCE_KEYS.get(section.type, ()):
            verb = "read" if len(readers) > 1 else "reads"
            message = f"only {' and '.join(readers)} {verb} {option.key}= of [{section.name}], which changes the result"
            yield Finding(name, option.line, "note", message, option.key)


def _defaults(name: str, section: RawSection) -> Iterator[Finding]:
    for key, value in SILENT_DEFAULTS.get(section.type, {}).items():
        if section.first(key) is None:
            message = f"[{section.name}] has no {key}=, and every fork takes {value} in silence"
            yield Finding(name, section.line, "warning", message, key)


def _line_ends(name: str, text: str) -> Iterator[Finding]:
    at = text.find("\r")
    if at >= 0:
        line = len(re.findall(r"\r\n|\r|\n", text[:at])) + 1
        kind = "CRLF" if text[at : at + 2] == "\r\n" else "CR alone"
        yield Finding(name, line, "warning", f"a line ends with {kind}; save the file with LF, which every fork reads")
