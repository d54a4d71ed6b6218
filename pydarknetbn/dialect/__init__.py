"""What the forks and frameworks do: the one table of their names and numbers.

A *dialect* says what bytes and text mean and which defaults a fork's program has. A *profile* says how every float is computed;
its field names are those of the rule structs in `c_src/darknetbn.h`. No fork's name and no epsilon stands anywhere else.
"""

from __future__ import annotations

from .backward_faults import BACKWARD_FAULTS
from .conventions import COMMON_EPSILONS, CONVENTIONS, whose_epsilon
from .dialects import ACTIVATIONS, AUTOMATIC, DIALECTS, dialect_named
from .faults import FAULTS as _FAULTS
from .faults import Fault
from .frameworks import CONVENTIONS_OF_STATISTICS, DARKNET_STATISTICS, Statistics
from .keys import INFERENCE_KEYS, PARSERS, SILENT_DEFAULTS, Parser
from .loss_faults import LOSS_FAULTS
from .profiles import PROFILES, profile_named, profiles
from .rate_faults import RATE_FAULTS
from .rules import (
    EVIDENCE,
    ArithmeticRule,
    BatchNormRule,
    Dialect,
    EpsilonRule,
    Host,
    LayerRule,
    LossRule,
    Profile,
    RateRule,
    RecurrentRule,
    TrainingDefaults,
    TrainingRule,
)

__all__ = [
    "ACTIVATIONS",
    "AUTOMATIC",
    "COMMON_EPSILONS",
    "CONVENTIONS",
    "CONVENTIONS_OF_STATISTICS",
    "DARKNET_STATISTICS",
    "DIALECTS",
    "EVIDENCE",
    "FAULTS",
    "INFERENCE_KEYS",
    "PARSERS",
    "PROFILES",
    "SILENT_DEFAULTS",
    "ArithmeticRule",
    "BatchNormRule",
    "Dialect",
    "EpsilonRule",
    "Fault",
    "Host",
    "LayerRule",
    "LossRule",
    "Parser",
    "Profile",
    "RateRule",
    "RecurrentRule",
    "Statistics",
    "TrainingDefaults",
    "TrainingRule",
    "dialect_named",
    "profile_named",
    "profiles",
    "whose_epsilon",
]

FAULTS = (*_FAULTS, *BACKWARD_FAULTS, *LOSS_FAULTS, *RATE_FAULTS)
