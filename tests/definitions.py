"""What each layer computes, in float64 on a tape: the forward alone, whose derivative follows. Batchnorm takes its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle import Doubles
from pydarknetbn.dialect import BatchNormRule, Host, Profile
from tape import Value, bent, curve, einsum, exp, power, take, total

Arrays = Mapping[str, Value]


@dataclass(frozen=True)
class Section:
    """One layer of a case: its options, its parameters, and every output before it, beginning with the network's input."""

    type: str
    options: Mapping[str, str]
    arrays: Arrays
    outputs: list[Value]
    profile: Profile

    def number(self, name: str, default: int = 0) -> int:
        return int(self.options.get(name, default))

    def real(self, name: str, default: float) -> float:
        return float(self.options.get(name, default))

    @property
    def input(self) -> Value:
        return self.outputs[-1]

    def sources(self, name: str) -> list[Value]:
        """Outputs of the layers that an option names."""
        numbers = [int(number) for number in self.options[name].split(",")]
        return [self.outputs[number if number < 0 else number + 1] for number in numbers]

    def inside(self, name: str) -> Section:
        """An inner layer, by its name in front of the parameters."""
        own = {key.removeprefix(name + "."): array for key, array in self.arrays.items() if key.startswith(name + ".")}
        return Section(self.type, self.options, own, self.outputs, self.profile)


# --- activations ----------------------------------------------------------------------------------------------------------------


def _logistic(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def _mish_slope(x: Doubles) -> Doubles:
    bend = np.tanh(np.log1p(np.exp(x)))
    return bend + x * (1 - bend**2) * _logistic(x)


def _gelu_inner(x: Doubles) -> tuple[Doubles, Doubles]:
    return 0.797885 * x + 0.035677 * x**3, 0.797885 + 3 * 0.035677 * x**2


def _stairs(x: Doubles) -> Doubles:
    whole = np.floor(x)
    return np.where(whole % 2 == 0, np.floor(x / 2), x - whole + np.floor(x / 2))


_LEAK, _ALPHA, _LAMBDA = 0.1, 1.6732, 1.0507
CURVES: dict[str, tuple[Callable[[Doubles], Doubles], Callable[[Doubles], Doubles], tuple[float, ...]]] = {
    # its name: value, slope, where that jumps
    "linear": (lambda x: x, np.ones_like, ()),
    "leaky": (lambda x: np.where(x > 0, x, _LEAK * x), lambda x: np.where(x > 0, 1, _LEAK), (0,)),
    "relu": (lambda x: x * (x > 0), lambda x: 1.0 * (x > 0), (0,)),
    "relu6": (lambda x: np.clip(x, 0, 6), lambda x: 1.0 * ((x > 0) & (x < 6)), (0, 6)),
    "logistic": (_logistic, lambda x: _logistic(x) * _logistic(-x), ()),
    "loggy": (lambda x: 2 * _logistic(x) - 1, lambda x: 2 * _logistic(x) * _logistic(-x), ()),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2, ()),
    "elu": (lambda x: np.where(x >= 0, x, np.expm1(x)), lambda x: np.where(x >= 0, 1, np.exp(x)), (0,)),
    "selu": (
        lambda x: _LAMBDA * np.where(x >= 0, x, _ALPHA * np.expm1(x)),
        lambda x: _LAMBDA * np.where(x >= 0, 1, _ALPHA * np.exp(x)),
        (0,),
    ),
    "relie": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1, 0.01), (0,)),
    "ramp": (lambda x: x * (x > 0) + 0.1 * x, lambda x: (x > 0) + 0.1, (0,)),
    "plse": (
        lambda x: np.where(x < -4, 0.01 * (x + 4), np.where(x > 4, 0.01 * (x - 4) + 1, 0.125 * x + 0.5)),
        lambda x: np.where(np.abs(x) > 4, 0.01, 0.125),
        (-4, 4),
    ),
    "lhtan": (
        lambda x: np.where(x < 0, 0.001 * x, np.where(x > 1, 0.001 * (x - 1) + 1, x)),
        lambda x: np.where((x > 0) & (x < 1), 1, 0.001),
        (0, 1),
    ),
    "hardtan": (lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) < 1), (-1, 1)),
    "stair": (_stairs, lambda x: np.floor(x) % 2, tuple(range(-9, 10))),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), _mish_slope, ()),
    "swish": (lambda x: x * _logistic(x), lambda x: _logistic(x) * (1 + x * _logistic(-x)), ()),
    "hard_mish": (
        lambda x: np.where(x > 0, x, np.where(x > -2, x * x / 2 + x, 0)),
        lambda x: np.where(x > 0, 1, np.where(x > -2, x + 1, 0)),
        (-2, 0),
    ),
    "gelu": (
        lambda x: 0.5 * x * (1 + np.tanh(_gelu_inner(x)[0])),
        lambda x: 0.5 * (1 + np.tanh(_gelu_inner(x)[0])) + 0.5 * x * _gelu_inner(x)[1] / np.cosh(_gelu_inner(x)[0]) ** 2,
        (),
    ),
}
CURVES["revleaky"] = CURVES["leaky"]
_START = 0.0001  # of the sums over channels


def shares(x: Value, name: str) -> Value:
    """Over the channels of each pixel of (batch, c, h, w)."""
    if name == "normalize_channels":
        positive = bent(x, np.abs(x.value).min()) * (x.value > 0)
        return positive / (total(positive, 1) + _START)
    if name == "normalize_channels_softmax":
        return exp(x) / (total(exp(x), 1) + _START)
    winners = x.value.argmax(1, keepdims=True)
    largest = total(bent(x, lead(x.value, 1)) * (np.arange(x.shape[1]).reshape(1, -1, 1, 1) == winners), 1)
    powers = exp(x - largest)
    return powers / (total(powers, 1) + _START)


