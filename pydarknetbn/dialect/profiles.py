"""How each fork and framework computes: every epsilon, factor and type. A new one is one more record; sources stand beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .batchnorms import ALEXEYAB_RULES, HANK_AI_RULES, PJREDDIE_RULES, TEXTBOOK_BN, one_rule
from .cuda import (
    ALEXEYAB_CUDA_RULES,
    ALEXEYAB_CUDA_SOURCES,
    HANK_AI_CUDA_RULES,
    HANK_AI_CUDA_SOURCES,
    PJREDDIE_CUDA_RULES,
    PJREDDIE_CUDA_SOURCES,
)
from .frameworks import framework_profiles
from .losses import ALEXEYAB_LOSSES, HANK_AI_LOSSES, PJREDDIE_LOSSES
from .recurrent import ALEXEYAB_RECURRENT, PJREDDIE_RECURRENT, TEXTBOOK_RECURRENT
from .rules import ArithmeticRule, LayerRule, Profile
from .sources import ALEXEYAB_SOURCES, HANK_AI_SOURCES, PJREDDIE_SOURCES
from .training import ALEXEYAB_TRAINING, HANK_AI_TRAINING, PJREDDIE_TRAINING, TEXTBOOK_TRAINING

__all__ = ["PROFILES", "profile_named", "profiles"]

_PJREDDIE_LAYERS = LayerRule(
    arithmetic=ArithmeticRule(
        transcendental="double",
        leaky="double",
        leaky_host="double",
        piecewise="double",
        gelu="float",
        gelu_gradient="float",
        channel_gradient="sum",
        mish_gradient="double",
        softmax="double",
        box="double",
        diou="double",
    ),
    losses=PJREDDIE_LOSSES,
    recurrent=PJREDDIE_RECURRENT,
    direct_1x1="any stride",
    input_delta="overwritten by 1x1",
    copied_delta="overwritten",
    connected_delta="free",
    gradient="simplified",
    shared_statistics=True,
    shortcut_sums="by image",
    iou="plain",
    unbox="divide ratio",
    scan="cells outer",
    region="planar",
    crnn_sides="w h",
    xnor="floats",
)

_ALEXEYAB_LAYERS = LayerRule(
    arithmetic=ArithmeticRule(
        transcendental="float",
        leaky="float",
        leaky_host="double",
        piecewise="float",
        gelu="float",
        gelu_gradient="float",
        channel_gradient="sum",
        mish_gradient="double",
        softmax="double",
        box="double",
        diou="double",
    ),
    losses=ALEXEYAB_LOSSES,
    recurrent=ALEXEYAB_RECURRENT,
    direct_1x1="stride x 1",
    input_delta="overwritten",
    copied_delta="overwritten",
    connected_delta="free",
    gradient="simplified",
    shared_statistics=True,
    shortcut_sums="by source input",
    iou="zero guard",
    unbox="multiply inverse",
    scan="cells outer",
    region="flattened",
    crnn_sides="h w",
    xnor="counts",
)

_HANK_AI_LAYERS = replace(
    _ALEXEYAB_LAYERS,
    arithmetic=replace(
        _ALEXEYAB_LAYERS.arithmetic,
        gelu="double",
        gelu_gradient="double",
        mish_gradient="float",
        softmax="float",
        box="float",
        diou="float",
    ),
    losses=HANK_AI_LOSSES,
    scan="anchors outer",
)

_TEXTBOOK_LAYERS = replace(
    _ALEXEYAB_LAYERS,
    arithmetic=replace(_ALEXEYAB_LAYERS.arithmetic, gelu_gradient="exact", channel_gradient="exact"),
    recurrent=TEXTBOOK_RECURRENT,
    input_delta="added",
    copied_delta="added",
    gradient="exact",
    shared_statistics=False,
    shortcut_sums="by image",
)


def _on_gpu(layers: LayerRule) -> LayerRule:
    """What the CUDA code computes, as far as it can be told.

    A matrix product is cuBLAS' there, which defines no order of its sums: here the order is the CPU's. CUDA's own functions are not
    reproduced either: expf, tanhf and mish's __expf are those of the CPU. Losses, boxes, recurrent steps and the derivatives of
    activations over channels are computed as on the CPU.
    """
    arithmetic = replace(
        layers.arithmetic,
        transcendental="float",
        leaky="float",
        leaky_host="float",
        piecewise="float",
        mish_gradient="float",
        softmax="float",
    )
    return replace(layers, arithmetic=arithmetic, connected_delta="constrained", shortcut_sums="by image")


_PROFILES = (
    Profile(
        name="pjreddie-cpu",
        evidence="recorded",
        batchnorm=PJREDDIE_RULES,
        layers=_PJREDDIE_LAYERS,
        training=PJREDDIE_TRAINING,
        sources=PJREDDIE_SOURCES,
    ),
    Profile(
        name="alexeyab-cpu",
        evidence="recorded",
        batchnorm=ALEXEYAB_RULES,
        layers=_ALEXEYAB_LAYERS,
        training=ALEXEYAB_TRAINING,
        sources=ALEXEYAB_SOURCES,
    ),
    Profile(
        name="hank-ai-cpu",
        evidence="recorded",
        batchnorm=HANK_AI_RULES,
        layers=_HANK_AI_LAYERS,
        training=HANK_AI_TRAINING,
        sources=HANK_AI_SOURCES,
    ),
    Profile(
        name="hank-ai-cpu-avx",
        evidence="source",
        batchnorm=HANK_AI_RULES,
        layers=replace(_HANK_AI_LAYERS, arithmetic=replace(_HANK_AI_LAYERS.arithmetic, leaky_host="float")),
        training=HANK_AI_TRAINING,
        sources=MappingProxyType({"leaky_host": "src-lib/gemm.cpp:1463, the branch that a build with AVX takes"}),
    ),
    Profile(
        name="pjreddie-cuda",
        evidence="source",
        batchnorm=PJREDDIE_CUDA_RULES,
        layers=_on_gpu(_PJREDDIE_LAYERS),
        training=replace(PJREDDIE_TRAINING, adam=True),
        sources=PJREDDIE_CUDA_SOURCES,
    ),
    Profile(
        name="alexeyab-cuda",
        evidence="source",
        batchnorm=ALEXEYAB_CUDA_RULES,
        layers=_on_gpu(_ALEXEYAB_LAYERS),
        training=replace(ALEXEYAB_TRAINING, cleared="cleared"),
        sources=ALEXEYAB_CUDA_SOURCES,
    ),
    Profile(
        name="hank-ai-cuda",
        evidence="source",
        batchnorm=HANK_AI_CUDA_RULES,
        layers=_on_gpu(_HANK_AI_LAYERS),
        training=replace(HANK_AI_TRAINING, cleared="cleared"),
        sources=HANK_AI_CUDA_SOURCES,
    ),
    Profile(
        name="textbook",
        evidence="own",
        batchnorm=one_rule(TEXTBOOK_BN),
        layers=_TEXTBOOK_LAYERS,
        training=TEXTBOOK_TRAINING,
        sources=MappingProxyType({}),
    ),
)

_ALL = (*_PROFILES, *framework_profiles(TEXTBOOK_BN, _TEXTBOOK_LAYERS, TEXTBOOK_TRAINING))
PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _ALL})


def profiles() -> tuple[Profile, ...]:
    """All profiles, in the order of the table."""
    return tuple(PROFILES.values())


def profile_named(name: str) -> Profile:
    """The profile of that name.

    Raises:
        ValueError: naming the profiles that there are.
    """
    try:
        return PROFILES[name]
    except (KeyError, TypeError):
        raise ValueError(f"expected a profile ({', '.join(PROFILES)}), got {name!r}") from None
