"""The faults of learning rates."""

from __future__ import annotations

from .faults import Fault

__all__ = ["RATE_FAULTS"]

RATE_FAULTS = (
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
