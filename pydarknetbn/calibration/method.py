"""The method of a `Network` that calibrates; what does the work is imported with the first call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network import Network
    from ..sync import Comm
    from .results import Calibration
    from .units import Batches

__all__ = ["calibrate"]


def calibrate(
    net: Network,
    batches: Batches,
    *,
    sequential: bool = False,
    comm: Comm | None = None,
    progress: Callable[[int, int], None] | None = None,
    resume: str | os.PathLike[str] | None = None,
    data: str = "",
) -> Calibration:
    """Sets the rolling arrays of every batchnorm to mean and variance over all batches together.

    A training leaves averages of its last batches, weighted by how late they came; this gives what they estimate. The variance is
    that of the population, m2 / n with n all values of a channel: over a whole data set n-1 would be the same float, and a mean of
    the batches' own variances, as PyTorch's `update_bn` takes, leaves out what their means differ by and counts a small last batch
    like the others. (fvcore's PreciseBN does the same as this.) Everything is float64 and rounded once.

    The unit is one batch, numbered from 0. Its moments are of that batch alone, whoever computes them, and all are merged in the
    order of the numbers, so the result has the same bits for any number of ranks and threads. Rank r of k takes the units r, r + k,
    r + 2k, …; each rank has a network of its own, and each of them gets the same arrays.

    The layers run as in inference, on a copy of the network. Its own arrays are written in the end, all or, after any error or an
    interrupt, none.

    Args:
        net: the network.
        batches: a sequence of batches as `forward` takes them, or a function that gives the batch of a number and None behind the
            last: of these a rank takes its own alone. Anything else to iterate over will do; then each rank walks through all. A
            batch of no rows is passed over.
        sequential: one pass for each batchnorm, in which all before it normalise with their new arrays. Else one pass, in which
            each normalises with mean and variance of the batch, as in training; batches should then be as large as those were.
        comm: the ranks that share the work, see `sync`; None: this process alone.
        progress: called with units done and in all, in `sequential` those of all passes; in all 0 where nobody knows.
        resume: a file that finished units are kept in, at most a second behind. Where it is there already, work goes on from it,
            with the same bits, also on another number of ranks. It goes in the end. Rank 0 reads and writes it.
        data: what the batches are made of; a file of other data is refused, as is one of another network.

    Returns:
        Old and new arrays of each batchnorm, and how far they are apart.

    Raises:
        StateError: the network has no batchnorm, or is folded.
        UnsupportedError: a batchnorm within a recurrent layer; `sequential` with layers that share a batchnorm.
        NumericsError: a mean or variance that is not finite, layer and channel named; one value in each channel of a batch.
        DtypeError, ShapeError: a batch that `forward` would not take, or no batch at all.
        SyncError: a rank that failed, with its reason, or that has another network.
        CheckpointError: `resume` is of other work, or cannot be written.

    Source: fvcore/nn/precise_bn.py (the population estimator); torch/optim/swa_utils.py update_bn.
    """
    from .calibrating import Work, calibrate_network  # noqa: PLC0415 a network is often asked for other things

    net.runner.require_host("calibrate")
    return calibrate_network(net, batches, Work(sequential, comm, progress, resume, data))
