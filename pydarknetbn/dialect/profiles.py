"""How each fork and framework computes: every epsilon, factor and type, with its source. A new one is one more record.

Sources are `repository file:line` at pjreddie/darknet f6afaab, AlexeyAB/darknet 59596d7 and hank-ai/darknet f684e1d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .frameworks import framework_profiles
from .losses import ALEXEYAB_LOSSES, HANK_AI_LOSSES, PJREDDIE_LOSSES
from .recurrent import ALEXEYAB_RECURRENT, PJREDDIE_RECURRENT, TEXTBOOK_RECURRENT
from .rules import ArithmeticRule, BatchNormRule, EpsilonRule, Host, LayerRule, Profile
from .training import ALEXEYAB_TRAINING, PJREDDIE_TRAINING, TEXTBOOK_TRAINING

__all__ = ["PROFILES", "profile_named", "profiles"]

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
    rolling_keep=0.99,
    rolling_add=0.01,
    summation="serial",
    intermediate="double",
    bias_gradient=True,
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

_TEXTBOOK_BN = replace(
    _PJREDDIE_BN,
    forward=_INSIDE,
    fold=_INSIDE,
    fold_factor="double",
    normalize_variance="n",
    keep_variance="n",
    eval_statistics="constant",
    trains_standalone=True,
)

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


def _one_rule(rule: BatchNormRule) -> Mapping[Host, BatchNormRule]:
    return MappingProxyType({"batchnorm": rule, "convolutional": rule, "connected": rule})


_ALEXEYAB_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {"batchnorm": _ALEXEYAB_BN, "convolutional": _ALEXEYAB_BN, "connected": _ALEXEYAB_CONNECTED_BN}
)

_HANK_AI_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {host: replace(rule, intermediate="float") for host, rule in _ALEXEYAB_RULES.items()}
    | {"connected": replace(_ALEXEYAB_CONNECTED_BN, intermediate="float", fold_root="float")}
)

_PROFILES = (
    Profile(
        name="pjreddie-cpu",
        evidence="recorded",
        batchnorm=MappingProxyType(
            {
                "batchnorm": _PJREDDIE_BN,
                "convolutional": _PJREDDIE_BN,
                "connected": replace(_PJREDDIE_BN, fold=EpsilonRule(1e-6, "inside", "double")),
            }
        ),
        layers=_PJREDDIE_LAYERS,
        training=PJREDDIE_TRAINING,
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
                "copied_delta": "backward_* of src/{activation,reorg,normalization,upsample}_layer.c",
                "gradient": "src/l2norm_layer.c, src/normalization_layer.c backward_*, src/dropout_layer.c forward_dropout_layer",
                "leaky": "src/activations.h:42",
                "piecewise": "src/activations.h:21-58",
                "iou": "src/box.c box_iou",
                "losses": "src/yolo_layer.c:84-244, src/blas.c:238-274",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
                "crnn_sides": "src/parser.c:217 passes w, h where src/crnn_layer.c:26 takes h, w",
            }
        ),
    ),
    Profile(
        name="alexeyab-cpu",
        evidence="recorded",
        batchnorm=_ALEXEYAB_RULES,
        layers=_ALEXEYAB_LAYERS,
        training=ALEXEYAB_TRAINING,
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
                "copied_delta": "backward_* of src/{activation,reorg,normalization,upsample,sam}_layer.c",
                "gradient": "src/maxpool_layer.c backward_*, src/blas.c:145, src/normalization_layer.c",
                "shared_statistics": "src/convolutional_layer.c:622-630",
                "shared_updates": "src/network.c:295 update_network",
                "mish_gradient": "src/activations.c gradient_array_mish",
                "gelu_gradient": "src/activations.h gelu_gradient, called with the output",
                "channel_gradient": "src/activations.c gradient_array_normalize_channels",
                "leaky": "src/activations.h:69",
                "leaky_host": "src/gemm.c:2341",
                "piecewise": "src/activations.h:48-97",
                "shortcut_sums": "src/shortcut_layer.c forward_shortcut_layer",
                "iou": "src/box.c box_iou",
                "losses": "src/yolo_layer.c:161-646, src/box.c:226-450, src/blas.c:387-423",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
                "region": "src/region_layer.c forward_region_layer",
            }
        ),
    ),
    Profile(
        name="hank-ai-cpu",
        evidence="recorded",
        batchnorm=_HANK_AI_RULES,
        layers=_HANK_AI_LAYERS,
        training=ALEXEYAB_TRAINING,
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
                "losses": "src-lib/yolo_layer.cpp:74-710, src-lib/box.cpp:465-680",
                "scan": "src-lib/yolo_layer.cpp:1249",
            }
        ),
    ),
    Profile(
        name="hank-ai-cpu-avx",
        evidence="source",
        batchnorm=_HANK_AI_RULES,
        layers=replace(_HANK_AI_LAYERS, arithmetic=replace(_HANK_AI_LAYERS.arithmetic, leaky_host="float")),
        training=ALEXEYAB_TRAINING,
        sources=MappingProxyType({"leaky_host": "src-lib/gemm.cpp:1463, the branch that a build with AVX takes"}),
    ),
    Profile(
        name="textbook",
        evidence="own",
        batchnorm=_one_rule(_TEXTBOOK_BN),
        layers=_TEXTBOOK_LAYERS,
        training=TEXTBOOK_TRAINING,
        sources=MappingProxyType({}),
    ),
)

_ALL = (*_PROFILES, *framework_profiles(_TEXTBOOK_BN, _TEXTBOOK_LAYERS, TEXTBOOK_TRAINING))
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
