"""Which options each fork's parser reads, and what it does with the others.

Read from pjreddie/darknet src/parser.c, AlexeyAB/darknet src/parser.c and hank-ai/darknet src-lib/darknet_cfg.cpp: the parse_…
functions, and for hank-ai also CfgLine, find_unused_lines and create_network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

__all__ = ["INFERENCE_KEYS", "PARSERS", "SILENT_DEFAULTS", "Parser"]

Kind = Literal["i", "f", "s", "I", "F"]
"""What a value is read as: whole number, number, text, list of whole numbers, list of numbers."""

Keys = Mapping[str, Mapping[str, str]]


def _table(sections: Mapping[str, str]) -> Keys:
    """Section to key to kind; "*" holds what every layer has."""
    return MappingProxyType(
        {
            section: MappingProxyType({key: part[0] for part in kinds.split("; ") for key in part[2:].split()})
            for section, kinds in sections.items()
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """How a fork's program reads a cfg.

    Args:
        keys: section to key to kind; "*" holds those of every layer.
        values: words that a text key may have; another one is replaced in silence or refused, see unknown.
        unknown: a key that nobody asks for and a word that is not known are *ignored* or *refused*.
        numbers: a number is read as far as it looks like one (*prefix*), or has to be of digits, "." and "-" (*plain*).
        comments: a comment begins at the start of a line only, or anywhere.
        read_with: [net] keys that are asked for only where another key has one of these values ("!0": any but 0).
        needs_image: it divides by the number of layers whose input has width and height.
        sides: width and height have to be multiples of it where the last layer is [yolo] or [region].
    """

    keys: Keys
    values: Mapping[str, frozenset[str]]
    unknown: Literal["ignored", "refused"]
    numbers: Literal["prefix", "plain"]
    comments: Literal["line", "anywhere"]
    read_with: Mapping[str, tuple[str, frozenset[str]]]
    needs_image: bool
    sides: int

    def kind(self, section: str, key: str) -> str | None:
        """What the value of a key is read as; None where the key is not known."""
        common = self.keys["*"] if section != "net" else {}
        return self.keys.get(section, {}).get(key) or common.get(key)


_FIRST = _table(
    {
        "*": "i: dontload dontloadscales dontsave numload onlyforward stopbackward truth; f: learning_rate smooth",
        "activation": "s: activation",
        "connected": "i: batch_normalize output; s: activation",
        "convolutional": "i: batch_normalize binary filters flipped groups pad padding size stride xnor; f: dot; s: activation",
        "cost": "f: noobj ratio scale thresh; s: type",
        "crnn": "i: batch_normalize hidden_filters output_filters shortcut; s: activation",
        "crop": "i: crop_height crop_width flip noadjust; f: angle exposure saturation shift",
        "deconvolutional": "i: batch_normalize filters pad padding size stride; s: activation",
        "detection": (
            "i: classes coords forced max num random reorg rescore side softmax sqrt; f: class_scale coord_scale jitter "
            "noobject_scale object_scale"
        ),
        "dropout": "f: probability",
        "gru": "i: batch_normalize output tanh",
        "iseg": "i: classes ids",
        "local": "i: filters pad size stride; s: activation",
        "lstm": "i: batch_normalize output",
        "maxpool": "i: padding size stride",
        "net": (
            "i: adam batch burn_in center channels height inputs max_batches max_crop min_crop notruth random step "
            "subdivisions time_steps width; f: angle aspect B1 B2 clip decay eps exposure gamma hue learning_rate max_ratio "
            "min_ratio momentum power saturation scale; s: policy; I: steps; F: scales"
        ),
        "normalization": "i: size; f: alpha beta kappa",
        "region": (
            "i: absolute background bias_match classes classfix coords log max num random rescore softmax sqrt; f: "
            "class_scale coord_scale jitter mask_scale noobject_scale object_scale thresh; s: map tree; F: anchors"
        ),
        "reorg": "i: extra flatten reverse stride",
        "rnn": "i: batch_normalize output shortcut; s: activation",
        "route": "I: layers",
        "shortcut": "f: alpha beta; s: activation; I: from",
        "softmax": "i: groups noloss; f: spatial temperature; s: tree",
        "upsample": "i: stride; f: scale",
        "yolo": "i: classes max num random; f: ignore_thresh jitter truth_thresh; s: map; I: mask; F: anchors",
    }
)

_LATER = _table(
    {
        "*": ("i: burnin_update dont_update dontload dontloadscales onlyforward stopbackward train_only_bn; f: clip learning_rate"),
        "Gaussian_yolo": (
            "i: classes max num objectness_smooth; f: beta_nms cls_normalizer delta_normalizer ignore_thresh iou_normalizer "
            "iou_thresh jitter label_smooth_eps max_delta obj_normalizer random resize scale_x_y truth_thresh "
            "uc_normalizer; s: iou_loss iou_thresh_kind map nms_kind yolo_point; I: counters_per_class mask; F: anchors"
        ),
        "activation": "s: activation",
        "connected": "i: batch_normalize output; s: activation",
        "contrastive": "i: classes contrastive_neg_max yolo_layer; f: cls_normalizer max_delta temperature",
        "conv_lstm": (
            "i: batch_normalize bottleneck dilation groups output pad padding peephole shortcut size state_constrain stride "
            "xnor; f: time_normalizer; s: activation lstm_activation"
        ),
        "convolutional": (
            "i: antialiasing batch_normalize bin_output binary cbn coordconv dilation filters flipped grad_centr groups pad "
            "padding rotate share_index size stream stretch stretch_sway stride stride_x stride_y sway wait_stream xnor; f: "
            "angle assisted_excitation dot reverse; s: activation"
        ),
        "cost": "f: ratio scale; s: type",
        "crnn": "i: batch_normalize dilation groups hidden output pad padding shortcut size stride xnor; s: activation",
        "crop": "i: crop_height crop_width flip noadjust; f: angle exposure saturation shift",
        "detection": (
            "i: classes coords forced max num reorg rescore side softmax sqrt; f: class_scale coord_scale jitter "
            "noobject_scale object_scale random resize"
        ),
        "dropout": "i: dropblock; f: dropblock_size_abs dropblock_size_rel probability",
        "gru": "i: batch_normalize output",
        "history": "i: history_size",
        "implicit": "i: atoms filters; f: mean std",
        "local": "i: filters pad size stride; s: activation",
        "local_avgpool": "i: padding size stride stride_x stride_y",
        "lstm": "i: batch_normalize output",
        "maxpool": "i: antialiasing maxpool_depth maxpool_zero_nonmax out_channels padding size stride stride_x stride_y",
        "net": (
            "i: adam attention augment_speed batch blur burn_in channels contrastive contrastive_color contrastive_jit_flip "
            "cutmix dynamic_minibatch equidistant_point flip gaussian_noise height inputs letter_box max_batches max_crop "
            "min_crop mixup mosaic mosaic_bound optimized_memory sequential_subdivisions sgdr_cycle sgdr_mult step "
            "subdivisions time_steps track try_fix_nan unsupervised use_cuda_graph weights_reject_freq width; f: "
            "adversarial_lr angle aspect B1 B2 badlabels_rejection_percentage decay ema_alpha eps exposure gamma hue "
            "label_smooth_eps learning_rate learning_rate_min loss_scale max_chart_loss momentum "
            "num_sigmas_reject_badlabels power resize_step saturation scale show_receptive_field workspace_size_limit_MB; "
            "s: policy; I: steps; F: scales seq_scales"
        ),
        "normalization": "i: size; f: alpha beta kappa",
        "region": (
            "i: absolute bias_match classes classfix coords focal_loss log max num rescore softmax sqrt; f: class_scale "
            "coord_scale jitter mask_scale noobject_scale object_scale random resize thresh; s: map tree; F: anchors"
        ),
        "reorg": "i: reverse stride",
        "reorg3d": "i: reverse stride",
        "rnn": "i: batch_normalize hidden logistic output shortcut; s: activation",
        "route": "i: group_id groups stream wait_stream; I: layers",
        "sam": "i: from; s: activation",
        "scale_channels": "i: from scale_wh; s: activation",
        "shortcut": "s: activation weights_normalization weights_type; I: from",
        "softmax": "i: groups noloss; f: spatial temperature; s: tree",
        "upsample": "i: stride; f: scale",
        "yolo": (
            "i: classes dets_for_show dets_for_track embedding_layer focal_loss max new_coords num objectness_smooth "
            "show_details track_history_size; f: beta_nms cls_normalizer delta_normalizer ignore_thresh iou_normalizer "
            "iou_thresh jitter label_smooth_eps max_delta obj_normalizer random resize scale_x_y sim_thresh track_ciou_norm "
            "truth_thresh; s: iou_loss iou_thresh_kind map nms_kind; I: counters_per_class mask; F: anchors"
        ),
    }
)


def _without(keys: Keys, **left_out: str) -> Keys:
    return MappingProxyType(
        {
            section: MappingProxyType({key: kind for key, kind in known.items() if key not in left_out.get(section, "").split()})
            for section, known in keys.items()
        }
    )


def _words(**words: str) -> dict[str, frozenset[str]]:
    return {key: frozenset(text.split()) for key, text in words.items()}


_PJREDDIE = Parser(
    keys=_FIRST,
    values=_words(policy="random poly constant step exp sigmoid steps", type="seg sse masked smooth L1 wgan"),
    unknown="ignored",
    numbers="prefix",
    comments="line",
    read_with=MappingProxyType({}),
    needs_image=False,
    sides=1,
)

_ALEXEYAB = replace(
    _PJREDDIE,
    keys=_LATER,
    values=_words(
        policy="random poly constant step exp sigmoid steps sgdr",
        type="sse masked smooth",
        iou_loss="mse iou giou diou ciou",
        iou_thresh_kind="iou giou diou ciou",
        nms_kind="default greedynms diounms cornersnms",
        weights_type="none per_feature per_layer per_channel",
        weights_normalization="none relu avg_relu softmax",
        yolo_point="center left_top right_bottom",
    ),
    needs_image=True,
)

_POLICIES = {"step": "step sigmoid", "scale": "step", "gamma": "exp sigmoid"} | dict.fromkeys(
    ("steps", "scales", "seq_scales"), "steps sgdr"
)

_HANK_AI = replace(
    _ALEXEYAB,
    keys=_without(_LATER, net="max_crop min_crop unsupervised", yolo="show_details"),
    values=MappingProxyType(
        dict(_ALEXEYAB.values) | _words(weights_type="none per_feature per_channel", iou_thresh_kind="mse iou giou diou ciou")
    ),
    unknown="refused",
    numbers="plain",
    comments="anywhere",
    read_with=MappingProxyType(
        {key: ("policy", frozenset(words.split())) for key, words in _POLICIES.items()}
        | dict.fromkeys(("B1", "B2", "eps"), ("adam", frozenset({"!0"})))
    ),
    sides=32,
)

PARSERS: Mapping[str, Parser] = MappingProxyType({"pjreddie": _PJREDDIE, "alexeyab": _ALEXEYAB, "hank-ai": _HANK_AI})

INFERENCE_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "connected": frozenset({"batch_normalize"}),
        "convolutional": frozenset(
            "antialiasing assisted_excitation cbn coordconv dilation flipped groups reverse rotate share_index stretch "
            "stretch_sway stride_x stride_y sway".split()
        ),
        "crnn": frozenset("hidden hidden_filters output output_filters".split()),
        "maxpool": frozenset("antialiasing maxpool_depth out_channels stride_x stride_y".split()),
        "net": frozenset({"letter_box"}),
        "region": frozenset({"background"}),
        "reorg": frozenset({"extra", "flatten"}),
        "rnn": frozenset({"hidden", "logistic"}),
        "route": frozenset({"groups", "group_id"}),
        "shortcut": frozenset("alpha beta weights_normalization weights_type".split()),
        "yolo": frozenset("beta_nms new_coords nms_kind scale_x_y".split()),
    }
)
"""Options that not every fork reads and that change what an inference computes."""

SILENT_DEFAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "connected": {"activation": "logistic", "output": "1"},
        "convolutional": {"activation": "logistic", "filters": "1"},
        "region": {"anchors": ".5 for each", "classes": "20", "num": "1"},
        "yolo": {"anchors": ".5 for each", "classes": "20", "num": "1"},
    }
)
"""What a parser takes without a word where an option that matters is not given."""
