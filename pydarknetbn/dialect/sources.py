"""Where in a fork's source the fields of its profile stand, as `file:line`.

At pjreddie/darknet f6afaab, AlexeyAB/darknet 59596d7 and hank-ai/darknet f684e1d.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ALEXEYAB_SOURCES", "HANK_AI_SOURCES", "PJREDDIE_SOURCES"]

PJREDDIE_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "forward": "src/blas.c:154",
        "direct_term": "src/batchnorm_layer.c:124",
        "statistic_terms": "src/batchnorm_layer.c:99,114",
        "fold": "src/convolutional_layer.c:334, src/connected_layer.c:203",
        "rolling_keep": "src/batchnorm_layer.c:143-146",
        "normalize_variance": "src/blas.c:110",
        "bias_gradient": "src/batchnorm_layer.c:163",
        "trained": "src/network.c forward_network, update_network",
        "rates": "src/network.c:90",
        "adam": "src/convolutional_layer.c update_convolutional_layer looks at no adam; its GPU code does",
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
)

ALEXEYAB_SOURCES: Mapping[str, str] = MappingProxyType(
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
        "holds_back": "src/network_kernels.cu:292-294; its CPU code looks at neither option, here both work",
        "rates": "src/network.c:131",
        "recurrent": "backward_ in src/rnn_layer.c, crnn_layer.c, gru_layer.c, lstm_layer.c, conv_lstm_layer.c",
        "direct_1x1": "src/convolutional_layer.c:1365",
        "input_delta": "src/col2im.c:65 zeroes first",
        "copied_delta": "backward_* of src/{activation,reorg,normalization,upsample,sam}_layer.c",
        "gradient": "src/maxpool_layer.c backward_*, src/blas.c:145, src/normalization_layer.c",
        "shared_statistics": "src/convolutional_layer.c:622-630",
        "shared_updates": "src/network.c:295 update_network",
        "gelu_gradient": "src/activations.h gelu_gradient, called with the output",
        "channel_gradient": "src/activations.c gradient_array_normalize_channels",
        "mish_gradient": "src/activations.c gradient_array_mish",
        "leaky": "src/activations.h:69",
        "leaky_host": "src/gemm.c:2341",
        "piecewise": "src/activations.h:48-97",
        "shortcut_sums": "src/shortcut_layer.c forward_shortcut_layer",
        "iou": "src/box.c box_iou",
        "losses": "src/yolo_layer.c:161-646, src/box.c:226-450, src/blas.c:387-423",
        "unbox": "src/yolo_layer.c correct_yolo_boxes",
        "region": "src/region_layer.c forward_region_layer",
    }
)

HANK_AI_SOURCES: Mapping[str, str] = MappingProxyType(
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
        "rates": "src-lib/darknet_network.cpp:133: pow and exp of floats are powf and expf in C++",
    }
)
