"""Reads the text of a `.cfg` into sections of options. It knows text, not layers.

lines  ──►  statements  ──►  sections, each with its options (options.py turns those into values)
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from .dialect import DIALECTS, Dialect, dialect_named
from .errors import CfgError
from .options import REQUIRED, Option, Required, Section, close_match, quoted, unknown_key_warning

__all__ = ["ALIASES", "REQUIRED", "Cfg", "Option", "Required", "Section", "read_cfg", "read_text", "unknown_key_warning"]

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "avg": "avgpool",
        "conn": "connected",
        "conv": "convolutional",
        "deconv": "deconvolutional",
        "local_avg": "local_avgpool",
        "lrn": "normalization",
        "max": "maxpool",
        "network": "net",
        "silence": "empty",
        "soft": "softmax",
    }
)

_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(r"[#;].*", re.DOTALL)
_BLANKS = re.compile(r"[ \t]+")
_SECTION_NAME = re.compile(r"\[([^\[\]]*)\]")
_HTML = re.compile(r"\s*<(?:!doctype|\?xml|!--|html|head|body)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cfg:
    """A `.cfg` as text.

    Args:
        name: how messages call it: the path, `<bytes>` or `<file>`.
        sections: in the order of the text; the first is the network's own.
        warnings: sentences on what can be read in more than one way.
        text: what was read, with its own line ends.
    """

    name: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...]
    text: str = field(default="", repr=False, compare=False)

    @property
    def net(self) -> Section:
        """The first section, `[net]`."""
        return self.sections[0]

    @property
    def layers(self) -> tuple[Section, ...]:
        """The sections after the first, one a layer."""
        return self.sections[1:]


def read_cfg(cfg: str | os.PathLike[str] | bytes | BinaryIO, *, dialect: str = "alexeyab", strict: bool = False) -> Cfg:
    """Read the text of a `.cfg`.

    Blanks and tabs mean nothing anywhere in a line. A line ends with LF, CRLF or CR, and a comment goes from `#` or `;`
    to there. Of two equal keys in a section the first counts.

    Args:
        cfg: path, the text itself as bytes (UTF-8, else Latin-1), or a file opened for reading bytes.
        dialect: name of the dialect whose sections are known.
        strict: raise instead of warn.

    Returns:
        Sections with their options, and the warnings.

    Raises:
        CfgError: for what cannot be read, or is not `[net]` and sections that the dialect knows, all of `key=value`.
        TypeError: for another kind of `cfg`.
        ValueError: for a dialect that there is not.

    Source:
        AlexeyAB/darknet src/parser.c read_cfg, src/utils.c strip, src/option_list.c option_find;
        hank-ai/darknet src-lib/darknet_cfg.cpp CfgFile::read.
    """
    name, text = read_text(cfg)
    reader = _Reader(name, dialect_named(dialect), strict)
    sections = reader.sections(text)
    return Cfg(name, sections, tuple(reader.warnings), text)


def read_text(cfg: str | os.PathLike[str] | bytes | BinaryIO) -> tuple[str, str]:
    """How messages call a cfg, and its text.

    Raises:
        CfgError: it cannot be read, or is no text.
        TypeError: for another kind of `cfg`.
    """
    name, data = _load(cfg)
    return name, _text_of(data, name)


# --- from a source to text --------------------------------------------------------------------------------------------


def _load(cfg: str | os.PathLike[str] | bytes | BinaryIO) -> tuple[str, bytes]:
    if isinstance(cfg, bytes | bytearray | memoryview):
        return "<bytes>", bytes(cfg)
    if isinstance(cfg, str | os.PathLike):
        name = os.fsdecode(cfg)
        return name, _bytes_of_file(name)
    if not hasattr(cfg, "read"):
        raise TypeError(f"cfg is a path, the text as bytes or a binary file, got {type(cfg).__name__}")
    data = cfg.read()
    if not isinstance(data, bytes):
        raise TypeError(f"cfg has to be a file opened for reading bytes ('rb'), its read() gave {type(data).__name__}")
    return "<file>", data


def _bytes_of_file(name: str) -> bytes:
    if not name:
        raise CfgError("the path of the cfg is empty; pass the path of a .cfg file, or its text as bytes")
    if _LINE_END.search(name):
        raise CfgError(f"a str is the path of a cfg, got {quoted(name)}; pass the text itself as bytes, text.encode()")
    try:
        return Path(name).read_bytes()
    except FileNotFoundError:
        raise CfgError("does not exist, expected a .cfg file; check the path", file=name) from None
    except IsADirectoryError:
        raise CfgError("is a directory, expected a .cfg file; name the file in it", file=name) from None
    except (OSError, ValueError) as reason:  # ValueError: a NUL or a lone surrogate in the path
        raise CfgError(f"cannot be read, expected a .cfg file: {reason}", file=name) from reason


def _text_of(data: bytes, name: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CfgError("is UTF-16 text, expected UTF-8; save it as UTF-8", file=name)
    if (offset := data.find(b"\0")) >= 0:
        line = len(_LINE_END.findall(data[:offset].decode("latin-1"))) + 1
        message = f"holds a NUL byte at offset {offset}, so it is no text; pass a .cfg here and the .weights after it"
        raise CfgError(message, file=name, line=line)
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if _HTML.match(text):
        raise CfgError("is an HTML page, expected a .cfg file; download the raw file", file=name, line=1)
    return text


# --- from text to sections --------------------------------------------------------------------------------------------


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Line number and what stands there beside blanks and comments."""
    for line, content in enumerate(_LINE_END.split(text), start=1):
        if statement := _COMMENT.sub("", content).strip(" \t"):
            yield line, statement


