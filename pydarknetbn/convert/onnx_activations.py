"""Activations as ONNX nodes: one small function each, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .. import _native
from .onnx_graph import Graph, Value

__all__ = ["SHARE_OFFSET", "activate"]

SHARE_OFFSET = 1 / 10_000
"""What the forks add to a sum before they divide by it."""

Activation = Callable[[Graph, Value], Value]


def activate(g: Graph, x: Value, number: int) -> Value:
    """The activation of that number in the core."""
    name = {value: name for name, value in _native.choices("activation").items()}[number]
    return ACTIVATIONS[name](g, x)


def _node(kind: str, **attributes: float) -> Activation:
    return lambda g, x: g.same(kind, x, **attributes)


def _affine(g: Graph, x: Value, factor: float, summand: float = 0) -> Value:
    scaled = g.same("Mul", x, g.scalar(factor))
    return g.same("Add", scaled, g.scalar(summand)) if summand else scaled


def _clip(g: Graph, x: Value, low: float, high: float) -> Value:
    return g.same("Clip", x, g.scalar(low), g.scalar(high))


def _mish(g: Graph, x: Value) -> Value:
    return g.same("Mul", x, g.same("Tanh", g.same("Softplus", x)))


def _swish(g: Graph, x: Value) -> Value:
    return g.same("Mul", x, g.same("Sigmoid", x))


def _hard_mish(g: Graph, x: Value) -> Value:
    """Over 0 it is x, from -2 on x*x/2 + x: both are x/2 * (x + 2, from 0 to 2)."""
    return g.same("Mul", _affine(g, x, 0.5), _clip(g, g.same("Add", x, g.scalar(2)), 0, 2))


def _gelu(g: Graph, x: Value) -> Value:
    cube = g.same("Mul", x, g.same("Mul", x, x))
    inner = g.same("Add", _affine(g, x, 0.797885), _affine(g, cube, 0.035677))
    return g.same("Mul", _affine(g, x, 0.5), g.same("Add", g.same("Tanh", inner), g.scalar(1)))


def _loggy(g: Graph, x: Value) -> Value:
    return _affine(g, g.same("Sigmoid", x), 2, -1)


def _ramp(g: Graph, x: Value) -> Value:
    return g.same("Add", g.same("Relu", x), _affine(g, x, 0.1))


def _bent(g: Graph, x: Value, low: float, high: float, slope: float) -> tuple[Value, Value]:
    """What of x is within the limits, and slope times what is beyond them."""
    within = _clip(g, x, low, high)
    return within, _affine(g, g.same("Sub", x, within), slope)


def _plse(g: Graph, x: Value) -> Value:
    within, beyond = _bent(g, x, -4, 4, 0.01)
    return g.same("Add", _affine(g, within, 0.125, 0.5), beyond)


def _lhtan(g: Graph, x: Value) -> Value:
    return g.same("Add", *_bent(g, x, 0, 1, 0.001))


def _hardtan(g: Graph, x: Value) -> Value:
    return _clip(g, x, -1, 1)


def _stair(g: Graph, x: Value) -> Value:
    """Half the floor, rounded down, and within every second step the way to the next."""
    whole, half = g.same("Floor", x), g.same("Floor", _affine(g, x, 0.5))
    odd = g.same("Sub", whole, _affine(g, half, 2))
    return g.same("Add", half, g.same("Mul", odd, g.same("Sub", x, whole)))


def _relu6(g: Graph, x: Value) -> Value:
    return _clip(g, x, 0, 6)


def _pixel_shape(x: Value) -> tuple[int | str, ...]:
    return (x.shape[0], 1, *x.shape[2:])


def _share(g: Graph, x: Value) -> Value:
    """The share of each channel in the sum of its pixel."""
    total = g.op("ReduceSum", x, g.integers(1), shape=_pixel_shape(x), keepdims=1)
    return g.same("Div", x, g.same("Add", total, g.scalar(SHARE_OFFSET)))


def _share_positive(g: Graph, x: Value) -> Value:
    return _share(g, g.same("Relu", x))


def _share_exponentials(g: Graph, x: Value) -> Value:
    return _share(g, g.same("Exp", x))


def _share_exponentials_maxval(g: Graph, x: Value) -> Value:
    largest = g.op("ReduceMax", x, shape=_pixel_shape(x), axes=[1], keepdims=1)
    return _share_exponentials(g, g.same("Sub", x, largest))


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "linear": lambda _, x: x,
        "leaky": _node("LeakyRelu", alpha=0.1),
        "revleaky": _node("LeakyRelu", alpha=0.1),
        "relu": _node("Relu"),
        "relu6": _relu6,
        "logistic": _node("Sigmoid"),
        "tanh": _node("Tanh"),
        "elu": _node("Elu", alpha=1.0),
        "selu": _node("Selu", alpha=1.6732, gamma=1.0507),
        "mish": _mish,
        "swish": _swish,
        "hard mish": _hard_mish,
        "gelu": _gelu,
        "loggy": _loggy,
        "relie": _node("LeakyRelu", alpha=0.01),
        "ramp": _ramp,
        "plse": _plse,
        "lhtan": _lhtan,
        "stair": _stair,
        "hardtan": _hardtan,
        "normalize channels": _share_positive,
        "normalize channels softmax": _share_exponentials,
        "normalize channels softmax maxval": _share_exponentials_maxval,
    }
)
