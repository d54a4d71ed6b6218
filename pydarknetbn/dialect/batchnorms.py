"""The batchnorms of each fork and of the textbook: every epsilon, factor and type. `Profile.sources` says where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .rules import BatchNormRule, EpsilonRule, Host

__all__ = ["ALEXEYAB_RULES", "HANK_AI_RULES", "PJREDDIE_RULES", "TEXTBOOK_BN", "one_rule"]

_INSIDE = EpsilonRule(1e-5, "inside")

_PJREDDIE_BN = BatchNormRule(
    forward=EpsilonRule(1e-6, "outside"),
    direct_term=_INSIDE,
    statistic_terms=_INSIDE,
    fold=EpsilonRule(1e-5, "inside", "double"),
    fold_root="double",
    fold_factor="float",
    normalize_variance="n-1",
    keep_variance="n-1",
    rolling="factors",
    rolling_keep=0.99,
    rolling_add=0.01,
    variance_formula="differences",
    summation="serial",
    moments="reciprocal",
    squares="double",
    intermediate="double",
    inverse_cube="pow",
    quotients="double",
    products="double",
    bias_gradient=True,
    host_bias_gradient=False,
    eval_statistics="rolling",
    trains_standalone=False,
)

_ALEXEYAB_BN = replace(
    _PJREDDIE_BN,
    forward=_INSIDE,
    direct_term=EpsilonRule(1e-5, "outside"),
    fold_factor="double",
    rolling_keep=0.9,
    rolling_add=0.1,
    bias_gradient=False,
    eval_statistics="batch",
    trains_standalone=True,
)

_ALEXEYAB_CONNECTED_BN = replace(
    _ALEXEYAB_BN,
    fold=EpsilonRule(1e-6, "inside"),
    fold_factor="float",
    rolling_keep=0.95,
    rolling_add=0.05,
    bias_gradient=True,
)

TEXTBOOK_BN = replace(
    _PJREDDIE_BN,
    forward=_INSIDE,
    fold=_INSIDE,
    fold_factor="double",
    normalize_variance="n",
    keep_variance="n",
    summation="double",
    eval_statistics="constant",
    trains_standalone=True,
)


def one_rule(rule: BatchNormRule) -> Mapping[Host, BatchNormRule]:
    """The same behind every layer."""
    return MappingProxyType({"batchnorm": rule, "convolutional": rule, "connected": rule})


PJREDDIE_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {
        "batchnorm": _PJREDDIE_BN,
        "convolutional": _PJREDDIE_BN,
        "connected": replace(_PJREDDIE_BN, fold=EpsilonRule(1e-6, "inside", "double")),
    }
)

ALEXEYAB_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {"batchnorm": _ALEXEYAB_BN, "convolutional": _ALEXEYAB_BN, "connected": _ALEXEYAB_CONNECTED_BN}
)

HANK_AI_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {host: replace(rule, intermediate="float") for host, rule in ALEXEYAB_RULES.items()}
    | {"connected": replace(_ALEXEYAB_CONNECTED_BN, intermediate="float", fold_root="float")}
)
