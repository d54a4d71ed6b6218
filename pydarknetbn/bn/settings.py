"""What a batchnorm of its own is made with: a profile, and what a framework's module sets otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from numbers import Real
from typing import Any, Literal, TypeAlias

from ..dialect import CONVENTIONS_OF_STATISTICS, DARKNET_STATISTICS, BatchNormRule, EpsilonRule, profile_named

__all__ = ["ROUNDING", "Rolling", "Settings", "differences"]

ROUNDING = 2.0**-20
"""How far the sum of two factors may be from 1 by the rounding of their decimals."""

Rolling: TypeAlias = tuple[float, float] | Literal["cumulative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of a BatchNorm, whose arguments they are.

    Raises:
        ValueError: no such profile, an epsilon below 0, or factors that are no two numbers.
    """

    profile: str
    affine: bool = True
    allow_degenerate: bool = False
    epsilon: float | None = None
    rolling: Rolling | None = None

    def __post_init__(self) -> None:
        profile_named(self.profile)
        if self.epsilon is not None and not (_is_number(self.epsilon) and self.epsilon >= 0):
            raise ValueError(f"expected an epsilon of 0 or more, or None for the profile's, got {self.epsilon!r}")
        if self.rolling is None or self.rolling == "cumulative":
            return
        if not (isinstance(self.rolling, tuple) and len(self.rolling) == 2 and all(map(_is_number, self.rolling))):
            raise ValueError(
                f"expected rolling to be factors (keep, add) of the old and the new value, or 'cumulative', got {self.rolling!r}"
            )

    @property
    def rule(self) -> BatchNormRule:
        """The profile's, with the epsilon and the factors that replace its own."""
        rule = profile_named(self.profile).rule("batchnorm")
        if self.epsilon is not None:
            rule = _with_epsilon(rule, self.epsilon)
        if self.rolling == "cumulative":
            return replace(rule, rolling="cumulative")
        if self.rolling is None:
            return rule
        return replace(rule, rolling="factors", rolling_keep=float(self.rolling[0]), rolling_add=float(self.rolling[1]))

    @property
    def initial_variance(self) -> float:
        """What the rolling variance starts from."""
        return CONVENTIONS_OF_STATISTICS.get(self.profile, DARKNET_STATISTICS).initial_variance

    def options(self) -> dict[str, Any]:
        """By the names of the arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def described(self) -> str:
        """The arguments that differ from a plain layer of the profile, as they are written in a call."""
        plain = profile_named(self.profile).rule("batchnorm")
        parts = [f"profile={self.profile!r}"]
        if self.epsilon is not None and _with_epsilon(plain, self.epsilon) != plain:
            parts.append(f"epsilon={float(self.epsilon)!r}")
        if self.rolling is not None and replace(self, epsilon=None).rule != plain:
            factors = self.rolling if isinstance(self.rolling, str) else tuple(map(float, self.rolling))
            parts.append(f"rolling={factors!r}")
        parts += [] if self.affine else ["affine=False"]
        parts += ["allow_degenerate=True"] if self.allow_degenerate else []
        return ", ".join(parts)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _with_epsilon(rule: BatchNormRule, value: float) -> BatchNormRule:
    """Every epsilon of the rule with another value, each on its own side of the root."""

    def of(epsilon: EpsilonRule) -> EpsilonRule:
        return replace(epsilon, value=float(value))

    return replace(
        rule,
        forward=of(rule.forward),
        direct_term=of(rule.direct_term),
        statistic_terms=of(rule.statistic_terms),
        fold=of(rule.fold),
    )


def differences(one: BatchNormRule, other: BatchNormRule) -> list[str]:
    """What one rule computes otherwise than another beyond the order of sums, each as "the one's, not the other's"."""
    found = []
    if one.normalize_variance != other.normalize_variance:
        found.append(
            f"a training batch is normalized by its variance over {one.normalize_variance}, not {other.normalize_variance}"
        )
    if one.keep_variance != other.keep_variance:
        found.append(f"the rolling variance takes up that over {one.keep_variance}, not {other.keep_variance}")
    if str(one.forward) != str(other.forward):
        found.append(f"the forward divides by {one.forward}, not {other.forward}")
    if _backward(one) != _backward(other):
        found.append(f"the backward has {_backward(one)}, not {_backward(other)}")
    if one.bias_gradient != other.bias_gradient:
        found.append(f"the backward {'gives the biases a gradient' if one.bias_gradient else 'gives the biases none'}")
    factors = [(rule.rolling_keep, rule.rolling_add) for rule in (one, other) if rule.rolling == "factors"]
    if len(factors) == 2 and any(abs(a - b) >= ROUNDING for a, b in zip(*factors, strict=True)):
        found.append("the rolling factors are {:g} and {:g}, not {:g} and {:g}".format(*factors[0], *factors[1]))
    return found


def _backward(rule: BatchNormRule) -> str:
    """The roots of a backward."""
    return " and ".join(dict.fromkeys(map(str, (rule.direct_term, rule.statistic_terms))))
