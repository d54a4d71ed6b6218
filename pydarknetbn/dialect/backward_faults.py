"""The faults of `faults.py` that are in the training of single layers."""

from __future__ import annotations

from .faults import Fault

__all__ = ["BACKWARD_FAULTS"]

BACKWARD_FAULTS = (
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/maxpool_layer.c backward_maxpool_layer of a window without a value above -FLT_MAX, such as one of NaN",
        "writes in front of the array",
        "its delta goes nowhere",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "backward_* of a first layer that is not [convolutional], [connected], [local], [deconvolutional] or [batchnorm]",
        "writes through NULL: nobody wants that delta",
        "nothing is written",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "src/parser.c parse_network_cfg of a [dropout] as first layer",
        "takes its output and delta from in front of the array of layers: a crash",
        "drops values of a copy of the input",
    ),
    Fault(
        ("pjreddie",),
        "src/local_layer.c make_local_layer",
        "asks for a workspace of as many bytes as it takes floats: writes past it, unless another layer needs a larger one",
        "no workspace is needed",
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/dropout_layer.c with dropblock=1",
        "drops single values on the CPU, as without; only its GPU code drops blocks",
        "UnsupportedError in training",
    ),
)
