"""Another epsilon, and on which side of the root: recovered from all channels at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

from ..._native import Array
from ...dialect import COMMON_EPSILONS, EpsilonRule, whose_epsilon
from ..situation import Hypothesis, Place, Trial, fit
from .batchnorm_pass import arrays_of, epsilon_of, normal
from .fitting import as_well, short, snap

__all__ = ["epsilon"]

Side = Literal["inside", "outside"]
_SIDES: tuple[Side, ...] = ("inside", "outside")
_EXPONENTS = tuple(range(-9, 1))
_ROUNDS = 24  # from two decades down to 0.01 %
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
    by_exponent = fit(lambda exponent: make(10**exponent), trial, _EXPONENTS, rounds=_ROUNDS)
    value = float(by_exponent.values["epsilon"])
    common = snap(make, trial, by_exponent, COMMON_EPSILONS)
    # a number that somebody wrote has few digits
    return common if common is not by_exponent else replace(snap(make, trial, common, [_rounded(value)]), parameters=1)


def _rounded(value: float) -> float:
    return float(f"{value:.0e}")


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
