"""What each fork's text and bytes mean, and its program's defaults.

Sources are `repository file:line` at pjreddie/darknet f6afaab, AlexeyAB/darknet 59596d7 and hank-ai/darknet f684e1d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .rules import Dialect, TrainingDefaults

__all__ = ["ACTIVATIONS", "AUTOMATIC", "DIALECTS", "dialect_named"]

_FIRST_ACTIVATIONS = frozenset("logistic loggy relu elu selu relie plse hardtan lhtan linear ramp leaky tanh stair".split())
_LATER_ACTIVATIONS = _FIRST_ACTIVATIONS | frozenset(
    "swish mish hard_mish relu6 gelu revleaky normalize_channels normalize_channels_softmax "
    "normalize_channels_softmax_maxval".split()
)
ACTIVATIONS = _FIRST_ACTIVATIONS | _LATER_ACTIVATIONS
_COMMON_SECTIONS = frozenset(
    "net convolutional connected local maxpool avgpool upsample route shortcut dropout softmax cost "
    "region yolo rnn lstm crnn".split()
)
_OLD_SECTIONS = frozenset("batchnorm reorg activation normalization crop detection gru".split())
_ALEXEYAB_ONLY = frozenset("local_avgpool reorg3d scale_channels sam contrastive Gaussian_yolo".split())


def _keys(section: str, keys: str) -> frozenset[tuple[str, str]]:
    return frozenset((section, key) for key in keys.split())


_STORED_SECTIONS = "convolutional connected deconvolutional local batchnorm rnn gru lstm crnn".split()
_FIRST_KEYS = (
    _keys("shortcut", "alpha beta")
    | _keys("reorg", "flatten extra")
    | _keys("crnn", "hidden_filters output_filters")
    | _keys("gru", "tanh")
    | frozenset((section, key) for section in _STORED_SECTIONS for key in ("numload", "dontsave"))
)
_LATER_KEYS = (
    _keys("convolutional", "stride_x stride_y dilation antialiasing share_index cbn assisted_excitation coordconv")
    | _keys("convolutional", "sway rotate stretch stretch_sway grad_centr reverse stream wait_stream bin_output")
    | _keys("maxpool", "stride_x stride_y maxpool_depth out_channels antialiasing maxpool_zero_nonmax")
    | _keys("route", "groups group_id stream wait_stream")
    | _keys("shortcut", "weights_type weights_normalization")
    | _keys("yolo", "scale_x_y new_coords nms_kind beta_nms iou_loss iou_normalizer cls_normalizer iou_thresh max_delta")
    | _keys("yolo", "obj_normalizer delta_normalizer iou_thresh_kind label_smooth_eps objectness_smooth counters_per_class")
    | _keys("yolo", "focal_loss show_details")
    | _keys("region", "focal_loss")
    | _keys("rnn", "logistic")
    | _keys("crnn", "output hidden size stride dilation pad padding groups xnor")
    | _keys("dropout", "dropblock dropblock_size_rel dropblock_size_abs")
    | _keys("net", "letter_box mosaic cutmix mixup optimized_memory ema_alpha")
)

_FIRST_TRAINING = TrainingDefaults(
    policies=("constant", "step", "steps", "exp", "poly", "random", "sigmoid"),  # src/parser.c:642
    learning_rate=0.001,
    learning_rate_min=0.00001,
    momentum=0.9,
    decay=0.0001,
    power=4.0,
    adam_epsilon=0.0000001,
    left_out=frozenset(),
    saved_seen="counted",
)
_LATER_TRAINING = replace(
    _FIRST_TRAINING,
    policies=(*_FIRST_TRAINING.policies, "sgdr"),  # src/parser.c:1131
    adam_epsilon=0.000001,
    left_out=frozenset({"ema_alpha", "weights_reject_freq"}),  # src/network.c:424-452
    saved_seen="iterations",  # src/parser.c:1999
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
    versions=((0, 1, None), (0, 2, 0)),
    initial_weights="normal",
    resize="letterbox",
    duplicate_key="first",
    carriage_return="kept",
    inner_order=MappingProxyType(
        {"gru": tuple("wz wr wh uz ur uh".split()), "lstm": tuple("wi wf wo wg ui uf uo ug".split())}  # src/parser.c:1040-1055
    ),
    rnn_has_hidden=False,
    crnn_padding=1,
    dropout_probability=0.5,
    yolo_max_boxes=90,
    yolo_iou_normalizer=1.0,
    truth_row=5,
    region_boxes=30,  # src/region_layer.c:29,186
    region_class_last=True,
    cost_types=frozenset("seg sse masked smooth L1 wgan".split()),
    plain_shortcut_weights=False,
    normalization_alpha=0.0001,
    training=_FIRST_TRAINING,
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
    inner_order=MappingProxyType(
        {
            "gru": tuple("uz ur uh wz wr wh".split()),  # src/parser.c:2024
            "lstm": tuple("wf wi wg wo uf ui ug uo".split()),  # src/parser.c:2031
            "conv_lstm": tuple("vf vi vo wf wi wg wo uf ui ug uo".split()),  # src/parser.c:2040
        }
    ),
    rnn_has_hidden=True,
    crnn_padding=0,
    dropout_probability=0.2,
    yolo_max_boxes=200,
    training=_LATER_TRAINING,
    yolo_iou_normalizer=0.75,  # src/parser.c:469
    truth_row=6,  # the last is a number for tracking
    region_boxes=None,
    region_class_last=False,
    cost_types=frozenset("sse masked smooth".split()),
    plain_shortcut_weights=False,  # src/parser.c:933 looks at the other option
    profile="alexeyab-cpu",
)

_HANK_AI = replace(
    _ALEXEYAB,
    name="hank-ai",
    sections=(_COMMON_SECTIONS - {"local"}) | _ALEXEYAB_ONLY,
    duplicate_key="error",
    plain_shortcut_weights=True,
    profile="hank-ai-cpu",
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({d.name: d for d in (_PJREDDIE, _ALEXEYAB, _HANK_AI)})

AUTOMATIC = ("alexeyab", "pjreddie")
"""Dialects that are told apart by a file's content, the default first; hank-ai's files are AlexeyAB's."""


def dialect_named(name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        ValueError: naming the dialects that there are.
    """
    try:
        return DIALECTS[name]
    except (KeyError, TypeError):
        raise ValueError(f"expected a dialect ({', '.join(DIALECTS)} or auto), got {name!r}") from None
