"""Arrays of a batch normalization that are missing, exchanged, or read from another place of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from types import MappingProxyType

import numpy as np

from ..situation import Hypothesis, Place, Trial
from .batchnorm_pass import FILE_ORDER, Arrays, with_arrays

__all__ = ["missing", "permuted"]

_SCALES: Mapping[str, str] = MappingProxyType(
    {
        "torch": "BatchNorm2d(affine=True) with weight = scales",
        "keras": "BatchNormalization(scale=True) with gamma = scales",
        "onnx": "scales as the input scale of BatchNormalization",
        "": "load scales and multiply with them",
    }
)
_BIASES: Mapping[str, str] = MappingProxyType(
    {
        "torch": "BatchNorm2d(affine=True) with bias = biases",
        "keras": "BatchNormalization(center=True) with beta = biases",
        "onnx": "biases as the input B of BatchNormalization",
        "": "load biases and add them",
    }
)
_ORDER: Mapping[str, str] = MappingProxyType(
    {
        "torch": "read bias, weight, running_mean, running_var in this order of the file",
        "keras": "read beta, gamma, mean, variance in this order; layer.set_weights takes [gamma, beta, mean, variance]",
        "onnx": "the file has biases, scales, mean, variance; BatchNormalization takes scale, B, input_mean, input_var",
        "": "read biases, scales, rolling_mean, rolling_variance in this order of the file",
    }
)


def missing(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Scales of 1, biases of 0, or both."""

    def no_scales(a: Arrays) -> Arrays:
        return replace(a, scales=np.ones_like(a.scales))

    def no_biases(a: Arrays) -> Arrays:
        return replace(a, biases=np.zeros_like(a.biases))

    def neither(a: Arrays) -> Arrays:
        return no_biases(no_scales(a))

    both = {name: f"{_SCALES[name]}; {_BIASES[name]}" for name in _SCALES}
    for kind, words, change, fix in (
        ("scales_missing", "batchnorm has no scales, Darknet multiplies with the file's", no_scales, _SCALES),
        ("biases_missing", "batchnorm has no biases, Darknet adds the file's", no_biases, _BIASES),
        ("scales_missing", "batchnorm has neither scales nor biases, Darknet has the file's", neither, both),
    ):
        yield Hypothesis(f"batchnorm.{kind}", words, {"batchnorm": with_arrays(change)}, fix)


def permuted(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Every other order of the arrays that the file has for the layer."""
    stored = tuple(name for name in FILE_ORDER if name in place.layer.shapes)
    for order in permutations(stored):
        if order == stored:
            continue
        taken = dict(zip(stored, order, strict=True))

        def change(a: Arrays, taken: Mapping[str, str] = taken) -> Arrays:
            return replace(a, **{name: getattr(a, other) for name, other in taken.items()})

        wrong = [f"{other} as {name}" for name, other in taken.items() if other != name]
        words = f"batchnorm takes the file's {', '.join(wrong[:-1])} and {wrong[-1]}"
        values = {"order": " ".join(order)}
        yield Hypothesis("batchnorm.permuted", words, {"batchnorm": with_arrays(change)}, _ORDER, values)
