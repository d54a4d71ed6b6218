"""One step of a training: minibatches forward and backward, then the parameters move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from .._native import Array
from ..dialect import TrainingRule
from ..errors import ShapeError
from ..layers import Layer
from ..sync.ranks import Ranks
from ..weights import header_of
from .adam import adam_step
from .backpropagation import Pass, backpropagate, update_parameters, updated_layers
from .losses import layers_with_loss, network_cost
from .rates import Rates
from .syncing import drop_gradients, first_of_ranks, rolling_arrays_kept, rows_of_ranks, sum_gradients, sum_of_ranks
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
    ranks = net.runner.ranks if net.runner.ranks is not None and net.runner.ranks.reduces else None
    if ranks is None:
        return _take_step(net, x, truth, _Rows(len(x), None))
    with rolling_arrays_kept(net.layers):
        return _take_step(net, x, truth, _Rows(sum(rows_of_ranks(net, ranks, len(x))), ranks))


@dataclass(frozen=True, slots=True)
class _Rows:
    """How many a step has, and the ranks that have them together; None: this process alone."""

    count: int
    ranks: Ranks | None


def _take_step(net: Network, x: Array, truth: object, rows: _Rows) -> float:
    progress, parts = net.progress, _parts(net, rows.count)
    packed = pack_truth(truth, layers_with_loss(net.layers, net.origin.cfg), len(x))
    before, total, own = net.seen, np.float32(0), len(x) // parts
    iteration = max(before, 0) // rows.count if progress.iteration is None else progress.iteration
    progress.rows = rows.count
    try:
        if rows.ranks is not None and rows.ranks.comm.rank:
            drop_gradients(net.layers)
        for number in range(parts):
            progress.seen = before + (number + 1) * (rows.count // parts)  # before the forward: some losses look at it
            part = slice(number * own, (number + 1) * own)
            total += np.float32(_minibatch_cost(net, x[part], packed[part]))
        total, rate = _of_all(net, total, rates_of(net).at(max(net.seen, 0) // rows.count, net.generator), rows.ranks)
    except BaseException:
        progress.seen = before
        if rows.ranks is not None:
            drop_gradients(net.layers)  # of which some may be sums already
        raise
    progress.iteration, progress.rate = iteration + 1, rate
    _update(net, rows.count)
    seen = net.seen if net.dialect_record.training.saved_seen == "counted" else progress.iteration * rows.count
    net.header = header_of((*net.dialect_record.version, seen), net.dialect_record)
    return float(total / np.float32(rows.count))


def _of_all(net: Network, total: np.float32, rate: float, ranks: Ranks | None) -> tuple[np.float32, float]:
    """Gradients become those of all ranks; their cost, and the learning rate of them all."""
    if ranks is None:
        return total, rate
    sum_gradients(net, ranks)
    return np.float32(sum_of_ranks(net, ranks, float(total))), first_of_ranks(net, ranks, rate)


def _parts(net: Network, rows: int) -> int:
    parts = net.settings.subdivisions
    if rows == 0 or rows % (parts * net.time_steps):
        steps = f" of {net.time_steps} time steps" if net.time_steps > 1 else ""
        raise ShapeError(f"expected rows that make {parts} equal subdivisions{steps}, got {rows}; see net.settings")
    return parts


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
    iteration, rate = max(net.seen, 0) // rows, progress.rate
    if settings.adam and rule.adam:
        adam_step(updated_layers(net.layers, rule, iteration), settings, progress, batch=rows, learning_rate=rate)
    else:
        numbers = {"learning_rate": rate, "momentum": settings.momentum, "decay": settings.decay}
        update_parameters(net.layers, rule, batch=rows, iteration=iteration, **numbers)
