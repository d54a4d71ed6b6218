"""Sums of half-precision values in a chosen type, where they leave its range, and how far a result is from that in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._native import Array
from ..dialect import BatchNormRule, EpsilonRule
from ..errors import DtypeError, ShapeError
from ..sync.moments import Doubles, local_stats

__all__ = [
    "Errors",
    "Half",
    "SumType",
    "channel_rows",
    "errors_of",
    "exact_statistics",
    "half_statistics",
    "half_total",
    "half_values",
    "not_numbers",
    "outputs_beyond",
    "per_channel",
    "plain_list",
    "root",
    "sum_passes",
]

Half = NDArray[Any]
"""float16, or the bfloat16 of ml_dtypes."""

SumType = Literal["float32", "float64", "half"]
_LARGEST = {"float16": 0x7BFF, "bfloat16": 0x7F7F}
"""The bits of the largest finite value."""


# --- arrays -----------------------------------------------------------------------------------------------------------


def half_values(array: object, name: str) -> Half:
    """An array of (N, C, ...) in half precision, as it is.

    Raises:
        DtypeError: of another type.
        ShapeError: of no such shape, or empty.
    """
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    if not isinstance(array, np.ndarray) or array.dtype.name not in _LARGEST:
        raise DtypeError(f"expected {name} to be a NumPy array of float16 or bfloat16, got {kind}; BatchNorm takes float32")
    if not 2 <= array.ndim <= 5 or array.size == 0:
        raise ShapeError(f"expected {name} of shape (N, C) with up to three axes more and none of 0, got {array.shape}")
    return array


def channel_rows(array: NDArray[Any]) -> NDArray[Any]:
    """(N, C, ...) as (C, n): the values of a channel in the order of the profiles' sums, batch, then pixel."""
    return np.moveaxis(array, 1, 0).reshape(array.shape[1], -1)


def per_channel(values: Array | None, channels: int, default: float, name: str) -> Array:
    """(C) float32, as given or all of the default.

    Raises:
        ShapeError: of another shape.
    """
    found = np.full(channels, default, np.float32) if values is None else np.array(values, np.float32)
    if found.shape != (channels,):
        raise ShapeError(f"expected {name} of shape ({channels}), one value for each channel, got {found.shape}")
    return found


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite value of a type."""
    if dtype.name in _LARGEST:
        return float(np.array(_LARGEST[dtype.name], np.uint16).view(dtype))
    return float(np.finfo(dtype).max)


# --- statistics ---------------------------------------------------------------------------------------------------------


def root(variance: Doubles, epsilon: EpsilonRule) -> Doubles:
    """sqrt(v + epsilon) or sqrt(v) + epsilon in double, with the epsilon as its literal is."""
    value = float(np.float32(epsilon.value)) if epsilon.literal == "float" else epsilon.value
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(variance + value) if epsilon.side == "inside" else np.sqrt(variance) + value)


def exact_statistics(x: Half, rule: BatchNormRule) -> tuple[Doubles, Doubles]:
    """Mean and normalizing variance in float64.

    Raises:
        NumericsError: fewer values than the variance is over.
    """
    with np.errstate(invalid="ignore"):
        moments = local_stats(x)
    return moments.mean, moments.variance(unbiased=rule.normalize_variance == "n-1")


def half_statistics(x: Half, rule: BatchNormRule) -> tuple[Half, Half, list[str]]:
    """Mean and normalizing variance with every difference, square and partial sum rounded to the type of x.

    Returns:
        Both, (C) each, and sentences on the sums that leave the range of the type.
    """
    rows = channel_rows(x)
    n = rows.shape[1]
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(rows, axis=1)
        mean = sums[:, -1] * x.dtype.type(1 / n)
        off = rows - mean[:, None]
        squares = np.add.accumulate(off * off, axis=1)
        variance = squares[:, -1] * x.dtype.type(1 / (n - 1 if rule.normalize_variance == "n-1" else n))
    faults = [*sum_passes("sum", rows, sums), *sum_passes("sum of squares", off, squares)]
    return mean, variance, faults


def half_total(terms: Doubles, dtype: np.dtype[Any]) -> Doubles:
    """The sum of each row, every term and partial sum rounded to a half type."""
    with np.errstate(all="ignore"):
        return np.asarray(np.add.accumulate(terms.astype(dtype), axis=1)[:, -1].astype(np.float64))


# --- what leaves the range --------------------------------------------------------------------------------------------------


def sum_passes(what: str, terms: NDArray[Any], sums: NDArray[Any]) -> Iterator[str]:
    """A sentence for each row of finite terms whose partial sums are not: where the sum passed the largest value of its type.

    Args:
        what: how the sum is called.
        terms: (C, n).
        sums: (C, n), what there is after each of them.
    """
    beyond = ~np.isfinite(sums) & np.isfinite(terms).all(axis=1)[:, None]
    for channel in np.flatnonzero(beyond.any(axis=1)):
        at = int(beyond[channel].argmax())
        limit = -largest(sums.dtype) if sums[channel, at] < 0 else largest(sums.dtype)
        yield f"channel {channel}: the {what} passes {limit:g} of {sums.dtype.name} after {at + 1:,} of {terms.shape[1]:,} values"


def outputs_beyond(name: str, wide: NDArray[Any], half: Half) -> Iterator[str]:
    """A sentence for each row with finite values that became infinite in half precision; both (C, n)."""
    beyond = np.isfinite(wide) & np.isinf(half)
    for channel in np.flatnonzero(beyond.any(axis=1)):
        at = int(beyond[channel].argmax())
        count = f"{int(beyond[channel].sum()):,} of {wide.shape[1]:,} values of {name}"
        limit = f"{largest(half.dtype):g} of {half.dtype.name}"
        yield f"channel {channel}: {count} pass {limit}, first value {at + 1:,}, {wide[channel, at]:g}"


def not_numbers(name: str, rows: NDArray[Any]) -> Iterator[str]:
    """A sentence for each row that holds infinite values or no numbers."""
    bad = ~np.isfinite(rows)
    for channel in np.flatnonzero(bad.any(axis=1)):
        at = int(bad[channel].argmax())
        count = f"{int(bad[channel].sum()):,} of {rows.shape[1]:,} values of {name}"
        yield f"channel {channel}: {count} are infinite or no numbers, first value {at + 1:,}, {float(rows[channel, at])}"


# --- errors -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Errors:
    """How far the values of each channel are from those in float64.

    Args:
        absolute: the largest distance, (C); infinite where one is no number, or infinite, and the other is not.
        relative: the same as a share of the channel's largest magnitude in float64, (C).
    """

    absolute: Doubles
    relative: Doubles

    def to_json(self) -> dict[str, list[float | None]]:
        """Plain values; None for what is not finite."""
        return {"absolute": plain_list(self.absolute), "relative": plain_list(self.relative)}


def errors_of(got: NDArray[Any], want: Doubles) -> Errors:
    """Of each row; one axis is one value for each channel."""
    got, want = got.astype(np.float64).reshape(len(got), -1), want.reshape(len(want), -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(got - want)
        apart[(got == want) | (np.isnan(got) & np.isnan(want))] = 0
        apart[np.isnan(apart)] = np.inf
        absolute = apart.max(axis=1)
        relative = np.where(absolute == 0, 0, absolute / np.abs(want).max(axis=1))
    relative[np.isnan(relative)] = np.inf
    return Errors(absolute, relative)


def plain_list(values: NDArray[Any]) -> list[float | None]:
    """Floats for JSON, which knows no others than finite ones: None for the rest."""
    return [float(value) if np.isfinite(value) else None for value in values]
