"""Epsilons that ports of Darknet's networks normalise with, beside those of the profiles."""

from __future__ import annotations

from .rules import EpsilonRule

__all__ = ["CONVENTIONS"]

CONVENTIONS = (
    EpsilonRule(1e-6, "inside"),
    EpsilonRule(1e-6, "outside"),  # pjreddie/darknet on the CPU
    EpsilonRule(1e-4, "inside"),
    EpsilonRule(1e-3, "inside"),  # the default of Keras and TensorFlow
)
