"""Another epsilon, and on which side of the root: recovered from all channels at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

from ..._native import Array
from ...dialect import COMMON_EPSILONS, EpsilonRule, whose_epsilon
from ..situation import Hypothesis, Place, Trial
from .batchnorm_pass import arrays_of, epsilon_of, normal
from .fitting import as_well, recover, short, snap

__all__ = ["epsilon"]

Side = Literal["inside", "outside"]
_SIDES: tuple[Side, ...] = ("inside", "outside")
_GRID = tuple(10.0**exponent for exponent in range(-9, 1))
_SAME = 0.01


def epsilon(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The epsilon that explains most, with what can be said on its side of the root."""
    right = epsilon_of(place)
    found = [_fitted(right, trial, side) for side in _SIDES]
    scores = [trial(hypothesis) for hypothesis in found]
    told = not as_well(max(scores), min(scores))
    first = int(scores[1] < scores[0]) if told else int(found[1].parameters < found[0].parameters)
    best, other = found[first], found[1 - first]
    if best.values["side"] == right.side and abs(float(best.values["epsilon"]) / right.value - 1) < _SAME:
        return
    yield best if told else _of_both_sides(best, other)


def _fitted(right: EpsilonRule, trial: Trial, side: Side) -> Hypothesis:
    make = partial(_hypothesis, right, side)
    value = recover(make, trial, _GRID)
    fitted = make(value)
    common = snap(make, trial, fitted, COMMON_EPSILONS)
    if common is not fitted:
        return common
    written = float(f"{value:.0e}")  # a number that somebody wrote has few digits
    return replace(snap(make, trial, fitted, [written]), parameters=1)


def _of_both_sides(best: Hypothesis, other: Hypothesis) -> Hypothesis:
    value, side = float(other.values["epsilon"]), str(other.values["side"])
    untold = f"{best.words}; these values do not tell the side of the root, {short(value)} {side} it would give the same"
    return replace(best, words=untold).with_values(side="inside or outside")


def _hypothesis(right: EpsilonRule, side: Side, value: float) -> Hypothesis:
    def run(place: Place) -> Array:
        return normal(place, place.inputs[0], arrays_of(place.layer), EpsilonRule(value, side, "double"))

    known = whose_epsilon(value, side)
    darknet = short(right.value) if right.side == side else f"{short(right.value)} {right.side} it"
    words = (
        f"batchnorm normalizes with epsilon {short(value)} {side} the root{f' ({known})' if known else ''}, Darknet with {darknet}"
    )
    values = {"epsilon": value, "side": side}
    return Hypothesis("batchnorm.epsilon", words, {"batchnorm": run}, _fix(right), values, parameters=1)


def _fix(right: EpsilonRule) -> dict[str, str]:
    value = short(right.value)
    if right.side == "inside":
        return {
            "torch": f"BatchNorm2d(eps={value})",
            "keras": f"BatchNormalization(epsilon={value})",
            "onnx": f"BatchNormalization with epsilon={value}",
            "": f"epsilon {value} inside the root, also where the batchnorm is folded into the convolution",
        }
    squared = f"(sqrt(rolling_variance) + {value})**2"  # no framework has an epsilon there
    return {
        "torch": f"BatchNorm2d(eps=0) with running_var = {squared}",
        "keras": f"BatchNormalization(epsilon=0) with moving_variance = {squared}",
        "onnx": f"BatchNormalization with epsilon=0 and the variance {squared}",
        "": f"sqrt(rolling_variance) + {value} as the divisor, also where the batchnorm is folded into the convolution",
    }
