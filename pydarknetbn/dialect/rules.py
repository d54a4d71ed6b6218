"""What a profile and a dialect are made of; their values stand in `profiles.py` and `dialects.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "EVIDENCE",
    "ArithmeticRule",
    "BatchNormRule",
    "Dialect",
    "EpsilonRule",
    "Evidence",
    "Host",
    "LayerRule",
    "LossRule",
    "Profile",
    "RateRule",
    "RecurrentRule",
    "TrainingDefaults",
    "TrainingRule",
]

Precision = Literal["float", "double"]
Denominator = Literal["n-1", "n"]
Host = Literal["batchnorm", "convolutional", "connected"]
Evidence = Literal["recorded", "run", "source", "own"]
EVIDENCE: Mapping[str, str] = {
    "recorded": "bit-equal to recorded outputs",
    "run": "compared with it live",
    "source": "read, never run",
    "own": "this package's own",
}
"""What each kind of evidence is worth."""


@dataclass(frozen=True, slots=True)
class EpsilonRule:
    """An epsilon, the side of the root it stands on, and the type of its literal.

    A float literal inside the root is added to the variance in float; beside the root it is widened first.
    """

    value: float
    side: Literal["inside", "outside"]
    literal: Precision = "float"

    def __str__(self) -> str:
        """The root with its epsilon: √(v+1e-05) or √v+1e-06."""
        return f"√(v+{self.value:g})" if self.side == "inside" else f"√v+{self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormRule:
    """How one batch normalization computes; the fields of `batchnorm_rule` in the C header, which explains them."""

    forward: EpsilonRule
    direct_term: EpsilonRule
    statistic_terms: EpsilonRule
    fold: EpsilonRule
    fold_root: Precision
    fold_factor: Precision
    normalize_variance: Denominator
    keep_variance: Denominator
    rolling: Literal["factors", "cumulative"]
    rolling_keep: float
    rolling_add: float
    variance_formula: Literal["differences", "squares"]
    summation: Literal["serial", "strided", "double"]
    moments: Literal["reciprocal", "quotient"]
    squares: Precision
    intermediate: Precision
    inverse_cube: Literal["pow", "root"]
    quotients: Precision
    products: Precision
    bias_gradient: bool
    host_bias_gradient: bool
    eval_statistics: Literal["batch", "rolling", "rolling copied", "constant"]
    trains_standalone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticRule:
    """The type in which steps with a choice of type are computed; the fields of `arithmetic_rule` in the C header."""

    transcendental: Precision
    leaky: Precision
    leaky_host: Precision
    piecewise: Precision
    gelu: Precision
    gelu_gradient: Literal["float", "double", "exact"]
    channel_gradient: Literal["sum", "exact"]
    mish_gradient: Precision
    softmax: Precision
    box: Precision
    diou: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    """How losses compute; the fields of `loss_rule` in the C header, which explains them."""

    functions: Precision
    box_deltas: Literal["replaced", "added"]
    class_mark: Literal["first", "own"]
    spared: Literal["overlapping", "overlapping and sure"]
    non_numbers: Literal["kept", "replaced"]
    score_sums: Literal["batch", "image"]
    smooth_sign: Literal["away", "towards"]
    aspect_guard: float
    normal_guard: float
    probability_guard: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRule:
    """What differs between forks in backward through time; the fields of `recurrent_rule` in the C header, which explains them."""

    step_statistics: Literal["own", "last"]
    rnn_reading: Literal["state", "sum"]
    rnn_passing: Literal["state", "self"]
    gru_backward: bool
    lstm_before: Literal["state", "first step"]
    lstm_after: Literal["last step", "first step"]
    lstm_keeps_cell_delta: bool
    conv_lstm_passes_state: bool
    conv_lstm_cell: Literal["computed", "kept"]
    history_passes_all: bool
    inner_convolutions_learn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule:
    """What differs between forks in the layers around batchnorm; the fields of `layer_rule` in the C header."""

    arithmetic: ArithmeticRule
    losses: LossRule
    recurrent: RecurrentRule
    direct_1x1: Literal["any stride", "stride x 1"]
    input_delta: Literal["added", "overwritten", "overwritten by 1x1"]
    copied_delta: Literal["added", "overwritten"]
    connected_delta: Literal["free", "constrained"]
    gradient: Literal["simplified", "exact"]
    shared_statistics: bool
    shortcut_sums: Literal["by image", "by source input"]
    iou: Literal["plain", "zero guard"]
    unbox: Literal["divide ratio", "multiply inverse"]
    scan: Literal["cells outer", "anchors outer"]
    region: Literal["planar", "flattened"]
    crnn_sides: Literal["h w", "w h"]
    xnor: Literal["floats", "counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRule:
    """How a learning rate is computed; the fields of `rate_rule` in the C header, which explains them."""

    power: Precision
    exponential: Precision
    unsigned_iteration: bool
    pi: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """What a fork's program does to layers in training beyond what each of them computes.

    Args:
        trained: types of layers that it updates and whose delta it clears before each forward; None: all.
        cleared: how it clears a delta: filled with zeros, or multiplied by 0, after which a NaN is still there.
        scaled: types whose learning_rate= counts; None: all.
        stops_before: layers before one with stopbackward=1 are not updated either.
        passes_over: backward leaves layers with onlyforward=1 out.
        holds_back: dont_update= and train_only_bn= count.
        adam: adam=1 of [net] is done; else it is ignored.
        rates: learning rates.
        shared_updates: a kernel that several layers share moves once for each of them; else once.
    """

    trained: frozenset[str] | None
    cleared: Literal["cleared", "multiplied"]
    scaled: frozenset[str] | None
    stops_before: bool
    passes_over: bool
    holds_back: bool
    adam: bool
    rates: RateRule
    shared_updates: bool

    def trains(self, layer_type: str) -> bool:
        """Whether layers of that type are updated."""
        return self.trained is None or layer_type in self.trained


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
    training: TrainingRule
    sources: Mapping[str, str]

    def rule(self, host: Host) -> BatchNormRule:
        """The rule of a batchnorm that stands alone or follows a convolutional or connected layer."""
        return self.batchnorm[host]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDefaults:
    """What a fork's program takes where [net] does not tell, and how it counts.

    Args:
        policies: names of the learning-rate policies that it knows; any other is taken for the first.
        learning_rate, learning_rate_min, momentum, decay, power, adam_epsilon: defaults.
        left_out: [net] options that change a training on the CPU there, and not here.
        saved_seen: the counter that it writes is the one that grows with each minibatch, or the iterations times the batch.
    """

    policies: tuple[str, ...]
    learning_rate: float
    learning_rate_min: float
    momentum: float
    decay: float
    power: float
    adam_epsilon: float
    left_out: frozenset[str]
    saved_seen: Literal["counted", "iterations"]


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
        versions: (major, minor, revision or None for any) that files of this fork's program bear.
        initial_weights: distribution of a convolution's weights before training.
        resize: how its detector fits a picture into the network.
        duplicate_key: which of two equal keys of a section counts, or *error*.
        carriage_return: whether its parser removes a carriage return at the end of a line.
        inner_order: of a [gru], [lstm] or [conv_lstm], the layers inside in file order.
        rnn_has_hidden: an [rnn] reads hidden=; else it has as many hidden values as outputs.
        crnn_padding: of a [crnn] without padding=.
        dropout_probability, yolo_max_boxes, yolo_iou_normalizer: defaults of cfg keys that differ.
        truth_row: floats of a box in the truth of a [yolo]; those of a [region] are as many, or, where that is not 4 + 1, more.
        region_boxes: how many a [region] reads, whatever max= says; None: max=, else as many as a [yolo].
        region_class_last: a box's class stands behind its coords= and not behind the first four.
        cost_types: those of a [cost] that its program knows; any other is sse there.
        plain_shortcut_weights: its program takes weights of a [shortcut] without a normalization, and does not end there.
        normalization_alpha: default of the alpha of a [normalization].
        training: defaults of [net] for training.
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
    versions: tuple[tuple[int, int, int | None], ...]
    initial_weights: Literal["normal", "uniform"]
    resize: Literal["letterbox", "stretch"]
    duplicate_key: Literal["first", "error"]
    carriage_return: Literal["kept", "removed"]
    inner_order: Mapping[str, tuple[str, ...]]
    rnn_has_hidden: bool
    crnn_padding: int
    dropout_probability: float
    yolo_max_boxes: int
    yolo_iou_normalizer: float
    truth_row: int
    region_boxes: int | None
    region_class_last: bool
    cost_types: frozenset[str]
    plain_shortcut_weights: bool
    normalization_alpha: float
    training: TrainingDefaults
    profile: str
