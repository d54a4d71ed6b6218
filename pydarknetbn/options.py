"""One section of a `.cfg` and its options as typed values; what they mean to a layer is not known here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar, overload

from .errors import CfgError

__all__ = ["REQUIRED", "Option", "Required", "Section", "close_match", "quoted", "unknown_key_warning"]

# ASCII digits only, and no underscores, hexadecimal, nan or inf, all of which Python or C would take.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+\.?[0-9]*")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_FLOAT32_MAX = (2 - 2**-23) * 2.0**127

_Value = TypeVar("_Value")


class Required(Enum):
    """Type of `REQUIRED`."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED
"""As a default: the option has to be there."""


@dataclass(frozen=True, slots=True)
class Option:
    """One `key=value` without its blanks and comment, and its 1-based line."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a `.cfg`.

    Args:
        file: how messages call the text.
        name: as written, without blanks: `[conv]`.
        type: canonical name: `convolutional`.
        line: 1-based line of the name.
        index: 0-based number of the layer; -1 for the network itself.
        options: those that count, in the order of the text.
        asked: every key that a getter was called with, there or not.
    """

    file: str
    name: str
    type: str
    line: int
    index: int
    options: tuple[Option, ...]
    # Mutable in a frozen record, and no part of its value: only the builder of a layer knows which keys it has, so an
    # option that nobody reads shows when the layer is built.
    asked: set[str] = field(default_factory=set, compare=False, repr=False)

    def has(self, key: str) -> bool:
        """Whether the option is there; counts as asking for it."""
        return self._find(key) is not None

    def line_of(self, key: str) -> int:
        """Line of the option, or of the section where the option is absent; does not count as asking for it."""
        return next((option.line for option in self.options if option.key == key), self.line)

    def unused(self) -> tuple[tuple[str, int], ...]:
        """Key and line of each option that was never asked for."""
        return tuple((option.key, option.line) for option in self.options if option.key not in self.asked)

    def error(self, message: str, key: str | None = None) -> CfgError:
        """The error, for the caller to raise, that names the file and the line of the key or else of the section."""
        line = self.line if key is None else self.line_of(key)
        return CfgError(message, file=self.file, line=line, key=key)

    def integer(self, key: str, default: int | Required, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """A whole number. A default is not held against the limits.

        Raises:
            CfgError: for another value, one out of [minimum, maximum], or none where it is `REQUIRED`.
        """
        return self._read(key, default, lambda text: _within(_integer(text), minimum, maximum))

    def number(self, key: str, default: float | Required) -> float:
        """A number that a 32-bit float can hold, in double precision: rounding it is its reader's business.

        Raises:
            CfgError: for another value, or none where it is `REQUIRED`.
        """
        return self._read(key, default, _number)

    def text(self, key: str, default: str | Required) -> str:
        """The value as written, without blanks.

        Raises:
            CfgError: for no value where it is `REQUIRED`.
        """
        return self._read(key, default, str)

    def flag(self, key: str, default: bool | Required = False) -> bool:
        """A whole number read as Darknet reads a switch: 0 is off, any other is on.

        Raises:
            CfgError: for another value, or none where it is `REQUIRED`.
        """
        return self._read(key, default, lambda text: bool(_integer(text)))

    @overload
    def integers(self, key: str, default: None = None) -> tuple[int, ...] | None: ...
    @overload
    def integers(self, key: str, default: tuple[int, ...] | Required) -> tuple[int, ...]: ...
    def integers(self, key: str, default: tuple[int, ...] | Required | None = None) -> tuple[int, ...] | None:
        """Whole numbers with commas between them.

        Raises:
            CfgError: for an empty item, another value, or none where it is `REQUIRED`.
        """
        return self._read(key, default, lambda text: _list(text, _integer))

    @overload
    def numbers(self, key: str, default: None = None) -> tuple[float, ...] | None: ...
    @overload
    def numbers(self, key: str, default: tuple[float, ...] | Required) -> tuple[float, ...]: ...
    def numbers(self, key: str, default: tuple[float, ...] | Required | None = None) -> tuple[float, ...] | None:
        """Numbers with commas between them, each as `number` reads it.

        Raises:
            CfgError: for an empty item, another value, or none where it is `REQUIRED`.
        """
        return self._read(key, default, lambda text: _list(text, _number))

    def _find(self, key: str) -> Option | None:
        self.asked.add(key)
        return next((option for option in self.options if option.key == key), None)

    def _read(self, key: str, default: _Value | Required, convert: Callable[[str], _Value]) -> _Value:
        option = self._find(key)
        if option is None:
            if isinstance(default, Required):
                raise self.error(f"{self.name} on line {self.line} needs {key}=", key)
            return default
        try:
            return convert(option.value)
        except ValueError as reason:
            raise self.error(f"{self.name} has {key}={quoted(option.value)}, {reason}", key) from None


def unknown_key_warning(section: Section, key: str, known: Iterable[str]) -> str:
    """The sentence about an option that its layer does not have, with the nearest of those that it has."""
    match = close_match(key, known)
    hint = f"; did you mean {match}?" if match else " and ignores it"
    return str(section.error(f"{section.name} has no option {key}{hint}", key))


def close_match(name: str, known: Iterable[str]) -> str | None:
    """The nearest of the known names, if one is near; the case of letters is no distance."""
    by_lower_case = {candidate.lower(): candidate for candidate in sorted(known)}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def quoted(text: str, limit: int = 60) -> str:
    """The text for a message: its start where it is long, with unprintable characters escaped."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


# --- from text to values: a ValueError says what was expected ---------------------------------------------------------


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("expected a number")
    value = float(text)
    if abs(value) > _FLOAT32_MAX:
        raise ValueError("expected a number that a 32-bit float can hold")
    return value


def _integer(text: str) -> int:
    # No exponent: Darknet reads 1e3 as 1 here.
    if not _PLAIN_NUMBER.fullmatch(text):
        raise ValueError("expected a whole number in plain digits")
    # By way of float, which takes any number of digits and holds every 32-bit integer exactly.
    value = float(text)
    if not value.is_integer():
        raise ValueError("expected a whole number")
    return _within(int(value), _INT_MIN, _INT_MAX)


def _within(value: int, minimum: int | None, maximum: int | None) -> int:
    if minimum is not None and value < minimum:
        raise ValueError(f"expected {minimum} or more")
    if maximum is not None and value > maximum:
        raise ValueError(f"expected {maximum} or less")
    return value


def _list(text: str, convert: Callable[[str], _Value]) -> tuple[_Value, ...]:
    # A comma at the end is harmless: read_cfg has warned of it.
    items = text.removesuffix(",").split(",")
    return tuple(_item(item, number, convert) for number, item in enumerate(items, start=1))


def _item(text: str, number: int, convert: Callable[[str], _Value]) -> _Value:
    if not text:
        raise ValueError(f"expected a value between commas, item {number} is empty")
    try:
        return convert(text)
    except ValueError as reason:
        raise ValueError(f"{reason} as item {number}, got {quoted(text)}") from None
