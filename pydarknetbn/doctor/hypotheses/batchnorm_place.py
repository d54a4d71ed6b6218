"""A batch normalization that is missing, done twice, fed with something else, or with a bias beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place, Trial
from .batchnorm_pass import arrays_of, normal

__all__ = ["bias_kept", "forgotten", "twice", "wrong_input"]

_INSERT: Mapping[str, str] = MappingProxyType(
    {
        "torch": "Conv2d(bias=False), then BatchNorm2d, then the activation",
        "keras": "Conv2D(use_bias=False), then BatchNormalization, then the activation",
        "onnx": "BatchNormalization between Conv and the activation",
        "": "normalize between the sums and the activation",
    }
)
_ONCE: Mapping[str, str] = MappingProxyType(
    {
        "torch": "one BatchNorm2d, or nn.Identity() where it is folded into the convolution",
        "onnx": "one BatchNormalization, or none where it is folded into the convolution",
        "": "normalize once, or not at all where the batchnorm is folded into the convolution",
    }
)
_BEHIND: Mapping[str, str] = MappingProxyType(
    {
        "torch": "x = self.bn(self.conv(x))",
        "keras": "x = bn(conv(x))",
        "onnx": "the output of Conv as the input X of BatchNormalization",
        "": "normalize the sums of the convolution, not its input",
    }
)
_NO_BIAS: Mapping[str, str] = MappingProxyType(
    {
        "torch": "Conv2d(bias=False): the file's biases are BatchNorm2d.bias alone",
        "keras": "Conv2D(use_bias=False): the file's biases are beta alone",
        "onnx": "Conv without the input B: the file's biases are B of BatchNormalization alone",
        "": "add the biases once, in the batchnorm",
    }
)


def forgotten(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """None, with or without the biases."""

    def nothing(place: Place) -> Array:
        return place.inputs[0]

    def biases_alone(place: Place) -> Array:
        return np.asarray(place.inputs[0] + arrays_of(place.layer).biases[:, None, None])

    words = "there is no batchnorm, Darknet normalizes here"
    yield Hypothesis("batchnorm.forgotten", words, {"batchnorm": nothing}, _INSERT)
    words = "there is no batchnorm, its biases alone are added, Darknet normalizes here"
    yield Hypothesis("batchnorm.forgotten", words, {"batchnorm": biases_alone}, _INSERT)


def twice(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """On its own output."""

    def run(place: Place) -> Array:
        arrays = arrays_of(place.layer)
        return normal(place, normal(place, place.inputs[0], arrays), arrays)

    words = "batchnorm is applied twice, as behind a convolution that it is folded into, Darknet applies it once"
    yield Hypothesis("batchnorm.twice", words, {"batchnorm": run}, _ONCE)


def wrong_input(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The convolution's input instead of its output, where it has the same shape."""

    def run(place: Place) -> Array | None:
        sums = place.runner.steps[place.step.inputs[0]] if place.step.inputs[0] >= 0 else None
        if sums is None or sums.layer != place.step.layer:
            return None
        before = place.values.get(sums.inputs[0])
        fits = before is not None and before.shape == place.inputs[0].shape
        return normal(place, before, arrays_of(place.layer)) if before is not None and fits else None

    words = "batchnorm normalizes the convolution's input, Darknet its output"
    yield Hypothesis("batchnorm.wrong_input", words, {"batchnorm": run}, _BEHIND)


def bias_kept(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The biases a second time, in the convolution or behind the batchnorm."""

    def before(place: Place) -> Array:
        arrays = arrays_of(place.layer)
        return normal(place, np.asarray(place.inputs[0] + arrays.biases[:, None, None]), arrays)

    def after(place: Place) -> Array:
        arrays = arrays_of(place.layer)
        return np.asarray(normal(place, place.inputs[0], arrays) + arrays.biases[:, None, None])

    for where, run in (("before", before), ("after", after)):
        words = f"the biases are added a second time, {where} the batchnorm, Darknet adds them in it alone"
        yield Hypothesis("batchnorm.bias_kept", words, {"batchnorm": run}, _NO_BIAS, {"where": where})
