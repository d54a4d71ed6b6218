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
        ("alexeyab", "hank-ai"),
        "src/activations.c activate_array outside convolutional layers has no case for normalize_channels, "
        "normalize_channels_softmax and normalize_channels_softmax_maxval",
        "0 for every input",
        "the activation over the layer's channels, computed as in a convolution",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/normalization_layer.c forward_normalization_layer with half a window of more channels than there are",
        "reads the next image, or behind the last one",
        "channels that are not there are not summed",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/local_layer.c forward_local_layer with a padding that is not half the kernel",
        "reads its columns with the rows of another width, in part before anything was written there",
        "each pixel reads its own window, zeros outside the image",
    ),
    Fault(
        ("pjreddie",),
        "src/local_layer.c make_local_layer",
        "a workspace without the size of a float: writes past its end",
        "the result that was meant",
    ),
    Fault(
        ("pjreddie",),
        "src/parser.c load_convolutional_weights of a [deconvolutional]",
        "divides by its groups, which are 0",
        "reads what save_convolutional_weights writes",
        ("layers/pjreddie-cpu/deconvolutional*", "weights/pjreddie-cpu/deconvolutional*"),
    ),
    Fault(
        ("pjreddie",),
        "src/deconvolutional_layer.c denormalize_deconvolutional_layer",
        "takes the weights for filters of channels, which are channels of filters: folds with the scales of other filters",
        "each weight is multiplied by the factor of its own filter",
    ),
    Fault(
        ("pjreddie",),
        "src/parser.c load_convolutional_weights of flipped=1 with groups",
        "transposes a matrix as wide as without groups: reads and writes past the weights",
        "the channels of one group",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/parser.c save_convolutional_weights of flipped=1",
        "writes the weights as they are computed with: the file cannot be loaded with its own cfg",
        "writes them as they were read",
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/route_layer.c and src/shortcut_layer.c from a layer with antialiasing and a stride",
        "take the sizes from before the blur, of which only the first values are the layer's",
        "the blurred output",
        ("layers/*/*_antialiasing*",),
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/maxpool_layer.c maxpool_depth with antialiasing",
        "is not blurred, but the next layer takes the blur's sizes",
        "UnsupportedError",
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/shortcut_layer.c forward_shortcut_layer from a layer whose input has the shortcut's sizes and whose output has fewer "
        "channels",
        "reads behind the source",
        "adds the channels that both have, image by image",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/cost_layer.c forward_cost_layer without a truth, before another layer",
        "hands on zeros",
        "hands on what it was given",
    ),
    Fault(
        ("alexeyab",),
        "src/parser.c [empty] as the first layer",
        "reads the layer before it, which there is not",
        "passes the input on",
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
        "moves the pointers of the layers inside on in every forward and never back: a second one writes past the arrays; in "
        "training the state's, too, and a backward starts behind the last step",
        "every forward starts at the first step, every backward at the last; otherwise AlexeyAB's arithmetic",
        ("layers/hank-ai-cpu/*rnn*", "layers/hank-ai-cpu/lstm*"),
    ),
    Fault(
        ("pjreddie",),
        "src/rnn_layer.c make_rnn_layer makes a state for one time step",
        "training writes that of each step behind it",
        "a state for each step; the arithmetic is the fork's",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/lstm_layer.c and src/conv_lstm_layer.c have no delta on the CPU, pjreddie's no backward either",
        "training writes through NULL",
        "there is a delta, and backward_lstm_layer or backward_conv_lstm_layer as it stands",
    ),
    Fault(
        ("alexeyab",),
        "src/conv_lstm_layer.c backward_conv_lstm_layer, whose lines for the deltas of state and cell are comments",
        "its convolutions of the state and the cell write into the delta of the input, of the step after this one or behind it",
        "they give no delta back",
    ),
    Fault(
        ("alexeyab",),
        "src/conv_lstm_layer.c backward_history_layer of a first layer; of one time step and several sequences",
        "writes through NULL; takes its deltas from where the forward's fault laid the inputs",
        "nothing is passed on; each sequence's delta is that of its own output",
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
    Fault(
        ("hank-ai",),
        "src-lib/darknet_network.cpp fill_network_boxes_v3 of [region] and [Gaussian_yolo]",
        "the rows are counted and left at 0",
        "the rows that the older fill_network_boxes gives, in its order",
        ("layers/hank-ai-cpu/region_*", "layers/hank-ai-cpu/gaussian_yolo*", "nets/hank-ai-cpu/yolov2_like*"),
    ),
    Fault(
        ("pjreddie",),
        "src/region_layer.c forward_region_layer with tree= on the CPU",
        "takes classes from wrong places and divides by a temperature of 0: NaN",
        "a softmax over each group of each cell and anchor, as its GPU computes",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "get_region_detections, get_region_boxes with tree=",
        "multiplies along the branches in the layer's output, so that a second look differs; a map is read 200 entries far",
        "the output stays, and a map is as long as its file",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/tree.c read_tree of a file that is not there, has a parent that is no earlier node, or not a node for each class",
        "a crash, or values of other layers read and overwritten",
        "without the file a warning and one softmax over all classes; else CfgError with file and line",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/detection_layer.c get_detection_detections with coords= below 4",
        "reads past the end of the output",
        "CfgError",
    ),
    Fault(
        ("pjreddie",),
        "src/iseg_layer.c forward_iseg_layer in inference on the CPU",
        "goes on to the loss, without a truth: a crash",
        "ends after the logistic, as its GPU does",
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/softmax_layer.c forward_contrastive_layer in inference; src/parser.c parse_contrastive without yolo_layer=",
        "the output stays 0; a crash",
        "the input passes, as on its GPU; the layer is built",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "parse_yolo with a mask beyond num=",
        "reads behind the array of anchors",
        "the pairs that anchors= gives count, with a warning; CfgError where it gives too few",
    ),
)
