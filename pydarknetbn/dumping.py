"""Every value of a network, layer by layer and stage by stage, as a dict, a file, or a small golden bundle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from .doctor.running import Runner
from .doctor.steps import Stage
from .errors import DumpError, UnsupportedError
from .files import write_atomically
from .golden import Golden
from .golden.about import about
from .golden.given import Fit, Given, Source, given_to
from .golden.making import SAMPLES, make_golden
from .network import Network
from .npz import METADATA, write_arrays
from .recurrence import fresh_state

__all__ = ["STAGES", "dump", "write_dump"]

STAGES: tuple[str, ...] = get_args(Stage)
"""What there is of a layer: the sums before its batchnorm, what that gives, what the activation gives, a [yolo]'s boxes."""

Progress = Callable[[int, int], None]


@overload
def dump(
    net: Network, x: Source, *, stages: Sequence[str] = ..., golden: Literal[False] = ..., resize: Fit | None = ...
) -> dict[str, NDArray[Any]]: ...


@overload
def dump(
    net: Network,
    x: Source,
    *,
    stages: Sequence[str] = ...,
    golden: Literal[True],
    resize: Fit | None = ...,
    samples: int = ...,
    progress: Progress | None = ...,
) -> Golden: ...


def dump(
    net: Network,
    x: Source,
    *,
    stages: Sequence[str] = ("post",),
    golden: bool = False,
    resize: Fit | None = None,
    samples: int = SAMPLES,
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]] | Golden:
    """Runs a network and gives the values of all its layers, to the bit those of `forward`.

    Args:
        net: the network; recurrent layers start from an empty state, and have theirs again after it.
        x: (batch, c, h, w), float32; a picture's path or bytes; or a seed.
        stages: of "input", "sums" (before the batchnorm), "normal" (after it), "post" (the layer's output), "boxes" (of a [yolo]).
            A layer has those that are not the same as its "post".
        golden: give a bundle of samples, moments and hashes instead.
        resize: of a picture; None takes the dialect's way.
        samples: of a golden bundle, values kept of each array.
        progress: called with steps done and in all.

    Returns:
        "12.post" -> (batch, c, h, w), in the order of computing, and under "__metadata__" JSON text: profile, dialect, cfg, the
        formula that the numbers follow, and how the input was made. `numpy.savez(path, **dump(…))` keeps it all. Or a `Golden`.

    Raises:
        ValueError: a stage that there is not.
        DtypeError, ShapeError, ImageError: x does not fit the network.
        DumpError: an input that a golden bundle has no room for.
        UnsupportedError: recurrent layers with time_steps other than 1, or in a golden bundle.
    """
    given = given_to(net, x, resize=resize)
    if golden:
        return make_golden(net, given, _checked(stages), samples=samples, progress=progress)
    return {name: np.array(array) for name, array in _arrays(net, given, _checked(stages), progress)}


def write_dump(
    net: Network,
    x: Source,
    path: str | os.PathLike[str],
    *,
    stages: Sequence[str] = ("input", "post"),
    progress: Progress | None = None,
) -> list[str]:
    """Writes what `dump` gives into an .npz, whole or not at all, while the network runs: at no time all of it is in memory.

    Returns:
        The names of the arrays.

    Raises:
        As `dump`; DumpError also where the file cannot be written.
    """
    given = given_to(net, x)
    names: list[str] = []

    def arrays() -> Iterator[tuple[str, NDArray[Any]]]:
        for name, array in _arrays(net, given, chosen, progress):
            names.append(name)
            yield name, array

    chosen = _checked(stages)
    try:
        write_atomically(path, lambda stream: write_arrays(stream, arrays()))
    except OSError as reason:
        raise DumpError(f"{os.fspath(path)}: cannot be written, and is as it was: {reason}") from reason
    return [name for name in names if name != METADATA]


def _checked(stages: Sequence[str]) -> tuple[str, ...]:
    wrong = [stage for stage in stages if stage not in STAGES]
    if isinstance(stages, str) or wrong or not stages:
        got = repr(stages) if isinstance(stages, str) or not stages else repr(wrong[0])
        raise ValueError(f"expected stages of {', '.join(STAGES)}, got {got}")
    return tuple(stages)


def _arrays(net: Network, given: Given, stages: Sequence[str], progress: Progress | None) -> Iterator[tuple[str, NDArray[Any]]]:
    recurrent = [layer for layer in net.layers if layer.states]
    if recurrent and net.time_steps != 1:
        where = f"{net.origin.cfg.name}:{recurrent[0].line}: layer {recurrent[0].index} [{recurrent[0].type}]"
        raise UnsupportedError(f"{where} is dumped one time step at a time; set net.time_steps = 1")
    yield METADATA, np.array(json.dumps({"format": "pydarknetbn dump 1"} | about(net, given), ensure_ascii=False))
    if "input" in stages:
        yield "input", given.array
    runner = Runner(net)
    with fresh_state(net.layers):
        for step, value in runner.forward(given.array):
            if step.stage in stages:
                yield f"{step.layer}.{step.stage}", value
            if progress:
                progress(step.number + 1, len(runner.steps))
