"""One step of a training: minibatches forward and backward, then the parameters move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from .._native import Array
from ..dialect import TrainingRule
from ..errors import ShapeError
from ..layers import Layer
from ..weights import header_of
from .adam import adam_step
from .backpropagation import Pass, backpropagate, update_parameters, updated_layers
from .losses import layers_with_loss, network_cost
from .rates import Rates
from .truths import pack_truth

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["rates_of", "start_of_delta", "take_step"]


def start_of_delta(layer: Layer, rule: TrainingRule) -> Literal["cleared", "kept", "multiplied"]:
    """How the layer's delta starts before a minibatch."""
    return rule.cleared if rule.trains(layer.type) else "kept"


def rates_of(net: Network) -> Rates:
    """The learning rates of a network's settings in its profile."""
    return Rates(net.settings, net.arithmetic.training.rates)


def take_step(net: Network, x: Array, truth: object) -> float:
    """What `Network.train_step` does, in the network's turn."""
    progress, minibatch = net.progress, _minibatch(net, len(x))
    packed = pack_truth(truth, layers_with_loss(net.layers, net.origin.cfg), len(x))
    before, total = net.seen, np.float32(0)
    iteration = max(before, 0) // len(x) if progress.iteration is None else progress.iteration
    progress.rows = len(x)
    try:
        for start in range(0, len(x), minibatch):
            progress.seen = before + start + minibatch  # before the forward: some losses look at it
            part = slice(start, start + minibatch)
            total += np.float32(_minibatch_cost(net, x[part], packed[part]))
    except BaseException:
        progress.seen = before
        raise
    progress.iteration = iteration + 1
    _update(net, len(x))
    seen = net.seen if net.dialect_record.training.saved_seen == "counted" else progress.iteration * len(x)
    net.header = header_of((*net.dialect_record.version, seen), net.dialect_record)
    return float(total / np.float32(len(x)))


def _minibatch(net: Network, rows: int) -> int:
    parts = net.settings.subdivisions
    if rows % (parts * net.time_steps):
        steps = f" of {net.time_steps} time steps" if net.time_steps > 1 else ""
        raise ShapeError(f"expected rows that make {parts} equal subdivisions{steps}, got {rows}; see net.settings")
    return rows // parts


def _minibatch_cost(net: Network, x: Array, truth: Array) -> float:
    rule, name = net.arithmetic.training, net.origin.cfg.name
    done = Pass(x, train=True, time_steps=net.time_steps, cache=True, truth=truth, seen=max(net.seen, 0))
    done = net.runner.run(done, keep_all=True, starts=lambda layer: start_of_delta(layer, rule))
    cost = network_cost(net.layers)
    backpropagate(
        net.layers, done, rule, name=name, wants_input=False, workspace=net.runner.workspace, exchanges=net.runner.exchanges
    )
    net.progress.cost = cost
    return cost


def _update(net: Network, rows: int) -> None:
    rule, settings, progress = net.arithmetic.training, net.settings, net.progress
    iteration = max(net.seen, 0) // rows
    rate = progress.rate = rates_of(net).at(iteration, net.generator)
    if settings.adam and rule.adam:
        adam_step(updated_layers(net.layers, rule, iteration), settings, progress, batch=rows, learning_rate=rate)
    else:
        numbers = {"learning_rate": rate, "momentum": settings.momentum, "decay": settings.decay}
        update_parameters(net.layers, rule, batch=rows, iteration=iteration, **numbers)
