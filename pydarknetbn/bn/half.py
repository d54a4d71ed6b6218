"""Batch normalization of float16 and bfloat16: what the type that the statistics are summed in costs, channel by channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._native import Array
from ..dialect import BatchNormRule, profile_named
from ..errors import ShapeError
from ..sync.moments import Doubles
from .half_sums import (
    Errors,
    Half,
    SumType,
    channel_rows,
    errors_of,
    exact_statistics,
    half_statistics,
    half_total,
    half_values,
    not_numbers,
    outputs_beyond,
    per_channel,
    plain_list,
    root,
    sum_passes,
)
from .layer import BatchNorm

__all__ = ["HalfRecord", "backward_half", "forward_half"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfRecord:
    """What half precision did to a batch.

    Args:
        profile, dtype, statistics: how it was computed.
        n: values in each channel.
        values: what was computed of each channel beside the array that came out: "mean" and "variance", or "scale_updates" and
            "bias_updates"; (C) each.
        errors: of these and of the array that came out ("output" or "delta") against float64.
        faults: sentences on what left the range of a type, and on what was no finite number from the start.
    """

    profile: str
    dtype: str
    statistics: SumType
    n: int
    values: dict[str, Doubles]
    errors: dict[str, Errors]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        """The worst channel of each, then the faults."""
        parts = []
        for name, errors in self.errors.items():
            worst = int(errors.relative.argmax())
            parts.append(f"{name} off by up to {errors.relative[worst]:.1e} of its size (channel {worst})")
        how = f"{self.profile}, {self.dtype}, statistics in {self.statistics}, {self.n:,} values in each channel"
        return "\n".join([f"{how}: {', '.join(parts)}", *self.faults])

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`; None for what is not finite."""
        return {
            "profile": self.profile,
            "dtype": self.dtype,
            "statistics": self.statistics,
            "n": self.n,
            "values": {name: plain_list(array) for name, array in self.values.items()},
            "errors": {name: errors.to_json() for name, errors in self.errors.items()},
            "faults": list(self.faults),
        }


@dataclass(frozen=True, slots=True)
class _Case:
    x: Half
    profile: str
    rule: BatchNormRule
    scales: Array
    biases: Array
    statistics: SumType

    def record(self, values: dict[str, Any], errors: dict[str, Errors], faults: list[str]) -> HalfRecord:
        return HalfRecord(
            profile=self.profile,
            dtype=self.x.dtype.name,
            statistics=self.statistics,
            n=self.x.size // self.x.shape[1],
            values={name: np.asarray(array, np.float64) for name, array in values.items()},
            errors=errors,
            faults=(*not_numbers("x", channel_rows(self.x)), *faults),
        )


# --- forward ------------------------------------------------------------------------------------------------------------


def forward_half(
    x: Half,
    *,
    profile: str,
    scales: Array | None = None,
    biases: Array | None = None,
    rolling: tuple[Array, Array] | None = None,
    statistics: SumType = "float32",
) -> tuple[Half, HalfRecord]:
    """Normalizes a batch of half precision: x is widened, normalized in float32 as the profile does, and rounded to its type once.

    Args:
        x: (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W) of float16, or of the bfloat16 of ml_dtypes.
        profile: name of a profile, see `profiles()`.
        scales: (C), float32; None: 1.
        biases: (C), float32; None: 0.
        rolling: mean and variance that normalize, (C) each, float32, as in inference; None: those of the batch, as in training.
        statistics: what mean and variance are summed in. "float32": as the profile sums them, to the bit what `BatchNorm` gives for
            `x.astype(float32)`. "float64": two passes in double. "half": in the type of x, which shows why one must not: every
            difference, square and partial sum is rounded to it, in the order batch, then pixel. Given `rolling`, the type that
            these are held in.

    Returns:
        The output in the type of x, and mean, variance and the errors of all three against float64 for each channel.

    Raises:
        DtypeError, ShapeError, ValueError: an argument is not as told.
        NumericsError: one value for each channel where the profile divides by n-1.
    """
    case = _case(x, profile, scales, biases, statistics)
    c = x.shape[1]
    if rolling is None:
        exact = exact_statistics(x, case.rule)
        wide, mean, variance, faults = _by_batch(case)
    else:
        held = [per_channel(array, c, 0, name) for array, name in zip(rolling, ("rolling mean", "rolling variance"), strict=True)]
        exact = held[0].astype(np.float64), held[1].astype(np.float64)
        mean, variance, faults = _held(held, case)
        wide = _normalized(case, mean, variance)
    with np.errstate(over="ignore", invalid="ignore"):
        output = wide.astype(x.dtype).reshape(x.shape)
    want = _in_double(case, *exact)
    errors = {
        "mean": errors_of(mean, exact[0]),
        "variance": errors_of(variance, exact[1]),
        "output": errors_of(channel_rows(output), want),
    }
    faults += outputs_beyond("the output", channel_rows(wide), channel_rows(output))
    return output, case.record({"mean": mean, "variance": variance}, errors, faults)


def _case(x: Half, profile: str, scales: Array | None, biases: Array | None, statistics: SumType) -> _Case:
    rule = profile_named(profile).rule("batchnorm")
    if statistics not in ("float32", "float64", "half"):
        raise ValueError(f"expected statistics of float32, float64 or half, got {statistics!r}")
    c = half_values(x, "x").shape[1]
    return _Case(x, profile, rule, per_channel(scales, c, 1, "scales"), per_channel(biases, c, 0, "biases"), statistics)


def _widened(array: Half) -> Array:
    """(N, C, n, 1), float32: every half is one."""
    return array.astype(np.float32).reshape(*array.shape[:2], -1, 1)


