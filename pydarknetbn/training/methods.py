"""The methods of a `Network` that train."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._native import Array
from ..errors import StateError
from .backpropagation import Pass, backpropagate, fill_deltas
from .faults import training_faults
from .fitting import Batches, History, fit_network
from .freezing import freeze_layers
from .losses import Loss, layers_with_loss, read_losses
from .settings import TrainSettings, read_settings
from .stepping import rates_of, take_step
from .syncing import sync_bn
from .truths import pack_truth

if TYPE_CHECKING:
    from ..network import Network

__all__ = [
    "backward",
    "fit",
    "freeze",
    "generator",
    "learning_rate",
    "loss",
    "seen",
    "set_generator",
    "set_seen",
    "set_settings",
    "settings",
    "sync_bn",
    "train_step",
    "what_is_trained_wrongly",
]


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
        net.runner.require_host("loss")
        x = net.checked(x)
        found = layers_with_loss(net.layers, net.origin.cfg)
        packed = pack_truth(truth, found, x.shape[0])
        done = Pass(x, True, net.time_steps, cache=True, truth=packed, seen=net.seen + x.shape[0])
        net.runner.run(done, keep_all=True, starts=lambda _: "cleared")
        return read_losses(net.layers, net.arithmetic.layers.losses) if len(x) else Loss(0.0, ())


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
        net.runner.require_host("backward")
        done = net.runner.done
        if done is None:
            raise StateError(f"{name}: backward needs forward(x, train=True) before it")
        if delta is not None:
            fill_deltas(net.layers, net.kept, delta, done.x.shape[0])
        elif done.truth is None:
            raise StateError(f"{name}: backward without a delta needs loss(x, truth) before it, for each backward one")
        net.runner.done = replace(done, truth=None)  # on the way back the deltas are changed
        done = done if train is None else replace(done, train=train)
        rule, runner = net.arithmetic.training, net.runner
        into = backpropagate(
            net.layers, done, rule, name=name, wants_input=True, workspace=runner.workspace, exchanges=runner.exchanges
        )
    assert into is not None
    return into


def train_step(net: Network, x: Array, truth: object) -> float:
    """One step: forward and backward of each minibatch, then one update of the parameters.

    The rows are split into `net.settings.subdivisions` minibatches. Their gradients come together, but each has its own forward:
    batchnorm takes mean and variance of one minibatch alone, and the rolling arrays move once for each. So a batch in subdivisions
    is not the same as the whole batch at once: its statistics are of fewer values, and its rolling arrays forget faster.

    The step is the profile's program's: its learning rate is that of the iteration after these rows (seen / rows), the update
    divides by all rows, and what the profile trains wrongly is trained wrongly (`training_faults`).

    Args:
        net: the network.
        x: (rows, c, h, w), as `forward` takes it.
        truth: of all rows, in any form that `loss` takes.

    Returns:
        What the fork's train_network returns: the minibatches' costs over all rows, in float32.

    Raises:
        DtypeError, ShapeError: x or truth is not as told, or rows are no multiple of the subdivisions.
        CfgError: a value of [net] is none of a training.
        UnsupportedError: a layer has no backward, none has a loss, or one a loss that is not computed.
    """
    with net.turn():
        net.runner.require_host("train_step")
        return take_step(net, net.checked(x), truth)


def fit(
    net: Network,
    batches: Batches,
    *,
    steps: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    every: int = 1000,
) -> History:
    """Trains: a `train_step` for each batch.

    Says once, as a `DarknetWarning`: what the profile trains wrongly for this network; statistics of fewer than 16 values; once the
    rolling arrays have had time to fill, a batch variance of more than ten times the rolling one, or less than a tenth; a loss
    that is no number. Ctrl-C ends it behind the step at work, and the checkpoint is written then.

    Args:
        net: the network.
        batches: x and truth of each step, as `train_step` takes them; or a function that gives them from a step on, called with the
            number of steps done, so that a resumed training goes on with the batches that it would have had.
        steps: of the whole training, those before `resume` included; None: as long as there are batches, at most max_batches=.
        progress: shows steps, loss and learning rate, on a terminal.
        checkpoint: PATH: PATH.ckpt, from which a training goes on, and PATH.weights are written every so many steps and in the end.
        resume: PATH.ckpt of the same cfg, dialect and profile: goes on from there, bit for bit. What is no part of a checkpoint:
            `settings` and `freeze`, and the batches.
        every: steps from one checkpoint to the next.

    Returns:
        Losses and learning rates of this call's steps, and how the batchnorms fare.

    Raises:
        CheckpointError: `resume` is none, or of another network; `checkpoint` cannot be written.
    """
    net.runner.require_host("fit")
    return fit_network(net, batches, steps=steps, progress=progress, checkpoint=checkpoint, resume=resume, every=every)


def freeze(
    net: Network, *, parameters: bool | None = True, statistics: bool | None = True, layers: Iterable[int] | None = None
) -> None:
    """Keeps parameters from moving in updates, and rolling arrays in training forwards.

    A batchnorm whose rolling arrays are frozen still takes the batch's mean and variance in a training forward.

    Args:
        net: the network.
        parameters: True freezes, False lets them move again, None leaves it as it is.
        statistics: the same of rolling arrays.
        layers: their numbers; None: all.
    """
    with net.turn():
        chosen = net.layers if layers is None else [net.layers[number] for number in layers]
        freeze_layers(chosen, parameters, statistics)


def what_is_trained_wrongly(net: Network) -> tuple[str, ...]:
    """Sentences on what the profile's program trains wrongly for this network; () where gradients and updates are right."""
    with net.turn():
        return training_faults(net.layers, net.arithmetic, net.settings)


def learning_rate(net: Network) -> float:
    """Of the iteration that the network is at: seen / rows of a step. The step that follows takes that of the next one.

    With policy=random the largest that it may be.
    """
    rows = net.progress.rows or net.settings.batch
    return rates_of(net).at(max(net.seen, 0) // rows)


# --- properties -----------------------------------------------------------------------------------------------------------------


def generator(net: Network) -> np.random.Generator:
    """Of the numbers that training draws, such as those of [dropout] and policy=random; seeded by `load`'s seed; may be set."""
    return net.runner.generator


def set_generator(net: Network, generator: np.random.Generator) -> None:
    """See `generator`."""
    net.runner.generator = generator


def seen(net: Network) -> int:
    """Images that it was trained with; may be set: 0 begins learning rates anew, as `-clear` does in the forks."""
    return net.header.seen if net.progress.seen is None else net.progress.seen


def set_seen(net: Network, images: int) -> None:
    """See `seen`."""
    net.progress.seen, net.progress.iteration = images, None
    net.header = replace(net.header, seen=images)


def settings(net: Network) -> TrainSettings:
    """What [net] says about training; may be set."""
    if net.progress.settings is None:
        net.progress.settings = read_settings(net.origin.cfg.net, net.dialect_record)
    return net.progress.settings


def set_settings(net: Network, settings: TrainSettings) -> None:
    """See `settings`."""
    net.progress.settings = settings
