"""Values that no trained network has, and what another epsilon would do to those that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .._native import Array
from ..dialect import CONVENTIONS, EpsilonRule, Host, Profile
from ..variances import MEAN, VARIANCE, denormal, is_initial
from .report import Forecast, Place

__all__ = ["Values", "forecast", "initial", "oddities", "shift", "suspicion"]

Values = Callable[[Place, int], Array | None]
"""The floats of an array, so many floats later in the file than it lies; None where the file ends before."""

_HUGE = 1e6
_OFF = 1e-3
_FARTHEST = 64


def epsilon_of(profile: Profile, layer_type: str) -> EpsilonRule:
    """The epsilon of an inference behind a layer of that type."""
    hosts: dict[str, Host] = {"batchnorm": "batchnorm", "connected": "connected"}
    return profile.rule(hosts.get(layer_type, "convolutional")).forward


def _least(place: Place, profile: Profile) -> float:
    """The smallest variance that has a root."""
    epsilon = epsilon_of(profile, place.type)
    return -epsilon.value if epsilon.side == "inside" else 0.0


def suspicion(place: Place, values: Array, profile: Profile) -> str | None:
    """What of an array no training gives; None for a plausible one."""
    low, high = float(values.min()), float(values.max())
    if not np.isfinite((low, high)).all():
        return f"{int((~np.isfinite(values)).sum()):,} of {values.size:,} values are NaN or infinite"
    if place.name.endswith(VARIANCE) and low < _least(place, profile):
        count = int((values < _least(place, profile)).sum())
        return f"{count:,} of {values.size:,} variances are below {_least(place, profile):g}, down to {low:.3g}, and have no root"
    if max(-low, high) > _HUGE:
        count = int((np.abs(values) > _HUGE).sum())
        return f"{count:,} of {values.size:,} values are beyond {_HUGE:,.0f}, up to {max(-low, high):.3g}"
    return None


def oddities(place: Place, values: Array) -> str | None:
    """What of a plausible variance makes forks differ: below 0, or too small for a normal float."""
    if not place.name.endswith(VARIANCE):
        return None
    parts = [
        f"{len(found)} {kind} (first in channel {found[0]})"
        for kind, found in (("negative", np.flatnonzero(values < 0)), ("denormal", denormal(values)))
        if len(found)
    ]
    return f"{place} has variances that are " + " and ".join(parts) + ": some conventions have no root of them" if parts else None


def shift(places: Sequence[Place], values: Values) -> int | None:
    """By how many floats later the variances would all be plausible, where they are not; None where no shift helps."""
    variances = [place for place in places if place.name.endswith(VARIANCE)]
    for by in sorted(range(-_FARTHEST, _FARTHEST + 1), key=abs):
        if by and variances and all(_positive(values(place, by)) for place in variances):
            return by
    return None


def _positive(values: Array | None) -> bool:
    return values is not None and bool(((values >= 0) & (values < _HUGE)).all())


def initial(places: Sequence[Place], values: Values) -> Iterator[Place]:
    """The variances of layers whose rolling arrays are all as they start: 0 and 0, or in other frameworks 0 and 1."""
    found = {(place.layer, place.name): values(place, 0) for place in places if place.name.endswith((MEAN, VARIANCE))}
    for place in places:
        mean = found.get((place.layer, place.name.replace(VARIANCE, MEAN)))
        variance = found.get((place.layer, place.name))
        if place.name.endswith(VARIANCE) and mean is not None and variance is not None and is_initial(mean, variance):
            yield place


def forecast(place: Place, variances: Array, profile: Profile) -> Forecast:
    """How many channels another epsilon would change by more than a thousandth."""
    own = _factor(variances, epsilon_of(profile, place.type))
    shares = {str(other): float(np.mean(_differ(own, _factor(variances, other)))) for other in CONVENTIONS}
    return Forecast(place.layer, place.type, variances.size, shares)


def _factor(variances: Array, epsilon: EpsilonRule) -> NDArray[np.float64]:
    wide = variances.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(wide + epsilon.value) if epsilon.side == "inside" else np.sqrt(wide) + epsilon.value
        return np.asarray(1 / root)


def _differ(own: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        near = (np.abs(other / own - 1) <= _OFF) | (np.isnan(own) & np.isnan(other))
    return np.asarray(~near)
