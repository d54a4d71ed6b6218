"""What a section says about the training of its layer: learning_rate, onlyforward, stopbackward, dont_update, train_only_bn."""

from __future__ import annotations

from ..dialect import TrainingRule
from ..options import Section
from .base import Layer, TrainOptions

__all__ = ["set_training", "train_options"]


def train_options(section: Section) -> TrainOptions:
    """What the options of every section say.

    Source: pjreddie/darknet src/parser.c:841-848, AlexeyAB/darknet src/parser.c:1643-1650, src/network_kernels.cu:292-294.
    """
    return TrainOptions(
        learning_rate=section.number("learning_rate", 1.0),
        only_forward=section.flag("onlyforward"),
        stop=section.flag("stopbackward"),
        dont_update=section.integer("dont_update", 0),
        only_statistics=section.flag("train_only_bn"),
    )


def set_training(layer: Layer, rule: TrainingRule) -> None:
    """Gives the core what it needs of them."""
    if layer.native is not None and (rule.scaled is None or layer.type in rule.scaled):
        layer.native.learning_rate_scale = layer.train.learning_rate