def lead(x: Doubles, axis: int) -> float:
    """By how much the largest along an axis is larger than the next, at least."""
    ordered = np.sort(x, axis)
    return float((ordered.take(-1, axis) - ordered.take(-2, axis)).min()) if x.shape[axis] > 1 else np.inf


def activated(x: Value, name: str) -> Value:
    if name.startswith("normalize_channels"):
        return shares(x, name)
    value, slope, bends = CURVES[name]
    margin = min((float(np.abs(x.value - bend).min()) for bend in bends), default=np.inf)
    return curve(x, value(x.value), slope(x.value), margin)


# --- batchnorm, products --------------------------------------------------------------------------------------------------------


def normalized(x: Value, rule: BatchNormRule, arrays: Arrays) -> Value:
    """(batch, c, h, w) with the statistics of the batch, scaled and shifted."""
    n = x.value.size // x.shape[1]
    centred = x - total(x, 0, 2, 3) * (1 / n)
    variance = total(centred * centred, 0, 2, 3) * (1 / {"n": n, "n-1": n - 1}[rule.normalize_variance])
    epsilon = rule.forward
    value = float(np.float32(epsilon.value)) if epsilon.literal == "float" else epsilon.value
    root = power(variance + value, 0.5) if epsilon.side == "inside" else power(variance, 0.5) + value
    return centred / root * arrays["scales"].reshape(1, -1, 1, 1) + arrays["biases"].reshape(1, -1, 1, 1)


def finished(x: Value, s: Section, host: Host, activation: str) -> Value:
    """Batchnorm or biases, activation."""
    shifted = normalized(x, s.profile.rule(host), s.arrays) if "scales" in s.arrays else biased(x, s.arrays["biases"])
    return activated(shifted, activation)


def biased(x: Value, biases: Value) -> Value:
    return x + biases.reshape(1, -1, 1, 1)


def places(c: int, h: int, w: int, *, size: int, step: tuple[int, int], pad: int, dilation: int = 1) -> NDArray[np.intp]:
    """(c * size * size, out_h, out_w): where in the image each kernel element lies at each output pixel; -1 in the padding."""
    out_h, out_w = ((side + 2 * pad - dilation * (size - 1) - 1) // by + 1 for side, by in zip((h, w), step, strict=True))
    k, dy, dx, row, column = np.ogrid[:c, :size, :size, :out_h, :out_w]
    y, x = row * step[0] + dy * dilation - pad, column * step[1] + dx * dilation - pad
    inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
    return np.where(inside, (k * h + y) * w + x, -1).reshape(c * size * size, out_h, out_w)


def convolved(x: Value, weights: Value, s: Section) -> Value:
    batch, c, h, w = x.shape
    size, groups, stride = weights.shape[2], s.number("groups", 1), s.number("stride", 1)
    step = s.number("stride_y", stride), s.number("stride_x", stride)
    pad = size // 2 if s.number("pad") else s.number("padding")
    at = places(c, h, w, size=size, step=step, pad=pad * s.number("dilation", 1), dilation=s.number("dilation", 1))
    if size == 1 and step[1] == 1 and not pad:  # the image is read as the matrix, pixel after pixel of each group
        first = np.arange(c) // (c // groups) * (c // groups) * h * w + np.arange(c) % (c // groups) * at[0].size
        at = first.reshape(c, 1, 1) + np.arange(at[0].size).reshape(at[0].shape)
    columns = take(x.reshape(batch, -1), at).reshape(batch, groups, -1, at[0].size)
    out = einsum("bgkp,gfk->bgfp", columns, weights.reshape(groups, weights.shape[0] // groups, -1))
    return out.reshape(batch, weights.shape[0], *at.shape[1:])


def multiplied(x: Value, weights: Value) -> Value:
    out = einsum("bi,oi->bo", x.reshape(x.shape[0], -1), weights)
    return out.reshape(*out.shape, 1, 1)


# --- layers ---------------------------------------------------------------------------------------------------------------------


def convolutional(s: Section) -> Value:
    if not s.number("antialiasing"):
        return finished(convolved(s.input, s.arrays["weights"], s), s, "convolutional", s.options["activation"])
    at_once = Section(s.type, {**s.options, "stride": "1"}, s.arrays, s.outputs, s.profile)
    sharp = finished(convolved(s.input, s.arrays["weights"], at_once), s, "convolutional", s.options["activation"])
    return blurred(sharp, s)


def blurred(x: Value, s: Section) -> Value:
    """Each channel under a fixed kernel, with the layer's stride."""
    batch, c, h, w = x.shape
    small = s.number("antialiasing") == 2
    kernel = np.full((2, 2), 1 / 4) if small else np.outer([1, 2, 1], [1, 2, 1]) / 16
    stride = s.number("stride", 1)
    step = s.number("stride_y", stride), s.number("stride_x", stride)
    at = places(c, h, w, size=len(kernel), step=step, pad=0 if small else 1)
    columns = take(x.reshape(batch, -1), at).reshape(batch, c, kernel.size, -1)
    return einsum("bckp,k->bcp", columns, Value(kernel.ravel())).reshape(batch, c, *at.shape[1:])


def connected(s: Section) -> Value:
    return finished(multiplied(s.input, s.arrays["weights"]), s, "connected", s.options["activation"])


def batchnorm(s: Section) -> Value:
    return normalized(s.input, s.profile.rule("batchnorm"), s.arrays)


def activation(s: Section) -> Value:
    return activated(s.input, s.options["activation"])


PRODUCTS: dict[str, Callable[[Section], Value]] = {
    "activation": activation,
    "batchnorm": batchnorm,
    "connected": connected,
    "convolutional": convolutional,
}