def _layer(case: _Case) -> BatchNorm:
    layer = BatchNorm(len(case.scales), profile=case.profile)
    layer.scales, layer.biases = case.scales, case.biases
    return layer


def _by_batch(case: _Case) -> tuple[Array, NDArray[Any], NDArray[Any], list[str]]:
    """The output in float32, mean, variance, and what left the range of their type."""
    if case.statistics == "float32":
        layer = _layer(case)
        wide = layer.forward(_widened(case.x), train=True, cache=False)
        return wide, layer.mean.copy(), layer.variance.copy(), _passes_in_float(case.x, layer.mean, layer.variance)
    mean, variance, faults = _statistics(case)
    return _normalized(case, mean, variance), mean, variance, faults


def _statistics(case: _Case) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    if case.statistics == "half":
        return half_statistics(case.x, case.rule)
    mean, variance = exact_statistics(case.x, case.rule)
    with np.errstate(over="ignore"):
        return mean.astype(np.float32), variance.astype(np.float32), []


def _passes_in_float(x: Half, mean: Array, variance: Array) -> list[str]:
    """bfloat16 reaches as far as float32, and so sums of it may pass that."""
    if np.isfinite(mean).all() and np.isfinite(variance).all():
        return []
    rows = channel_rows(x).astype(np.float32)
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(rows, axis=1)
        off = rows - mean[:, None]
        squares = np.add.accumulate(off * off, axis=1)
    return [*sum_passes("sum", rows, sums), *sum_passes("sum of squares", off, squares)]


def _held(rolling: list[Array], case: _Case) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    if case.statistics != "half":
        return rolling[0], rolling[1], []
    faults: list[str] = []
    halves = []
    for array, name in zip(rolling, ("rolling mean", "rolling variance"), strict=True):
        with np.errstate(over="ignore"):
            halves.append(array.astype(case.x.dtype))
        faults += outputs_beyond(f"the {name}", array[:, None], halves[-1][:, None])
    return halves[0], halves[1], faults


def _normalized(case: _Case, mean: NDArray[Any], variance: NDArray[Any]) -> Array:
    """By given statistics, in float32 as the profile does."""
    layer = _layer(case)
    layer.rolling_mean, layer.rolling_variance = mean.astype(np.float32), variance.astype(np.float32)
    return layer.forward(_widened(case.x), train=False)


def _in_double(case: _Case, mean: Doubles, variance: Doubles) -> Doubles:
    """The same in float64 alone, (C, n)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        normal = (channel_rows(case.x).astype(np.float64) - mean[:, None]) / root(variance, case.rule.forward)[:, None]
        return np.asarray(normal * case.scales[:, None] + case.biases[:, None])


# --- backward -----------------------------------------------------------------------------------------------------------


def backward_half(
    delta: Half, x: Half, *, profile: str, scales: Array | None = None, statistics: SumType = "float32"
) -> tuple[Half, HalfRecord]:
    """Carries a delta of half precision back through the training forward of x, with all sums in the chosen type.

    Args:
        delta: of the shape and type of x; minus the gradient of the loss.
        x: of the forward.
        profile: of the forward.
        scales: of the forward.
        statistics: what mean, variance and the sums over delta are added in, see `forward_half`.

    Returns:
        The delta of x in its type, and for each channel "scale_updates" and "bias_updates" with the errors of all three against
        float64, by the profile's own formulas.

    Raises:
        As `forward_half`.
    """
    case = _case(x, profile, scales, None, statistics)
    if half_values(delta, "delta").shape != x.shape or delta.dtype != x.dtype:
        expected = f"of x's shape {x.shape} and type {x.dtype}"
        raise ShapeError(f"expected delta {expected}, got {delta.shape} and {delta.dtype}")
    exact = _back(case, delta, *exact_statistics(x, case.rule), None)
    faults: list[str] = []
    if statistics == "float32":
        layer = _layer(case)
        layer.forward(_widened(x), train=True)
        back = channel_rows(layer.backward(_widened(delta))), layer.scale_updates.copy(), layer.bias_updates.copy()
    else:
        mean, variance, faults = _statistics(case)
        summed_in = x.dtype if statistics == "half" else None
        back = _back(case, delta, mean.astype(np.float64), variance.astype(np.float64), summed_in)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = back[0].astype(x.dtype)
    names = ("delta", "scale_updates", "bias_updates")
    errors = {name: errors_of(got, want) for name, got, want in zip(names, (rows, *back[1:]), exact, strict=True)}
    faults += [*not_numbers("delta", channel_rows(delta)), *outputs_beyond("the delta of x", back[0], rows)]
    result = np.moveaxis(rows.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
    return np.ascontiguousarray(result), case.record(dict(zip(names[1:], back[1:], strict=True)), errors, faults)


def _back(
    case: _Case, delta: Half, mean: Doubles, variance: Doubles, summed_in: np.dtype[Any] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Delta of x (C, n), scale_updates and bias_updates (C): in double, but for sums in another type."""
    rule, wide = case.rule, channel_rows(delta).astype(np.float64)
    with np.errstate(all="ignore"):
        off = channel_rows(case.x).astype(np.float64) - mean[:, None]
        scaled = wide * case.scales[:, None]
        terms = (scaled, scaled * off, wide * (off / root(variance, rule.forward)[:, None]), wide * rule.bias_gradient)
        sums = [each.sum(axis=1) if summed_in is None else half_total(each, summed_in) for each in terms]
        statistic_root = root(variance, rule.statistic_terms)
        of_mean, of_variance = -sums[0] / statistic_root, -sums[1] / (2 * statistic_root**3)
        direct = scaled / root(variance, rule.direct_term)[:, None]
        n = wide.shape[1]
        return direct + (of_variance * 2 / n)[:, None] * off + (of_mean / n)[:, None], sums[2], sums[3]
