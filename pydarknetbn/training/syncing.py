"""A training of one network on several ranks, each with rows of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from .. import _native
from .._native import Array, ffi, lib
from ..errors import ShapeError, SyncError, UnsupportedError
from ..layers import Layer
from ..sync import Comm
from ..sync.communicators import is_alone, rows_of, sum_in_order
from ..sync.ranks import Ranks
from .arrays import core_arrays, natives_within

if TYPE_CHECKING:
    from ..network import Network

__all__ = [
    "drop_gradients",
    "first_of_ranks",
    "rolling_arrays_kept",
    "rows_of_ranks",
    "sum_gradients",
    "sum_of_ranks",
    "sync_bn",
]

_AT_ONCE = 1 << 18  # floats of a gradient that are on their way together
_GRADIENTS = ("weight_updates", "bias_updates", "scale_updates")


def sync_bn(net: Network, comm: Comm | None, *, reduce_params: bool | None = None) -> None:
    """Batchnorms take mean and variance of the batches of all ranks together in training; see `dn.sync` for communicators.

    Every rank runs the same cfg from the same weights, on images of its own, as many as it has or none, and calls the same methods
    in the same order. Forward: one all-gather for each batchnorm, of n, mean and squares in double, merged in the order of
    ranks; backward: one sum of two numbers for each channel. Every rank has the same bits of what comes of it, so that rolling
    arrays stay equal without being sent. Epsilons, denominators and factors are the profile's, the order of the sums is the
    merge's. Frozen rolling arrays stay, but the batch's statistics are those of all ranks all the same. Inference sends nothing,
    and a single rank of MPI or torch.distributed neither: it computes as without a communicator.

    A `train_step` with reduce_params is that of one process with the rows of all ranks: gradients are summed over them before
    the update, which divides by the rows of all, `seen` counts those, and the loss is theirs. Its subdivisions are made of the
    ranks'. What depends on the rank: a [dropout] draws from each rank's own `generator`, which starts equal on all unless it is
    set; policy=random takes rank 0's rate. `backward` alone leaves the gradients of the rank's own images. Of a `fit` one rank
    alone is given checkpoint=, and every rank resume=.

    A darknet program on several GPUs normalizes each one's images by themselves, and never merges rolling arrays: it averages
    weights, biases and scales every few iterations (src/network.c, sync_nets), and saves the rolling arrays of the first.

    Args:
        net: the network.
        comm: of this rank; None: each for itself again. A clone has none.
        reduce_params: whether a train_step sums the gradients of parameters over the ranks; None: no with torch.distributed,
            where DistributedDataParallel does, else yes. False: it takes the rank's own gradients, rows and counters.

    Raises:
        UnsupportedError: a layer has a batchnorm that is of other statistics than the batch's: cbn=1, or inside a recurrent layer.
        SyncError: not here, but of a later pass: a rank does not answer, or has another network; the message names the layer, and
            parameters and rolling arrays are what they were before it.
    """
    with net.turn():
        if comm is not None:
            net.runner.require_host("sync_bn")
        numbers = [] if comm is None or is_alone(comm) else _normalized(net)
        ranks = None if comm is None or is_alone(comm) else Ranks.of(comm, lambda: _described(net), reduce_params=reduce_params)
        net.runner.ranks, net.runner.done = ranks, None
        net.runner.exchanges = {} if ranks is None else dict.fromkeys(numbers, ranks.exchange(sums_parameters=False))


def _normalized(net: Network) -> list[int]:
    """Numbers of the layers with a batchnorm."""
    return [layer.index for layer in net.layers if _has_batchnorm(net, layer)]


def _has_batchnorm(net: Network, layer: Layer) -> bool:
    section, place = net.origin.cfg.layers[layer.index], f"{net.origin.cfg.name}:{layer.line}: layer {layer.index} [{layer.type}]"
    if any(inner.native is not None and inner.native.batchnorm != ffi.NULL for inner in layer.inner.values()):
        raise UnsupportedError(f"{place}: its inner layers normalize each time step by itself, which is not done over ranks")
    if layer.native is None or not (layer.type == "batchnorm" or layer.native.batchnorm != ffi.NULL):
        return False
    if section.flag("cbn") or section.integer("batch_normalize", 1) == 2:
        raise UnsupportedError(f"{place}: cbn=1 takes statistics of several minibatches, which is not done over ranks")
    return True


def _described(net: Network) -> list[str]:
    """What has to be the same on every rank."""
    numbers = f"{len(net.layers)} layers, {net.settings.subdivisions} subdivisions, {net.time_steps} time steps"
    lines = [f"profile {net.profile}", numbers]
    for layer in net.layers:
        over = ", normalized over the ranks" if layer.index in net.runner.exchanges else ""
        lines.append(f"layer {layer.index} [{layer.type}] {layer.in_shape} -> {layer.out_shape}{over}")
    if net.runner.ranks is not None and net.runner.ranks.reduces:
        checksum = 0
        for layer in net.layers:
            for array in layer.params.values():
                checksum = crc32(array.tobytes(), checksum)
        lines.append(f"parameters of checksum {checksum:08x}")
    return lines


# --- a step -----------------------------------------------------------------------------------------------------------------


def rows_of_ranks(net: Network, ranks: Ranks, rows: int) -> list[int]:
    """How many rows of a step each rank has.

    Raises:
        SyncError: ranks are not at the same step, or freeze other parameters.
        ShapeError: a rank's rows are no whole subdivisions, or all have none.
    """
    with _told(f"{net.origin.cfg.name}: rows of a step"):
        ranks.agree()
        frozen = bytes(native.freeze_parameters for layer in net.layers for _, native in natives_within(layer))
        told = rows_of(ranks.comm, np.array([rows, net.seen, crc32(frozen)], np.float64))
        for at, what in ((1, "another number of images seen"), (2, "other frozen parameters")):
            other = np.flatnonzero(told[:, at] != told[0, at])
            if other.size:
                raise SyncError(f"rank {other[0]} has {what} than rank 0; every rank has to be at the same step")
    counts = [int(count) for count in told[:, 0]]
    parts = net.settings.subdivisions * net.time_steps
    bad = [rank for rank, count in enumerate(counts) if count % parts]
    if bad:
        raise ShapeError(f"expected rows of every rank that make {parts} equal parts, got {counts[bad[0]]} of rank {bad[0]}")
    if not any(counts):
        raise ShapeError("expected rows of a rank at least, got none of any")
    return counts


def sum_of_ranks(net: Network, ranks: Ranks, value: float) -> float:
    """Of a number that each has."""
    with _told(f"{net.origin.cfg.name}: the loss"):
        return float(sum_in_order(ranks.comm, np.array([value]))[0])


def first_of_ranks(net: Network, ranks: Ranks, value: float) -> float:
    """Rank 0's."""
    with _told(f"{net.origin.cfg.name}: the learning rate"):
        return float(rows_of(ranks.comm, np.array([value]))[0, 0])


