"""What each fork's program does in training beyond what its layers compute. The sources stand with the profiles."""

from __future__ import annotations

from dataclasses import replace

from .rules import TrainingRule

__all__ = ["ALEXEYAB_TRAINING", "PJREDDIE_TRAINING", "TEXTBOOK_TRAINING"]

PJREDDIE_TRAINING = TrainingRule(
    trained=None,
    cleared="cleared",
    scaled=frozenset("connected convolutional deconvolutional local".split()),
    stops_before=False,
    passes_over=False,
    shared_updates=True,
)
ALEXEYAB_TRAINING = TrainingRule(
    trained=frozenset("batchnorm conv_lstm convolutional crnn history local_avgpool maxpool shortcut".split()),
    cleared="multiplied",
    scaled=frozenset("convolutional implicit shortcut".split()),
    stops_before=True,
    passes_over=True,
    shared_updates=True,
)
TEXTBOOK_TRAINING = replace(PJREDDIE_TRAINING, scaled=None, stops_before=True, passes_over=True, shared_updates=False)
