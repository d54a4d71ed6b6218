"""What the forks and frameworks do: the one table of fork names and epsilons.

A *dialect* says what bytes and text mean and which defaults a fork's program has. A *profile* says how every float is computed;
its field names are those of the rule structs in `c_src/darknetbn.h`. A new fork, device or framework is one more record.

Sources are `repository file:line` at pjreddie/darknet f6afaab, AlexeyAB/darknet 59596d7 and hank-ai/darknet f684e1d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

__all__ = [
    "ACTIVATIONS",
    "AUTOMATIC",
    "ArithmeticRule",
    "BatchNormRule",
    "DIALECTS",
    "Dialect",
    "EpsilonRule",
    "Host",
    "LayerRule",
    "PROFILES",
    "Profile",
    "profile_named",
    "dialect_named",
    "profiles",
]

Precision = Literal["float", "double"]
Denominator = Literal["n-1", "n"]
Host = Literal["batchnorm", "convolutional", "connected"]
Evidence = Literal["recorded", "run", "source", "own"]


@dataclass(frozen=True, slots=True)
class EpsilonRule:
    """An epsilon, the side of the root it stands on, and the type of its literal.

    A float literal inside the root is added to the variance in float; beside the root it is widened first.
    """

    value: float
    side: Literal["inside", "outside"]
    literal: Precision = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormRule:
    """How one batch normalization computes; the fields of `batchnorm_rule` in the C header, which explains them."""

    forward: EpsilonRule
    direct_term: EpsilonRule
    statistic_terms: EpsilonRule
    fold: EpsilonRule
    fold_factor: Precision
    normalize_variance: Denominator
    keep_variance: Denominator
    rolling_keep: float
    rolling_add: float
    summation: Literal["serial"]
    intermediate: Precision
    bias_gradient: bool
    eval_statistics: Literal["batch", "rolling", "constant"]
    trains_standalone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticRule:
    """The type in which steps with a choice of type are computed; the fields of `arithmetic_rule` in the C header."""

    transcendental: Precision
    leaky: Precision
    leaky_host: Precision
    gelu: Precision
    softmax: Precision
    box: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule:
    """What differs between forks in the layers around batchnorm; the fields of `layer_rule` in the C header."""

    arithmetic: ArithmeticRule
    direct_1x1: Literal["any stride", "stride x 1"]
    iou: Literal["plain", "zero guard"]
    unbox: Literal["divide ratio", "multiply inverse"]
    scan: Literal["cells outer", "anchors outer"]
    region: Literal["planar", "flattened"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How every float is computed.

    `evidence` is *recorded* (bit-equal to recorded outputs of the real program), *run* (compared with it live), *source* (read,
    never run) or *own* (this package's definition). Only of recorded ones is "bit-equal" said.
    """

    name: str
    evidence: Evidence
    batchnorm: Mapping[Host, BatchNormRule]
    layers: LayerRule
    sources: Mapping[str, str]

    def rule(self, host: Host) -> BatchNormRule:
        """The rule of a batchnorm that stands alone or follows a convolutional or connected layer."""
        return self.batchnorm[host]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a fork's bytes and text mean, and its program's defaults.

    Args:
        sections: canonical names of the sections that the fork's parser knows.
        activations: names of the activations that it knows.
        own_keys: (section, key) that the other families of forks do not know.
        batchnorm_arrays: arrays of a [batchnorm] of its own, in file order.
        version: major, minor, revision that it writes.
        seen64_below_1000: it reads a 64-bit counter only where major and minor are below 1000.
        seen32_signed: it reads a 32-bit counter as a signed number.
        versions: (major, minor, revision) that files of this fork's program bear.
        initial_weights: distribution of a convolution's weights before training.
        resize: how its detector fits a picture into the network.
        duplicate_key: which of two equal keys of a section counts, or *error*.
        carriage_return: whether its parser removes a carriage return at the end of a line.
        dropout_probability, yolo_max_boxes: defaults of cfg keys that differ.
        profile: the profile that computes by default.
    """

    name: str
    sections: frozenset[str]
    activations: frozenset[str]
    own_keys: frozenset[tuple[str, str]]
    batchnorm_arrays: tuple[str, ...]
    version: tuple[int, int, int]
    seen64_below_1000: bool
    seen32_signed: bool
    versions: tuple[tuple[int, int, int], ...]
    initial_weights: Literal["normal", "uniform"]
    resize: Literal["letterbox", "stretch"]
    duplicate_key: Literal["first", "error"]
    carriage_return: Literal["kept", "removed"]
    dropout_probability: float
    yolo_max_boxes: int
    profile: str


# --- profiles -------------------------------------------------------------------------------------------------------------------

_INSIDE = EpsilonRule(1e-5, "inside")

_PJREDDIE_BN = BatchNormRule(
    forward=EpsilonRule(1e-6, "outside"),
    direct_term=_INSIDE,
    statistic_terms=_INSIDE,
    fold=EpsilonRule(1e-5, "inside", "double"),
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
    _ALEXEYAB_BN, fold=EpsilonRule(1e-6, "inside"), rolling_keep=0.95, rolling_add=0.05, bias_gradient=True
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
        transcendental="double", leaky="double", leaky_host="double", gelu="float", softmax="double", box="double"
    ),
    direct_1x1="any stride",
    iou="plain",
    unbox="divide ratio",
    scan="cells outer",
    region="planar",
)

_ALEXEYAB_LAYERS = LayerRule(
    arithmetic=ArithmeticRule(
        transcendental="float", leaky="float", leaky_host="double", gelu="float", softmax="double", box="double"
    ),
    direct_1x1="stride x 1",
    iou="zero guard",
    unbox="multiply inverse",
    scan="cells outer",
    region="flattened",
)

_HANK_AI_LAYERS = replace(
    _ALEXEYAB_LAYERS,
    arithmetic=replace(_ALEXEYAB_LAYERS.arithmetic, gelu="double", softmax="float", box="float"),
    scan="anchors outer",
)


def _one_rule(rule: BatchNormRule) -> Mapping[Host, BatchNormRule]:
    return MappingProxyType({"batchnorm": rule, "convolutional": rule, "connected": rule})


_ALEXEYAB_RULES: Mapping[Host, BatchNormRule] = MappingProxyType(
    {"batchnorm": _ALEXEYAB_BN, "convolutional": _ALEXEYAB_BN, "connected": _ALEXEYAB_CONNECTED_BN}
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
        sources=MappingProxyType(
            {
                "forward": "src/blas.c:154",
                "direct_term": "src/batchnorm_layer.c:124",
                "statistic_terms": "src/batchnorm_layer.c:99,114",
                "fold": "src/convolutional_layer.c:334, src/connected_layer.c:203",
                "rolling_keep": "src/batchnorm_layer.c:143-146",
                "normalize_variance": "src/blas.c:110",
                "bias_gradient": "src/batchnorm_layer.c:163",
                "eval_statistics": "src/batchnorm_layer.c:159",
                "trains_standalone": "src/batchnorm_layer.c:6-66 sets no update",
                "direct_1x1": "src/convolutional_layer.c:468",
                "leaky": "src/activations.h:42",
                "iou": "src/box.c box_iou",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
            }
        ),
    ),
    Profile(
        name="alexeyab-cpu",
        evidence="recorded",
        batchnorm=_ALEXEYAB_RULES,
        layers=_ALEXEYAB_LAYERS,
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
                "direct_1x1": "src/convolutional_layer.c:1365",
                "leaky": "src/activations.h:69",
                "leaky_host": "src/gemm.c:2341",
                "iou": "src/box.c box_iou",
                "unbox": "src/yolo_layer.c correct_yolo_boxes",
                "region": "src/region_layer.c forward_region_layer",
            }
        ),
    ),
    Profile(
        name="hank-ai-cpu",
        evidence="recorded",
        batchnorm=MappingProxyType(
            {host: replace(rule, intermediate="float") for host, rule in _ALEXEYAB_RULES.items()}
        ),
        layers=_HANK_AI_LAYERS,
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
                "scan": "src-lib/yolo_layer.cpp:1249",
            }
        ),
    ),
    Profile(
        name="textbook",
        evidence="own",
        batchnorm=_one_rule(_TEXTBOOK_BN),
        layers=_ALEXEYAB_LAYERS,
        sources=MappingProxyType({}),
    ),
)

PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _PROFILES})

# --- dialects -------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = frozenset(
    "linear leaky relu relu6 logistic tanh elu selu mish swish hard_mish gelu revleaky".split()
)
_FIRST_ACTIVATIONS = frozenset(
    "logistic loggy relu elu selu relie plse hardtan lhtan linear ramp leaky tanh stair".split()
)
_LATER_ACTIVATIONS = _FIRST_ACTIVATIONS | frozenset(
    "swish mish hard_mish relu6 gelu revleaky normalize_channels normalize_channels_softmax "
    "normalize_channels_softmax_maxval".split()
)
_COMMON_SECTIONS = frozenset(
    "net convolutional connected local maxpool avgpool upsample route shortcut dropout softmax cost "
    "region yolo rnn lstm crnn".split()
)
_OLD_SECTIONS = frozenset("batchnorm reorg activation normalization crop detection gru".split())
_ALEXEYAB_ONLY = frozenset("local_avgpool reorg3d scale_channels sam contrastive Gaussian_yolo".split())



def _keys(section: str, keys: str) -> frozenset[tuple[str, str]]:
    return frozenset((section, key) for key in keys.split())


_FIRST_KEYS = (
    _keys("shortcut", "alpha beta")
    | _keys("reorg", "flatten extra")
    | _keys("crnn", "hidden_filters output_filters")
    | frozenset((section, key) for section in ("convolutional", "connected") for key in ("numload", "dontsave"))
)
_LATER_KEYS = (
    _keys("convolutional", "stride_x stride_y dilation antialiasing share_index cbn assisted_excitation coordconv")
    | _keys("convolutional", "sway rotate stretch stretch_sway grad_centr reverse stream wait_stream bin_output")
    | _keys("maxpool", "stride_x stride_y maxpool_depth out_channels antialiasing maxpool_zero_nonmax")
    | _keys("route", "groups group_id stream wait_stream")
    | _keys("shortcut", "weights_type weights_normalization")
    | _keys("yolo", "scale_x_y new_coords nms_kind beta_nms iou_loss iou_normalizer cls_normalizer iou_thresh max_delta")
    | _keys("dropout", "dropblock dropblock_size_rel dropblock_size_abs")
    | _keys("net", "letter_box mosaic cutmix mixup optimized_memory ema_alpha")
)

_PJREDDIE = Dialect(
    name="pjreddie",
    sections=_COMMON_SECTIONS | _OLD_SECTIONS | {"deconvolutional", "logistic", "l2norm", "iseg"},
    activations=_FIRST_ACTIVATIONS,
    own_keys=_FIRST_KEYS,
    batchnorm_arrays=("scales", "rolling_mean", "rolling_variance"),
    version=(0, 2, 0),
    seen64_below_1000=True,
    seen32_signed=True,
    versions=((0, 1, 0), (0, 2, 0)),
    initial_weights="normal",
    resize="letterbox",
    duplicate_key="first",
    carriage_return="kept",
    dropout_probability=0.5,
    yolo_max_boxes=90,
    profile="pjreddie-cpu",
)

_ALEXEYAB = replace(
    _PJREDDIE,
    name="alexeyab",
    sections=_COMMON_SECTIONS | _OLD_SECTIONS | _ALEXEYAB_ONLY | {"implicit", "empty", "conv_lstm", "history"},
    activations=_LATER_ACTIVATIONS,
    own_keys=_LATER_KEYS,
    batchnorm_arrays=("biases", "scales", "rolling_mean", "rolling_variance"),
    version=(0, 2, 5),
    seen64_below_1000=False,
    seen32_signed=False,
    versions=((0, 2, 5),),
    initial_weights="uniform",
    resize="stretch",
    carriage_return="removed",
    dropout_probability=0.2,
    yolo_max_boxes=200,
    profile="alexeyab-cpu",
)

_HANK_AI = replace(
    _ALEXEYAB,
    name="hank-ai",
    sections=(_COMMON_SECTIONS - {"local"}) | _ALEXEYAB_ONLY,
    duplicate_key="error",
    profile="hank-ai-cpu",
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({d.name: d for d in (_PJREDDIE, _ALEXEYAB, _HANK_AI)})

AUTOMATIC = ("alexeyab", "pjreddie")
"""Dialects that are told apart by a file's content, the default first; hank-ai's files are AlexeyAB's."""


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


def dialect_named(name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        ValueError: naming the dialects that there are.
    """
    try:
        return DIALECTS[name]
    except (KeyError, TypeError):
        raise ValueError(f"expected a dialect ({', '.join(DIALECTS)} or auto), got {name!r}") from None
