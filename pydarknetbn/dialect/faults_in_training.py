"""The faults that only a training meets."""

from __future__ import annotations

from .fault import Fault

__all__ = ["TRAINING_FAULTS"]

TRAINING_FAULTS = (
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
        ("alexeyab", "hank-ai"),
        "src/dropout_layer.c with dropblock=1",
        "drops single values on the CPU, as without; only its GPU code drops blocks",
        "UnsupportedError in training",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "parse_net_options of policy=steps with fewer scales= than steps=",
        "reads numbers at an address behind NULL; hank-ai takes 0, and nothing moves any more",
        "CfgError where the network is to train",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "get_current_rate of policy=step with step=0, sgdr with a cycle of 0, poly with max_batches=0",
        "divides by 0, goes round for ever, gives rates that are no numbers",
        "CfgError where the network is to train",
    ),
)
