"""Darknet's activations on tensors: one small function each, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.nn import functional

__all__ = ["ACTIVATIONS", "SHARE_OFFSET"]

SHARE_OFFSET = 1 / 10_000
"""What the forks add to a sum before they divide by it."""

Activation = Callable[[Any], Any]


def _mish(x: Any) -> Any:
    return x * torch.tanh(functional.softplus(x, threshold=20))


def _hard_mish(x: Any) -> Any:
    return torch.where(x > 0, x, torch.where(x > -2, x * x / 2 + x, torch.zeros_like(x)))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(0.797885 * x + 0.035677 * x**3))


def _plse(x: Any) -> Any:
    within = x.clamp(-4, 4)
    return 0.125 * within + 0.5 + 0.01 * (x - within)


def _lhtan(x: Any) -> Any:
    within = x.clamp(0, 1)
    return within + 0.001 * (x - within)


def _stair(x: Any) -> Any:
    whole, half = torch.floor(x), torch.floor(x / 2)
    return half + (whole - 2 * half) * (x - whole)


def _share(x: Any) -> Any:
    return x / (x.sum(1, keepdim=True) + SHARE_OFFSET)


def _share_exponentials_maxval(x: Any) -> Any:
    return _share(torch.exp(x - x.amax(1, keepdim=True)))


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "linear": lambda x: x,
        "leaky": lambda x: functional.leaky_relu(x, 0.1),
        "revleaky": lambda x: functional.leaky_relu(x, 0.1),
        "relu": torch.relu,
        "relu6": lambda x: x.clamp(0, 6),
        "logistic": torch.sigmoid,
        "tanh": torch.tanh,
        "elu": functional.elu,
        "selu": lambda x: 1.0507 * functional.elu(x, 1.6732),
        "mish": _mish,
        "swish": lambda x: x * torch.sigmoid(x),
        "hard mish": _hard_mish,
        "gelu": _gelu,
        "loggy": lambda x: 2 * torch.sigmoid(x) - 1,
        "relie": lambda x: functional.leaky_relu(x, 0.01),
        "ramp": lambda x: torch.relu(x) + 0.1 * x,
        "plse": _plse,
        "lhtan": _lhtan,
        "stair": _stair,
        "hardtan": lambda x: x.clamp(-1, 1),
        "normalize channels": lambda x: _share(torch.relu(x)),
        "normalize channels softmax": lambda x: _share(torch.exp(x)),
        "normalize channels softmax maxval": _share_exponentials_maxval,
    }
)
"""By the name of the core's constant."""
