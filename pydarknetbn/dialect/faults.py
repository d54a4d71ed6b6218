"""Where a fork crashes, reads memory that is not the picture's, or gives a constant, and what is done here instead.

Arithmetic that a model may really have been run or trained with is not a fault: it is a field of a profile.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One replaced fault.

    Args:
        dialects: the forks concerned.
        where: file and function.
        there: what happens in the fork.
        here: what happens in this package.
        golden: patterns of the recorded files that hold the fault, or lack the case for it.
    """

    dialects: tuple[str, ...]
    where: str
    there: str
    here: str
    golden: tuple[str, ...] = ()


FAULTS = (
    Fault(
        ("pjreddie",),
        "src/batchnorm_layer.c make_batchnorm_layer",
        "a [batchnorm] of its own writes through x, x_norm, mean_delta and variance_delta, which are NULL on the CPU",
        "the arrays come with the first forward; the arithmetic is the fork's",
        ("bn/pjreddie-cpu/*", "layers/pjreddie-cpu/batchnorm*"),
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/batchnorm_layer.c variance_cpu with one value in each channel",
        "1/(n-1) is infinite and every statistic NaN for ever",
        "NumericsError; allow_degenerate gives the fork's NaN",
        ("bn/*/b1_c1_h1_w1*",),
    ),
    Fault(
        ("alexeyab",),
        "src/activations.c activate has no case for relu6",
        "0 for every input",
        "min(max(x, 0), 6)",
        ("conv/alexeyab-cpu/k3s1p1_relu6_*",),
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/activations.c activate_array outside convolutional and shortcut layers has no case for swish, mish and hard_mish",
        "0 for every input",
        "the activation, computed as in a convolution",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "forward_convolutional_layer with size=1 and padding",
        "reads past the end of the image",
        "the padding is 0, as in every larger kernel",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/image.c resize_image to height 1",
        "divides by 0 and indexes with NaN",
        "the first row",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/activations.c get_activation of a name that it does not know",
        "runs as relu",
        "CfgError with the line and the nearest name",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/parser.c of a section that it does not know",
        "an empty layer, or a crash",
        "CfgError with the line and the nearest name",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/parser.c load_weights_upto of a file that is too short or too long",
        "the rest keeps its values, without a word",
        "WeightsError with the layer, the array, expected and found; nothing is loaded",
        ("weights/headers/mixed.truncated.weights", "weights/headers/mixed.trailing_bytes.weights"),
    ),
    Fault(
        ("hank-ai",),
        "src-lib/rnn_layer.cpp, lstm_layer.cpp, crnn_layer.cpp increment_layer",
        "moves the pointers of the layers inside on in every forward and never back: a second one writes past the arrays",
        "every forward starts at the first step",
        ("layers/hank-ai-cpu/*rnn*", "layers/hank-ai-cpu/lstm*"),
    ),
    Fault(
        ("pjreddie",),
        "src/crnn_layer.c make_crnn_layer sets no workspace_size",
        "a network whose other layers need no workspace crashes",
        "each convolution has a workspace of its own",
        ("layers/pjreddie-cpu/crnn*",),
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/crnn_layer.c and src/conv_lstm_layer.c with convolutions that change width or height",
        "an assertion fails, or the state is read past its end",
        "CfgError with both sizes",
    ),
    Fault(
        ("alexeyab",),
        "src/conv_lstm_layer.c forward_history_layer of one time step and several sequences",
        "writes the inputs one after another into the start of the output",
        "each sequence's input comes first in its own output, and zeros after it",
    ),
    Fault(
        ("pjreddie",),
        "src/yolo_layer.c get_yolo_detections of exactly two images",
        "takes the second for the first one mirrored, and the mean of both",
        "each image has its own detections",
    ),
)
