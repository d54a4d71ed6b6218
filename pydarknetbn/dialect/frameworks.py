"""How other frameworks normalise a batch, and what their momentum means. Only batchnorm is theirs; the rest is one fork's.

None of these is bit-equal to its framework: the order of a framework's sums depends on the machine. *run* means that its outputs,
rolling arrays and gradients (onnxruntime has none) came out here, to 1e-6 of the largest of each: `tools/parity.py` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from .rules import BatchNormRule, EpsilonRule, Evidence, Host, LayerRule, Profile, TrainingRule

__all__ = ["CONVENTIONS_OF_STATISTICS", "DARKNET_STATISTICS", "Statistics", "framework_profiles"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a framework's settings of the rolling arrays mean.

    Args:
        momentum: the weight of the new value, of the old one, or the two factors themselves.
        initial_variance: of a layer that has seen nothing; its mean is 0 everywhere.
    """

    momentum: Literal["new", "old", "factors"]
    initial_variance: float


DARKNET_STATISTICS = Statistics("factors", 0.0)

CONVENTIONS_OF_STATISTICS: Mapping[str, Statistics] = MappingProxyType(
    {
        "torch": Statistics("new", 1.0),
        "keras": Statistics("old", 1.0),
        "flax": Statistics("old", 1.0),
        "burn": Statistics("new", 1.0),
        "onnx-9": Statistics("old", 1.0),
        "onnx-14": Statistics("old", 1.0),
        "caffe": Statistics("factors", 0.0),
    }
)
"""By the name of a profile; those of forks are `DARKNET_STATISTICS`."""


def framework_profiles(base: BatchNormRule, layers: LayerRule, training: TrainingRule) -> tuple[Profile, ...]:
    """The profiles.

    Args:
        base: the definition that they are differences from: exact gradients, both variances over n.
        layers: of everything that is no batchnorm.
        training: of what a program does beyond the layers.
    """
    at_five, at_three = EpsilonRule(1e-5, "inside", "double"), EpsilonRule(1e-3, "inside", "double")
    onnx = _with_epsilon(base, at_five, rolling_keep=0.9, rolling_add=0.1)
    of = _Maker(layers, training)
    return (
        of.profile(
            "cudnn",
            "source",
            _with_epsilon(base, at_five, keep_variance="n-1"),
            forward="what Darknets built with cuDNN hand to it: .00001 and .01, pjreddie src/batchnorm_layer.c:205,208",
            keep_variance="cuDNN's documentation of cudnnBatchNormalizationForwardTraining: unbiased in the running variance",
        ),
        _torch(of, base, at_five),
        of.profile("keras", "run", _with_epsilon(base, at_three), forward="keras/src/layers/normalization/batch_normalization.py"),
        of.profile(
            "flax",
            "run",
            _with_epsilon(base, at_five, variance_formula="squares", summation="serial"),
            forward="flax/linen/normalization.py BatchNorm",
            variance_formula="the same, _compute_stats: use_fast_variance is the default",
        ),
        of.profile("burn", "source", onnx, forward="burn-nn/src/modules/norm/batch.rs"),
        of.profile(
            "onnx-9",
            "run",
            onnx,
            forward="onnx/defs/nn/old.cc BatchNormalization_ver9",
            keep_variance="left open there; onnxruntime/core/providers/cpu/nn/batch_norm.h",
        ),
        of.profile("onnx-14", "run", onnx, forward="onnx/defs/nn/defs.cc BatchNormalization"),
        of.profile(
            "caffe",
            "source",
            _with_epsilon(base, at_five, keep_variance="n-1", rolling_keep=0.999, rolling_add=1.0),
            forward="src/caffe/layers/batch_norm_layer.cpp",
            rolling_add="the same; its third blob counts the factors, and divides mean and variance",
        ),
    )


def _torch(of: _Maker, base: BatchNormRule, epsilon: EpsilonRule) -> Profile:
    return of.profile(
        "torch",
        "run",
        _with_epsilon(base, epsilon, keep_variance="n-1", rolling_keep=0.9, rolling_add=0.1),
        forward="torch/nn/modules/batchnorm.py",
        keep_variance="aten/native/Normalization.cpp",
        summation="aten/native/cpu/batch_norm_kernel.cpp: in acc_type, which is double; its order depends on the layout",
    )


def _with_epsilon(base: BatchNormRule, epsilon: EpsilonRule, **changes: object) -> BatchNormRule:
    every = replace(base, forward=epsilon, direct_term=epsilon, statistic_terms=epsilon, fold=epsilon)
    return replace(every, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Maker:
    layers: LayerRule
    training: TrainingRule

    def profile(self, name: str, evidence: Evidence, rule: BatchNormRule, **sources: str) -> Profile:
        hosts: Mapping[Host, BatchNormRule] = MappingProxyType({"batchnorm": rule, "convolutional": rule, "connected": rule})
        return Profile(
            name=name,
            evidence=evidence,
            batchnorm=hosts,
            layers=self.layers,
            training=self.training,
            sources=MappingProxyType(sources),
        )
