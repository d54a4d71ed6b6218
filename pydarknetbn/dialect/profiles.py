"""How each fork and framework computes: every epsilon, factor and type, with its source. A new one is one more record.

Sources are `repository file:line` at pjreddie/darknet f6afaab, AlexeyAB/darknet 59596d7 and hank-ai/darknet f684e1d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .batchnorms import ALEXEYAB_RULES, HANK_AI_RULES, PJREDDIE_RULES, TEXTBOOK_BN, one_rule
from .frameworks import framework_profiles
from .recurrent import ALEXEYAB_RECURRENT, PJREDDIE_RECURRENT, TEXTBOOK_RECURRENT
from .rules import ArithmeticRule, LayerRule, Profile, TrainingRule

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
    recurrent=PJREDDIE_RECURRENT,
    direct_1x1="any stride",
    input_delta="overwritten by 1x1",
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
    recurrent=ALEXEYAB_RECURRENT,
    direct_1x1="stride x 1",
    input_delta="overwritten",
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
    scan="anchors outer",
)

_TEXTBOOK_LAYERS = replace(
    _ALEXEYAB_LAYERS,
    arithmetic=replace(_ALEXEYAB_LAYERS.arithmetic, gelu_gradient="exact", channel_gradient="exact"),
    recurrent=TEXTBOOK_RECURRENT,
    input_delta="added",
)

_PJREDDIE_TRAINING = TrainingRule(
    trained=None,
    cleared="cleared",
    scaled=frozenset("connected convolutional deconvolutional local".split()),
    stops_before=False,
    passes_over=False,
)
_ALEXEYAB_TRAINING = TrainingRule(
    trained=frozenset("batchnorm conv_lstm convolutional crnn history maxpool shortcut".split()),
    cleared="multiplied",
    scaled=frozenset("convolutional implicit shortcut".split()),
    stops_before=True,
    passes_over=True,
)
_TEXTBOOK_TRAINING = replace(_PJREDDIE_TRAINING, scaled=None, stops_before=True, passes_over=True)

_PROFILES = (
    Profile(
        name="pjreddie-cpu",
        evidence="recorded",
        batchnorm=PJREDDIE_RULES,
        layers=_PJREDDIE_LAYERS,
        training=_PJREDDIE_TRAINING,
        sources=MappingProxyType(
            {
                "forward": "src/blas.c:154",
                "direct_term": "src/batchnorm_layer.c:124",
                "statistic_terms": "src/batchnorm_layer.c:99,114",
                "fold": "src/convolutional_layer.c:334, src/connected_layer.c:203",
                "rolling_keep": "src/batchnorm_layer.c:143-146",
                "normalize_variance": "src/blas.c:110",
                "bias_gradient": "src/batchnorm_layer.c:163",
                "trained": "src/network.c forward_network, update_network",
                "scaled": "learning_rate_scale in src/*_layer.c",
                "recurrent": "backward_ in src/rnn_layer.c, crnn_layer.c, gru_layer.c, lstm_layer.c",
                "inner_convolutions_learn": "src/convolutional_layer.c:176 sets no learning_rate_scale",
                "eval_statistics": "src/batchnorm_layer.c:159",
                "trains_standalone": "src/batchnorm_layer.c:6-66 sets no update",
                "direct_1x1": "src/convolutional_layer.c:468",
                "input_delta": "src/convolutional_layer.c:524-528",
                "leaky": "src/activations.h:42",
                "piecewise": "src/activations.h:21-58",
                "iou": "src/box.c box_iou",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
                "crnn_sides": "src/parser.c:217 passes w, h where src/crnn_layer.c:26 takes h, w",
            }
        ),
    ),
    Profile(
        name="alexeyab-cpu",
        evidence="recorded",
        batchnorm=ALEXEYAB_RULES,
        layers=_ALEXEYAB_LAYERS,
        training=_ALEXEYAB_TRAINING,
        sources=MappingProxyType(
            {
                "forward": "src/blas.c:292",
                "direct_term": "src/batchnorm_layer.c:143",
                "statistic_terms": "src/batchnorm_layer.c:118,133",
                "fold": "src/network.c:1312, src/connected_layer.c:251",
                "rolling_keep": "src/batchnorm_layer.c:196-199, src/connected_layer.c:191-194",
                "normalize_variance": "src/blas.c:269",
                "bias_gradient": "src/batchnorm_layer.c:211-221, src/connected_layer.c:216",
                "trains_standalone": "src/batchnorm_layer.c:223",
                "trained": "src/network.c:276,300: layers whose train is not set by their make_ function are left out",
                "recurrent": "backward_ in src/rnn_layer.c, crnn_layer.c, gru_layer.c, lstm_layer.c, conv_lstm_layer.c",
                "direct_1x1": "src/convolutional_layer.c:1365",
                "input_delta": "src/col2im.c:65 zeroes first",
                "mish_gradient": "src/activations.c gradient_array_mish",
                "gelu_gradient": "src/activations.h gelu_gradient, called with the output",
                "channel_gradient": "src/activations.c gradient_array_normalize_channels",
                "leaky": "src/activations.h:69",
                "leaky_host": "src/gemm.c:2341",
                "piecewise": "src/activations.h:48-97",
                "shortcut_sums": "src/shortcut_layer.c forward_shortcut_layer",
                "iou": "src/box.c box_iou",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
                "region": "src/region_layer.c forward_region_layer",
            }
        ),
    ),
    Profile(
        name="hank-ai-cpu",
        evidence="recorded",
        batchnorm=HANK_AI_RULES,
        layers=_HANK_AI_LAYERS,
        training=_ALEXEYAB_TRAINING,
        sources=MappingProxyType(
            {
                "forward": "src-lib/blas.cpp:442",
                "direct_term": "src-lib/batchnorm_layer.cpp:62",
                "statistic_terms": "src-lib/batchnorm_layer.cpp:34,50",
                "fold": "src-lib/darknet_network.cpp:1686, src-lib/connected_layer.cpp:263",
                "rolling_keep": "src-lib/batchnorm_layer.cpp:119-122, src-lib/connected_layer.cpp:199",
                "gelu": "src-lib/activations.hpp:135",
                "softmax": "src-lib/blas.cpp:641",
                "box": "src-lib/yolo_layer.cpp:38",
                "diou": "src-lib/box.cpp:145",
                "scan": "src-lib/yolo_layer.cpp:1249",
            }
        ),
    ),
    Profile(
        name="hank-ai-cpu-avx",
        evidence="source",
        batchnorm=HANK_AI_RULES,
        layers=replace(_HANK_AI_LAYERS, arithmetic=replace(_HANK_AI_LAYERS.arithmetic, leaky_host="float")),
        training=_ALEXEYAB_TRAINING,
        sources=MappingProxyType({"leaky_host": "src-lib/gemm.cpp:1463, the branch that a build with AVX takes"}),
    ),
    Profile(
        name="textbook",
        evidence="own",
        batchnorm=one_rule(TEXTBOOK_BN),
        layers=_TEXTBOOK_LAYERS,
        training=_TEXTBOOK_TRAINING,
        sources=MappingProxyType({}),
    ),
)

_ALL = (*_PROFILES, *framework_profiles(TEXTBOOK_BN, _TEXTBOOK_LAYERS, _TEXTBOOK_TRAINING))
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
