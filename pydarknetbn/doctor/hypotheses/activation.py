"""What ports do otherwise in an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ...dialect import ACTIVATIONS
from ..arithmetic import activate
from ..situation import Hypothesis, Place, Trial, fit
from ..steps import activation_name

__all__ = ["activation"]

Doubles = npt.NDArray[np.float64]
_SLOPES = (0.0, 0.01, 0.05, 0.1, 0.125, 0.2, 0.25, 0.3, 0.5, 1.0)
_SNAP = 2e-3  # a fitted slope that near to one of those is meant to be it
_NOT_ALONE = "normalize_channels"  # those look at other channels
_TORCH = {
    "leaky": "LeakyReLU(0.1)", "relu": "ReLU()", "linear": "Identity()", "mish": "Mish()", "swish": "SiLU()",
    "logistic": "Sigmoid()", "tanh": "Tanh()", "elu": "ELU()", "selu": "SELU()", "relu6": "ReLU6()", "gelu": "GELU('tanh')",
    "hard_mish": "x * clamp(x + 2, 0, 2) / 2",
}  # fmt: skip
_KERAS = {
    "leaky": "LeakyReLU(negative_slope=0.1)", "relu": "ReLU()", "linear": "no activation", "mish": "activations.mish",
    "swish": "activations.silu", "logistic": "activations.sigmoid", "tanh": "activations.tanh",
}  # fmt: skip
_ONNX = {
    "leaky": "LeakyRelu(alpha=0.1)", "relu": "Relu", "linear": "no node", "mish": "x * Tanh(Softplus(x))",
    "swish": "x * Sigmoid(x)", "logistic": "Sigmoid", "tanh": "Tanh",
}  # fmt: skip


def activation(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Of the step that applies a layer's activation, or of an [activation] layer."""
    own = activation_name(place.layer)
    kind = "shortcut.activation" if place.layer.type == "shortcut" else "activation.kind"
    fix = {"torch": _TORCH.get(own, own), "keras": _KERAS.get(own, own), "onnx": _ONNX.get(own, own), "": f"activation {own}"}
    if own == "mish":
        yield from _mish_variants(fix)
    if "rolling_mean" in place.layer.shapes:
        yield _normalized_again()
    if own in ("leaky", "relu"):
        yield from _slopes(own, fix, trial)
    for name in sorted(ACTIVATIONS - {own}, key=lambda name: (name not in _TORCH, name)):
        if not name.startswith(_NOT_ALONE):
            yield _other(kind, own, name, fix)
    yield _twice(own, fix)
    for words, function in _FUNCTIONS.items():
        yield _hypothesis("activation.kind", f"the activation is {words}; Darknet's is {own}", fix, _of(function), activation=words)


def _hypothesis(
    kind: str, words: str, fix: Mapping[str, str], run: Callable[[Place], Array | None], **values: float | str
) -> Hypothesis:
    return Hypothesis(kind, words, {"activation": run}, fix, values)


def _other(kind: str, own: str, name: str, fix: Mapping[str, str]) -> Hypothesis:
    def run(place: Place) -> Array:
        if name == "linear":
            return place.inputs[0]
        return activate(place.inputs[0], name, place.runner.profile.layers.arithmetic)

    words = (
        f"the activation is missing; Darknet's is {own}" if name == "linear" else f"the activation is {name}; Darknet's is {own}"
    )
    return _hypothesis(kind, words, fix, run, activation=name)


def _twice(own: str, fix: Mapping[str, str]) -> Hypothesis:
    def run(place: Place) -> Array:
        once = place.right
        return activate(once, activation_name(place.layer), place.runner.profile.layers.arithmetic)

    return _hypothesis(
        "activation.kind", f"the activation {own} is applied twice; Darknet applies it once", fix, run, activation="twice"
    )


