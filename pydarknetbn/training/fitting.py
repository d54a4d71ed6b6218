"""A training: step after step, with progress, warnings and checkpoints."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from .._native import Array
from ..errors import DarknetWarning
from .checkpoints import read_checkpoint, write_checkpoint
from .interrupts import interrupt_afterwards
from .monitoring import LayerStatistics, Monitor

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["Batches", "History", "fit_network"]

Batches = Iterable[tuple[Any, Any]] | Callable[[int], Iterable[tuple[Any, Any]]]

_SMOOTH = 0.9  # of the loss that is shown, as the forks' programs average theirs


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What a `fit` did.

    Args:
        steps: of the training, those before a resumed checkpoint included.
        loss: float32, of each step of this call.
        rate: float32, the learning rate of each.
        seconds: that this call took.
        statistics: of each batchnorm in the last step; () before one.
        warnings: what was said.
    """

    steps: int
    loss: Array
    rate: Array
    seconds: float
    statistics: tuple[LayerStatistics, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        losses = f", loss {self.loss[0]:.4g} to {self.loss[-1]:.4g}" if len(self.loss) else ""
        return f"History({self.steps} steps{losses}, {self.seconds:.1f} s)"


@dataclass(slots=True)
class _Run:
    net: Network
    monitor: Monitor
    done: int = 0
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def say(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self.said.append(sentence)
            warnings.warn(DarknetWarning(f"{self.net.origin.cfg.name}: {sentence}"), stacklevel=5)

    def step(self, x: Array, truth: Any) -> None:
        with interrupt_afterwards():
            self.losses.append(self.net.train_step(x, truth))
            self.rates.append(self.net.progress.rate)
            self.done += 1
        self.say(self.monitor.look(self.losses[-1], self.net.settings.subdivisions))

    def history(self, began: float) -> History:
        loss, rate = (np.array(values, np.float32) for values in (self.losses, self.rates))
        return History(self.done, loss, rate, time.perf_counter() - began, self.monitor.statistics, tuple(self.said))


def fit_network(
    net: Network,
    batches: Batches,
    *,
    steps: int | None,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    every: int,
) -> History:
    """What `Network.fit` does."""
    if every < 1:
        raise ValueError(f"expected every to be 1 or more steps, got {every}")
    began, done = time.perf_counter(), 0
    if resume is not None:
        with net.turn():
            done = read_checkpoint(net, resume)
    run = _Run(net, Monitor(net.layers, _forwards_of(net)), done)
    _say_once(run)
    written = run.done
    try:
        with _bar(progress, steps, run) as show:
            for x, truth in _upcoming(batches, run, steps):
                run.step(x, truth)
                show()
                if checkpoint is not None and run.done % every == 0:
                    written = _write(net, checkpoint, run)
    except KeyboardInterrupt:
        if checkpoint is not None and written != run.done:
            _write(net, checkpoint, run)
        raise
    if checkpoint is not None and (written != run.done or not run.losses):
        _write(net, checkpoint, run)
    return run.history(began)


def _forwards_of(net: Network) -> int | None:
    """Training forwards behind a network whose every step counts; None: its weights come from a training elsewhere."""
    steps = net.progress.iteration or 0
    return steps * net.settings.subdivisions if net.seen == steps * net.progress.rows else None


def _write(net: Network, checkpoint: str | os.PathLike[str], run: _Run) -> int:
    with interrupt_afterwards(), net.turn():
        write_checkpoint(net, checkpoint, run.done)
    return run.done


def _say_once(run: _Run) -> None:
    if not run.net.progress.told:
        run.net.progress.told = True
        run.say((*run.net.settings.warnings, *run.net.training_faults))


def _upcoming(batches: Batches, run: _Run, steps: int | None) -> Iterator[tuple[Any, Any]]:
    """The batches of the steps that are left."""
    stream = iter(batches(run.done) if callable(batches) else batches)
    if steps is not None:
        yield from islice(stream, max(0, steps - run.done))
        return
    while not _is_over(run.net):
        batch = next(stream, None)
        if batch is None:
            return
        yield batch


def _is_over(net: Network) -> bool:
    """Whether the cfg's max_batches are done, counted as the forks' programs count them: by the images seen."""
    last, rows = net.settings.max_batches, net.progress.rows or net.settings.batch
    return bool(last) and net.seen // rows >= last


@contextmanager
def _bar(wanted: bool, steps: int | None, run: _Run) -> Iterator[Callable[[], None]]:
    """Shows steps, loss and learning rate while the block runs, on a terminal."""
    if not wanted:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 takes longer to import than all the rest
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    told = TextColumn("loss {task.fields[loss]}  rate {task.fields[rate]}")
    total = steps or run.net.settings.max_batches or None
    with Progress(BarColumn(), MofNCompleteColumn(), told, TimeRemainingColumn(), console=console) as shown:
        task = shown.add_task("training", total=total, completed=run.done, loss="-", rate="-")
        average: list[float] = []

        def show() -> None:
            average[:] = [_SMOOTH * average[0] + (1 - _SMOOTH) * run.losses[-1] if average else run.losses[-1]]
            shown.update(task, completed=run.done, loss=f"{average[0]:.4g}", rate=f"{run.rates[-1]:.3g}")

        yield show
