"""From a network and an input to a golden bundle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..doctor.noise import jittered, noise_of
from ..doctor.running import Runner
from ..doctor.steps import INPUT, Step
from ..errors import UnsupportedError
from ..network import Network
from .about import about
from .bundle import Golden, GoldenStep, positions
from .filing import stored_input
from .given import Given, sha256
from .moments import channel_means, moments

__all__ = ["SAMPLES", "make_golden"]

SAMPLES = 240
"""Values that are kept of each step."""

_ENOUGH = 64  # values of a channel whose largest difference tells something

Progress = Callable[[int, int], None]
Noise = npt.NDArray[np.float64]


def make_golden(
    net: Network, given: Given, stages: Collection[str], *, samples: int = SAMPLES, progress: Progress | None = None
) -> Golden:
    """Runs a network and keeps of its values what a port is held against.

    Args:
        net: the network.
        given: its input.
        stages: which values of each layer.
        samples: values that are kept of each.
        progress: called with steps done and in all.

    Raises:
        DumpError: the input does not fit into a small file.
        UnsupportedError: a layer with a memory.
    """
    recurrent = [layer for layer in net.layers if layer.states]
    if recurrent:
        layer = recurrent[0]
        where = f"{net.origin.cfg.name}:{layer.line}: layer {layer.index} [{layer.type}]"
        raise UnsupportedError(f"{where} keeps a state, of which a golden bundle holds nothing; use dump without golden")
    stored = stored_input(given)
    runner = Runner(net)
    made = []
    for step, value, noise in _walk(runner, given.array):
        if step.stage in stages:
            made.append(_kept(runner, step, value, noise, samples))
        if progress:
            progress(step.number + 1, len(runner.steps))
    return Golden(about(net, given), given.array, tuple(made), stored)


def _walk(runner: Runner, x: Array) -> Iterator[tuple[Step, Array, Noise]]:
    """All steps: value, and how far each channel moves when every step before is off by its own rounding.

    The network runs twice, the second time with each value moved up or down by the noise of its step, as a program is that
    takes its sums in another order; how far the two come apart is the noise that a port may have there.
    """
    last_use = {number: step.number for step in runner.steps for number in step.inputs}
    values: dict[int, tuple[Array, Array]] = {INPUT: (x, x)}
    for step in runner.steps:
        ours, theirs = ([values[number][side] for number in step.inputs] for side in (0, 1))
        value = runner.run(step, ours)
        own = noise_of(runner, step, ours, value)
        moved = jittered(runner.run(step, theirs), own, step.number)
        values[step.number] = value, moved
        yield step, value, _expected(own, _apart(value, moved), len(x) * step.shape.h * step.shape.w)
        for number in {*step.inputs, step.number}:
            if last_use.get(number, INPUT) <= step.number:
                values.pop(number, None)


def _expected(own: Noise, moved: Noise, values: int) -> Noise:
    """The noise of each channel; where so few values of one were moved that chance decides, that of the noisiest channel."""
    noise = np.maximum(own, moved)
    return noise if values >= _ENOUGH else np.full_like(noise, noise.max())


def _apart(value: Array, moved: Array) -> Noise:
    """(c): the largest difference of each channel, of what is finite."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(value - moved)
    return np.asarray(np.where(np.isfinite(apart), apart, 0).max(axis=(0, 2, 3)), np.float64)


def _kept(runner: Runner, step: Step, value: Array, noise: Noise, samples: int) -> GoldenStep:
    layer = runner.layer_of(step)
    batch, c, h, w = value.shape
    mean, deviation, least, most = moments(value)
    return GoldenStep(
        number=step.number,
        layer=layer.index,
        type=layer.type,
        line=layer.line,
        stage=step.stage,
        kind=step.kind,
        shape=(batch, c, h, w),
        samples=value.reshape(-1)[positions(value.size, samples, step.number)],
        means=channel_means(value),
        noise=noise,
        mean=mean,
        deviation=deviation,
        least=least,
        most=most,
        sha256=sha256(value),
    )