def _normalized_again() -> Hypothesis:
    """A batchnorm that is both folded into the convolution and kept behind it."""

    def run(place: Place) -> Array:
        number = place.step.inputs[0]
        batchnorm = place.runner.steps[number]
        return place.runner.run(place.step, [place.runner.run(batchnorm, place.inputs)])

    words = "the batchnorm is applied twice, as where it is folded into the convolution and kept as well; Darknet applies it once"
    fix = {"": "leave out the batchnorm behind a convolution that it is folded into"}
    return Hypothesis("batchnorm.twice", words, {"activation": run}, fix)


def _slopes(own: str, fix: Mapping[str, str], trial: Trial) -> Iterator[Hypothesis]:
    right = 0.1 if own == "leaky" else 0.0

    def make(slope: float) -> Hypothesis:
        def run(place: Place) -> Array:
            x = place.inputs[0]
            return np.where(x > 0, x, np.float32(slope) * x)

        words = f"the slope for negative values is {slope:g}; Darknet's {own} has {right:g}"
        kind = "activation.slope" if slope else "activation.kind"
        return Hypothesis(kind, words, {"activation": run}, fix, {"slope": slope}, 0 if slope in _SLOPES else 1)

    for slope in _SLOPES:
        if slope not in (right, 0.0, 1.0):
            yield make(slope)
    found = fit(make, trial, sorted({-1.0, *_SLOPES, 2.0}))
    slope = float(found.values["slope"])
    if all(abs(slope - known) > _SNAP for known in _SLOPES):
        yield found


# --- functions that Darknet has none of -----------------------------------------------------------------------------------------


def _of(function: Callable[[Doubles], Doubles]) -> Callable[[Place], Array]:
    def run(place: Place) -> Array:
        with np.errstate(all="ignore"):
            return function(place.inputs[0].astype(np.float64)).astype(np.float32)

    return run


def _sigmoid(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def _hard_sigmoid(x: Doubles) -> Doubles:
    return np.asarray(np.clip(x / 6 + 0.5, 0, 1))


def _softplus(x: Doubles) -> Doubles:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


_FUNCTIONS: Mapping[str, Callable[[Doubles], Doubles]] = MappingProxyType(
    {
        "hard swish": lambda x: x * _hard_sigmoid(x),
        "hard sigmoid": _hard_sigmoid,
        "softplus": _softplus,
        "softsign": lambda x: x / (1 + np.abs(x)),
        "quick gelu": lambda x: x * _sigmoid(1.702 * x),
    }
)

_MISHES: Mapping[str, Callable[[Doubles], Doubles]] = MappingProxyType(
    {
        "x * tanh(exp(x))": lambda x: x * np.tanh(np.exp(x)),
        "x * sigmoid(softplus(x))": lambda x: x * _sigmoid(_softplus(x)),
        "tanh(softplus(x))": lambda x: np.tanh(_softplus(x)),
        "x * softplus(tanh(x))": lambda x: x * _softplus(np.tanh(x)),
        "x * tanh(log(1 + exp(x))) with base 2": lambda x: x * np.tanh(np.log2(1 + np.exp(np.minimum(x, 500)))),
        "x * softplus(x)": lambda x: x * _softplus(x),
        "x * tanh(softplus(2x) / 2)": lambda x: x * np.tanh(_softplus(2 * x) / 2),
        "mish with softplus cut at 1": lambda x: x * np.tanh(np.where(x > 1, x, _softplus(x))),
        "mish with x * x instead of exp(x)": lambda x: x * np.tanh(np.log1p(x * x)),
    }
)


def _mish_variants(fix: Mapping[str, str]) -> Iterator[Hypothesis]:
    for words, function in _MISHES.items():
        told = f"mish is computed as {words}; Darknet's is x * tanh(log(1 + exp(x)))"
        yield _hypothesis("activation.mish", told, fix, _of(function), variant=words)

    def hard(place: Place) -> Array:
        return activate(place.inputs[0], "hard_mish", place.runner.profile.layers.arithmetic)

    told = "mish is computed as hard_mish; Darknet's is x * tanh(log(1 + exp(x)))"
    yield _hypothesis("activation.mish", told, fix, hard, variant="hard_mish")
