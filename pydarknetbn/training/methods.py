"""The methods of a `Network` that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._native import Array
from ..errors import StateError
from .backpropagation import Pass, backpropagate, fill_deltas
from .losses import Loss, layers_with_loss, read_losses
from .truths import pack_truth

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["backward", "generator", "loss"]


def _generator(net: Network) -> np.random.Generator:
    """Of the numbers that training draws, such as those of [dropout]; seeded by `load`'s seed."""
    return net.runner.generator


def _set_generator(net: Network, generator: np.random.Generator) -> None:
    net.runner.generator = generator


generator = property(_generator, _set_generator)


def loss(net: Network, x: Array, truth: object) -> Loss:
    """Runs a training forward and compares its output with the truth; `backward()` then goes back from there.

    Batchnorms take the batch's statistics and move their rolling arrays, as in `forward(x, train=True)`. Deltas start as zeros, as
    in the first step of a training. What counts the images that were seen, such as the first 12,800 of a [region], takes
    `seen` and this batch.

    Args:
        net: the network.
        x: as `forward` takes it.
        truth: what the layers with a loss read, float32 (batch, truths): one-hot classes or values; boxes as the dialect's program
            has them, rows x, y, w, h, class and more up to max=, relative to the input; for a [detection] its grid. Or, for heads,
            a list with each image's labels (n, 5), class x y w h, which may be empty; for classifiers the classes, whole numbers
            (batch,).

    Returns:
        The cost that the fork's program reports, and what each layer says.

    Raises:
        DtypeError, ShapeError: x or truth is not as told, or a box is not in the picture or of no class.
        UnsupportedError: no layer has a loss, or one has a loss that is not computed.
        StateError: after `close`.
    """
    with net.turn():
        x = net.checked(x)
        found = layers_with_loss(net.layers, net.origin.cfg)
        packed = pack_truth(truth, found, x.shape[0])
        done = Pass(x, True, net.time_steps, cache=True, truth=packed, seen=net.seen + x.shape[0])
        net.runner.run(done, keep_all=True, starts=lambda _: "cleared")
        return read_losses(net.layers, net.arithmetic.layers.losses)


def backward(net: Network, delta: Array | Sequence[Array] | None = None, *, train: bool | None = None) -> Array:
    """Carries a delta (minus the gradient of the loss) back through the last forward; adds to the `*_updates` of the layers.

    What a profile's program does wrongly is done as wrongly: see `training_faults`.

    Args:
        net: the network.
        delta: (batch, c, h, w) of the last layer; with heads a list, one for each, of what the head's input is before its
            logistic. None: what `loss` left, once.
        train: False gives the fork's backward outside training; None: as the forward was.

    Returns:
        The delta of x, of its shape.

    Raises:
        DtypeError, ShapeError: a delta is not as told.
        StateError: no forward with train=True or cache=True before it, or without a delta no loss.
        UnsupportedError: a layer has no backward.
    """
    name = net.origin.cfg.name
    with net.turn():
        done = net.runner.done
        if done is None:
            raise StateError(f"{name}: backward needs forward(x, train=True) before it")
        if delta is not None:
            fill_deltas(net.layers, net.kept, delta, done.x.shape[0])
        elif done.truth is None:
            raise StateError(f"{name}: backward without a delta needs loss(x, truth) before it, for each backward one")
        net.runner.done = replace(done, truth=None)  # on the way back the deltas are changed
        done = done if train is None else replace(done, train=train)
        rule, workspace = net.arithmetic.training, net.runner.workspace
        into = backpropagate(net.layers, done, rule, name=name, wants_input=True, workspace=workspace)
    assert into is not None
    return into
