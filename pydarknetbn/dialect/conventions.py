"""Epsilons that ports of Darknet's networks normalise with, beside those of the profiles."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .rules import EpsilonRule

__all__ = ["COMMON_EPSILONS", "CONVENTIONS", "whose_epsilon"]

CONVENTIONS = (
    EpsilonRule(1e-6, "inside"),
    EpsilonRule(1e-6, "outside"),  # pjreddie/darknet on the CPU
    EpsilonRule(1e-4, "inside"),
    EpsilonRule(1e-3, "inside"),  # the default of Keras and TensorFlow
)

COMMON_EPSILONS = (1e-6, 1e-5, 1e-4, 1e-3)
"""Values that a recovered epsilon is likely to be exactly."""

_WHOSE: Mapping[tuple[float, str], str] = MappingProxyType(
    {
        (1e-3, "inside"): "the default of Keras and TensorFlow",
        (1e-4, "inside"): "that of Ultralytics' YOLOv3",
        (1e-5, "inside"): "the default of PyTorch and ONNX",
        (1e-6, "inside"): "that of OpenCV's and TVM's importers",
        (1e-6, "outside"): "that of pjreddie/darknet on the CPU",
    }
)


def whose_epsilon(value: float, side: str) -> str:
    """Who normalises with an epsilon there, such as "the default of Keras and TensorFlow"; "" where nobody is known to."""
    return _WHOSE.get((value, side), "")
