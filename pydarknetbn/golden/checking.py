"""One value of another program held against what a bundle holds of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..doctor.noise import FACTOR, UNIT
from .bundle import GoldenStep
from .given import sha256
from .moments import channel_means, moments

__all__ = ["Checked", "as_array", "check_value", "layouts"]

Doubles = npt.NDArray[np.float64]
_MOMENTS = {"mean": "mean", "deviation": "standard deviation", "least": "smallest value", "most": "largest value"}


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one value.

    Args:
        step: of the bundle.
        name: how the other side calls it.
        layout: "NCHW" or "NHWC".
        samples: its values at the bundle's places.
        apart: the absolute differences there; infinite where only one side has a number.
        allowed: up to where a difference counts as rounding.
        totals: sentences on what of the whole value is not as it should be: means, extremes, or with tolerance 0 the hash.
        nan: index of its first NaN where the bundle's value has none.
    """

    step: GoldenStep
    name: str
    layout: str
    samples: Array = field(repr=False)
    apart: Doubles = field(repr=False)
    allowed: Doubles = field(repr=False)
    totals: tuple[str, ...] = ()
    nan: tuple[int, ...] | None = None

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Which samples differ by more than is allowed."""
        return self.apart > self.allowed

    @property
    def bad(self) -> bool:
        """Whether anything is not as it should be."""
        return bool(self.over.any()) or bool(self.totals)


def as_array(value: Any, name: str) -> Array:
    """An array, or a tensor of PyTorch, as float32.

    Raises:
        TypeError: it is neither, or not of numbers.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected {name!r} to be an array of numbers, got {type(value).__name__} of {array.dtype}")
    return np.asarray(array, np.float32)


def layouts(shape: tuple[int, int, int, int], array: Array) -> Iterator[tuple[str, Array]]:
    """The array as (batch, c, h, w), in each way that its shape allows."""
    batch, c, h, w = shape
    image = c > 1 and h * w > 1
    if array.shape == shape:
        yield "NCHW", array
    if image and array.shape == (batch, h, w, c):
        yield "NHWC", array.transpose(0, 3, 1, 2)
    if (batch == 1 and array.shape == (c, h, w)) or (h == w == 1 and array.shape == (batch, c)):
        yield "NCHW", array.reshape(shape)
    if image and batch == 1 and array.shape == (h, w, c):
        yield "NHWC", array.transpose(2, 0, 1)[np.newaxis]


def check_value(step: GoldenStep, name: str, array: Array, *, tolerance: float | None = None) -> Checked | None:
    """Holds a value against the bundle's.

    Args:
        step: of the bundle.
        name: how the other side calls it.
        array: (batch, c, h, w) or (batch, h, w, c); without the batch where it is 1.
        tolerance: what may differ, as a share of the value's range; None takes what rounding makes, 0 wants equal bits.

    Returns:
        None where the shape does not fit.
    """
    checked = [_checked(step, name, layout, view, tolerance) for layout, view in layouts(step.shape, array)]
    return min(checked, key=lambda each: (int(each.over.sum()), len(each.totals)), default=None)


def allowed_at(step: GoldenStep, tolerance: float | None) -> Doubles:
    """(c), what a value of each channel may differ by."""
    if tolerance is None:
        return FACTOR * step.noise
    return np.full(step.shape[1], tolerance * step.range)


def _checked(step: GoldenStep, name: str, layout: str, array: Array, tolerance: float | None) -> Checked:
    samples = array.reshape(-1)[step.places] if layout == "NCHW" else array[np.unravel_index(step.places, step.shape)]
    allowed = allowed_at(step, tolerance)
    nan = np.argwhere(np.isnan(array))[:1].tolist() if np.isfinite(step.samples).all() else []
    return Checked(
        step,
        name,
        layout,
        samples,
        _apart(step.samples, samples),
        allowed[step.channels],
        tuple(_totals(step, array, allowed, exact=tolerance == 0)),
        tuple(nan[0]) if nan else None,
    )


def _apart(ours: Array, theirs: Array) -> Doubles:
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours.astype(np.float64) - theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.where(np.isfinite(apart), apart, np.where(same, 0.0, np.inf))


def _totals(step: GoldenStep, array: Array, allowed: Doubles, *, exact: bool) -> Iterator[str]:
    """What of the whole array is wrong; a mean is off by no more than its values are."""
    if exact:
        if sha256(array) != step.sha256:
            yield "SHA-256 of all values: another one, so at least one bit differs"
        return
    means, rounding = channel_means(array), UNIT * np.abs(step.means.astype(np.float64))
    apart = _apart(step.means, means)
    over = apart > allowed + rounding
    if over.any():
        worst = int(np.argmax(apart / (allowed + rounding + np.finfo(np.float64).tiny)))
        more = f", and of {int(over.sum()) - 1} more" if over.sum() > 1 else ""
        yield f"Mean of channel {worst}: expected {step.means[worst]:.9g}, got {means[worst]:.9g}{more}"
    if np.isfinite(step.samples).all():
        found = moments(array)
        for (attribute, words), got in zip(_MOMENTS.items(), found, strict=True):
            wanted = getattr(step, attribute)
            if abs(got - wanted) > float(allowed.max()) + UNIT * abs(wanted):
                yield f"{words[0].upper()}{words[1:]} of all: expected {wanted:.9g}, got {got:.9g}"