def _gradients(layer: Layer, done: set[int]) -> Iterator[tuple[str, Array]]:
    """Those that there are and that move a parameter; one that layers share comes once."""
    for prefix, native in natives_within(layer):
        for name in () if native.freeze_parameters else _GRADIENTS:
            pointer = getattr(native, name)
            address = int(ffi.cast("uintptr_t", pointer))
            if address and address not in done:
                done.add(address)
                yield prefix + name, _native.view(pointer, (lib.array_size(pointer),))


def drop_gradients(layers: Sequence[Layer]) -> None:
    """Gradients become zeros: of all ranks but the first before a step, so that what the momentum left of them counts once."""
    done: set[int] = set()
    for layer in layers:
        for _, array in _gradients(layer, done):
            array[...] = 0


def sum_gradients(net: Network, ranks: Ranks) -> None:
    """Gradients become the sums of all ranks', added in double in the order of ranks."""
    done: set[int] = set()
    for layer in net.layers:
        for name, array in _gradients(layer, done):
            with _told(f"{net.origin.cfg.name}:{layer.line}: layer {layer.index} [{layer.type}] {name}"):
                for start in range(0, array.size, _AT_ONCE):
                    part = array[start : start + _AT_ONCE]
                    part[...] = sum_in_order(ranks.comm, part.astype(np.float64))


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except SyncError as error:
        raise SyncError(f"{where}: {error}") from error


@contextmanager
def rolling_arrays_kept(layers: Sequence[Layer]) -> Iterator[None]:
    """Where the block fails, rolling arrays are what they were before it."""
    before = [
        (array, array.copy())
        for layer in layers
        for name, array in core_arrays(layer).items()
        if name.endswith(("rolling_mean", "rolling_variance"))
    ]
    try:
        yield
    except BaseException:
        for array, old in before:
            array[...] = old
        raise
