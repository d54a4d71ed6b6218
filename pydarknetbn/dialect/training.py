"""What each fork's program does in training beyond what its layers compute. The sources stand with the profiles."""

from __future__ import annotations

import math
from dataclasses import replace

from .rules import RateRule, TrainingRule

__all__ = ["ALEXEYAB_TRAINING", "HANK_AI_TRAINING", "PJREDDIE_TRAINING", "TEXTBOOK_TRAINING"]

PJREDDIE_TRAINING = TrainingRule(
    trained=None,
    cleared="cleared",
    scaled=frozenset("connected convolutional deconvolutional local".split()),
    stops_before=False,
    passes_over=False,
    shared_updates=True,
    holds_back=False,
    adam=False,
    rates=RateRule(power="double", exponential="double", unsigned_iteration=True, pi=math.pi),
)
ALEXEYAB_TRAINING = replace(
    PJREDDIE_TRAINING,
    trained=frozenset("batchnorm conv_lstm convolutional crnn history local_avgpool maxpool shortcut".split()),
    cleared="multiplied",
    scaled=frozenset("convolutional implicit shortcut".split()),
    stops_before=True,
    passes_over=True,
    holds_back=True,
    rates=RateRule(power="double", exponential="double", unsigned_iteration=False, pi=3.14159265),
)
HANK_AI_TRAINING = replace(
    ALEXEYAB_TRAINING, rates=RateRule(power="float", exponential="float", unsigned_iteration=False, pi=math.pi)
)
TEXTBOOK_TRAINING = replace(
    PJREDDIE_TRAINING,
    scaled=None,
    stops_before=True,
    passes_over=True,
    holds_back=True,
    adam=True,
    shared_updates=False,
    rates=replace(PJREDDIE_TRAINING.rates, unsigned_iteration=False),
)
