"""One module for each layer; parameters bear Darknet's names, and no fork's numbers stand here but those of its rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..layers import Layer
from .torch_activations import ACTIVATIONS, SHARE_OFFSET
from .torch_facts import Facts
from .torch_moves import MOVES, blurred

__all__ = ["FUNCTIONS", "DarknetLayer"]

Tensor = Any
_STATISTICS = ("rolling_mean", "rolling_variance")


class DarknetLayer(nn.Module):  # type: ignore[misc]
    """A layer of a network.

    Args:
        layer: whose parameters it copies.
        facts: what it computes.
        lender: the layer whose parameters it shares; None: it has its own.
    """

    def __init__(self, layer: Layer, facts: Facts | None, lender: DarknetLayer | None = None) -> None:
        super().__init__()
        self.kind, self.facts = layer.type, facts
        self._lender = () if lender is None else (lender,)  # in a tuple, so that its parameters are not counted twice
        for name, array in layer.params.items() if lender is None else ():
            values = torch.from_numpy(np.array(array))
            if name in _STATISTICS:
                self.register_buffer(name, values)
            else:
                self.register_parameter(name, nn.Parameter(values))
        if facts and facts.blur:
            self.register_buffer("blur", torch.from_numpy(facts.blur[0]), persistent=False)
        if layer.type in ("reorg", "reorg3d") and facts and not facts.flatten and not layer.flat:
            self.register_buffer("index", torch.from_numpy(facts.reorg_index()), persistent=False)

    def parameter(self, name: str) -> Tensor:
        """An array by Darknet's name, its own or the lender's; the biases of a batchnorm without any are None."""
        return getattr(self._lender[0] if self._lender else self, name, None)

    def forward(self, x: Tensor, others: list[Tensor]) -> Tensor:
        """The layer's output, (batch, c, h, w), of the layer before and of those that from= and layers= name."""
        return FUNCTIONS[self.kind](self, x, others)


def _host(module: DarknetLayer, sums: Tensor) -> Tensor:
    """What comes after the sums of a layer: its batchnorm or its biases, and the activation."""
    facts = module.facts
    assert facts is not None
    if facts.has_batchnorm:
        return ACTIVATIONS[facts.activation](batchnorm(module, sums, []))
    return ACTIVATIONS[facts.activation](sums + module.parameter("biases").view(1, -1, 1, 1))