def _tight(text: str) -> str:
    return _BLANKS.sub("", text)


@dataclass(slots=True)
class _Draft:
    """A section whose options are still coming."""

    name: str
    type: str
    line: int
    options: dict[str, Option] = field(default_factory=dict)


@dataclass(slots=True)
class _Reader:
    file: str
    dialect: Dialect
    strict: bool
    warnings: list[str] = field(default_factory=list)

    def error(self, message: str, line: int | None = None, key: str | None = None) -> CfgError:
        return CfgError(message, file=self.file, line=line, key=key)

    def warn(self, message: str, line: int, key: str) -> None:
        error = self.error(message, line, key)
        if self.strict:
            raise error
        self.warnings.append(str(error))

    def sections(self, text: str) -> tuple[Section, ...]:
        drafts: list[_Draft] = []
        for line, statement in _statements(text):
            if statement.startswith("["):
                drafts.append(self.heading(_tight(statement), line, len(drafts)))
            elif drafts:
                self.add_option(drafts[-1], statement, line)
            else:
                raise self.error(f"expected [net] before any option, got {quoted(statement)}", line)
        if not drafts:
            raise self.error("holds no section, expected [net] and a section for each layer")
        return tuple(
            Section(self.file, draft.name, draft.type, draft.line, index, tuple(draft.options.values()))
            for index, draft in enumerate(drafts, start=-1)
        )

    def heading(self, name: str, line: int, position: int) -> _Draft:
        match = _SECTION_NAME.fullmatch(name)
        if not match:
            raise self.error(f"expected the name of a section alone in brackets, such as [net], got {quoted(name)}", line)
        section = ALIASES.get(match[1], match[1])
        if section not in self.dialect.sections:
            raise self.error(f"{_ordinal(position)} is {quoted(name)}, {self.why_unknown(match[1])}", line)
        if position == 0 and section != "net":
            raise self.error(f"the first section has to be [net] or [network], got {name}", line)
        if position > 0 and section == "net":
            raise self.error(f"{_ordinal(position)} is a second {name}, expected a layer; a cfg holds one network", line)
        return _Draft(name, section, line)

    def why_unknown(self, name: str) -> str:
        section = ALIASES.get(name, name)
        if knowing := [dialect.name for dialect in DIALECTS.values() if section in dialect.sections]:
            return f"a section that {self.dialect.name} does not know; dialect {' or '.join(knowing)} does"
        known = {*ALIASES, *(section for dialect in DIALECTS.values() for section in dialect.sections)}
        match = close_match(name, known)
        return "a section that no dialect knows" + (f"; did you mean [{match}]?" if match else "; check its spelling")

    def add_option(self, draft: _Draft, statement: str, line: int) -> None:
        key, equals, value = (part.strip(" \t") for part in statement.partition("="))
        key = _tight(key)
        # A key with an unprintable character, such as a web page's no-break space, would look right and never be found.
        if not (key and key.isprintable() and value):
            lack = "no =" if not equals else "no value" if not value else "no printable key"
            raise self.error(f"expected key=value in {draft.name}, got {quoted(statement)} with {lack}", line, key or None)
        option = Option(key, _tight(value), line)
        if joined := next((item for item in value.split(",") if _BLANKS.search(item.strip(" \t"))), ""):
            reading = f"{quoted(joined.strip())} without a comma, which reads as {quoted(_tight(joined))}"
            self.warn(f"{key}= has {reading}", line, key)
        if option.value.endswith(","):
            self.warn(f"{key}= ends with a comma, which is dropped", line, key)
        counting = draft.options.setdefault(key, option)
        if counting is not option:
            self.warn_of_duplicate(draft, counting, option)

    def warn_of_duplicate(self, draft: _Draft, first: Option, second: Option) -> None:
        message = (
            f"{draft.name} has {first.key}= twice: {quoted(first.value)} on line {first.line} counts, "
            f"{quoted(second.value)} on line {second.line} does not"
        )
        if self.dialect.duplicate_key == "error":
            message += f"; {self.dialect.name} itself refuses such a file"
        self.warn(message, second.line, second.key)


def _ordinal(position: int) -> str:
    return f"layer {position - 1}" if position else "the first section"
