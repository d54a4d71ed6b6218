"""The methods of a `Network` that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._native import Array
from ..errors import StateError
from .backpropagation import backpropagate, fill_deltas

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["backward"]


def backward(net: Network, delta: Array | Sequence[Array], *, train: bool | None = None) -> Array:
    """Carries a delta (minus the gradient of the loss) back through the last forward; adds to the `*_updates` of the layers.

    What a profile's program does wrongly is done as wrongly: see `training_faults`.

    Args:
        net: the network.
        delta: (batch, c, h, w) of the last layer; with heads a list, one for each, of what the head's input is before its
            logistic.
        train: False gives the fork's backward outside training; None: as the forward was.

    Returns:
        The delta of x, of its shape.

    Raises:
        DtypeError, ShapeError: a delta is not as told.
        StateError: no forward with train=True or cache=True before it.
        UnsupportedError: a layer has no backward.
    """
    name = net.origin.cfg.name
    with net.turn():
        done = net.runner.done
        if done is None:
            raise StateError(f"{name}: backward needs forward(x, train=True) before it")
        fill_deltas(net.layers, net.kept, delta, done.x.shape[0])
        done = done if train is None else replace(done, train=train)
        rule, workspace = net.arithmetic.training, net.runner.workspace
        into = backpropagate(net.layers, done, rule, name=name, wants_input=True, workspace=workspace)
    assert into is not None
    return into