def batchnorm(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    """Of the rolling arrays; in training of the batch, whose statistics the rolling arrays then take up."""
    assert module.facts is not None
    rule = module.facts.rule
    mean, variance = module.parameter("rolling_mean"), module.parameter("rolling_variance")
    if module.training:
        kept = (mean, variance)
        mean = x.mean((0, 2, 3))
        squares = (x - mean.view(1, -1, 1, 1)).square().sum((0, 2, 3))
        n = x.numel() // x.shape[1]
        with torch.no_grad():
            new = (mean, squares / (n - 1 if rule.keep_variance == "n-1" else n))
            for rolling, value in zip(kept, new, strict=True):
                rolling.mul_(rule.rolling_keep).add_(value, alpha=rule.rolling_add)
        variance = squares / (n - 1 if rule.normalize_variance == "n-1" else n)
    epsilon = rule.forward
    root = torch.sqrt(variance + epsilon.value) if epsilon.side == "inside" else torch.sqrt(variance) + epsilon.value
    columns = (array.view(1, -1, 1, 1) for array in (mean, root, module.parameter("scales")))
    mean, root, scales = columns
    normal = (x - mean) / root * scales
    biases = module.parameter("biases")
    return normal if biases is None else normal + biases.view(1, -1, 1, 1)


# --- weights --------------------------------------------------------------------------------------------------------------------


def _convolutional(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    strides, pad = (facts.stride_y, facts.stride_x), int(facts.pad * facts.dilation)
    if facts.direct:  # each group's first values in the order of memory, as an image of the output's size
        h, w = facts.sharp[1:]
        first = x.reshape(len(x), facts.groups, -1)[:, :, : facts.c // facts.groups * h * w]
        x, strides, pad = first.reshape(len(x), facts.c, h, w), (1, 1), 0
    weights = module.parameter("weights")
    sums = functional.conv2d(x, weights, stride=strides, padding=pad, dilation=facts.dilation, groups=facts.groups)
    return blurred(module, _host(module, sums))


def _connected(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    sums = functional.linear(x.reshape(len(x), -1), module.parameter("weights"))
    return _host(module, sums.view(len(x), -1, 1, 1))


def _deconvolutional(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    sums = functional.conv_transpose2d(x, module.parameter("weights"), stride=facts.stride_x, padding=facts.pad)
    return _host(module, sums)


def _local(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    need = [(out - 1) * facts.stride_x + facts.size - facts.pad for out in (facts.out_w, facts.out_h)]
    x = functional.pad(x, (facts.pad, need[0] - facts.w, facts.pad, need[1] - facts.h))
    columns = functional.unfold(x, facts.size, stride=facts.stride_x)  # (batch, c * size * size, pixels)
    weights = module.parameter("weights").reshape(columns.shape[2], facts.n, -1)
    sums = torch.einsum("pfk,bkp->bfp", weights, columns).reshape(len(x), facts.n, facts.out_h, facts.out_w)
    return ACTIVATIONS[facts.activation](sums + module.parameter("biases").view(1, facts.n, facts.out_h, facts.out_w))


def _implicit(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    return module.parameter("weights").view(1, facts.out_c, facts.out_h, facts.out_w).expand(len(x), -1, -1, -1)


# --- sums and products ----------------------------------------------------------------------------------------------------------


def _shortcut(module: DarknetLayer, x: Tensor, others: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    if facts.linear_sum:
        total = x + others[0].reshape(-1)[: x.numel()].view(x.shape)
    elif facts.nweights or len(others) > 1:
        total = _weighted_sum(module, x, others)
    else:
        total = _resized_sum(facts, x, others[0])
    return ACTIVATIONS[facts.activation](total)


def _weighted_sum(module: DarknetLayer, x: Tensor, others: list[Tensor]) -> Tensor:
    facts = module.facts
    assert facts is not None
    factors: list[Any] = [1.0] * (len(others) + 1)
    if facts.nweights:
        weights = module.parameter("weights").view(len(others) + 1, -1)
        if facts.normalization != "none":
            weights = torch.relu(weights) if facts.normalization == "relu" else torch.exp(weights - weights.amax(0))
            weights = weights / (weights.sum(0) + SHARE_OFFSET)
        factors = [row.view(1, -1, 1, 1) for row in weights]
    total = x * factors[0]
    for other, factor in zip(others, factors[1:], strict=True):
        fitted = other[:, : facts.c]
        fitted = functional.pad(fitted, (0, 0, 0, 0, 0, facts.c - fitted.shape[1]))
        total = total + fitted * factor
    return total


def _resized_sum(facts: Facts, x: Tensor, other: Tensor) -> Tensor:
    """The sum alpha * x + beta * other where both are, x elsewhere; of the larger image every so many pixels."""
    c, h, w = (min(ours, theirs) for ours, theirs in zip(x.shape[1:], other.shape[1:], strict=True))
    step, sample = max(other.shape[3] // x.shape[3], 1), max(x.shape[3] // other.shape[3], 1)
    total = x.clone()
    place = (slice(None), slice(c), slice(0, h * sample, sample), slice(0, w * sample, sample))
    total[place] = facts.alpha * total[place] + facts.beta * other[:, :c, : h * step : step, : w * step : step]
    return total


def _product(module: DarknetLayer, x: Tensor, others: list[Tensor]) -> Tensor:
    assert module.facts is not None
    return ACTIVATIONS[module.facts.activation](others[0] * x)


def _activation(module: DarknetLayer, x: Tensor, _: list[Tensor]) -> Tensor:
    assert module.facts is not None
    return ACTIVATIONS[module.facts.activation](x)


def _passed(_: DarknetLayer, x: Tensor, __: list[Tensor]) -> Tensor:
    return x


FUNCTIONS = {
    "activation": _activation,
    "batchnorm": batchnorm,
    "connected": _connected,
    "contrastive": _passed,
    "convolutional": _convolutional,
    "cost": _passed,
    "deconvolutional": _deconvolutional,
    "dropout": _passed,
    "empty": _passed,
    "implicit": _implicit,
    "local": _local,
    "logistic": _activation,
    "sam": _product,
    "scale_channels": _product,
    "shortcut": _shortcut,
    **MOVES,
}
"""By the name of a section: (module, layer before, layers named) -> output."""
