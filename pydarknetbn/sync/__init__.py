"""Batch normalization over several processes: what carries the numbers, and how moments are merged.

    comm = dn.sync.from_mpi4py(MPI.COMM_WORLD)      one process for each rank of MPI
    comm = dn.sync.from_torch()                     one for each rank of torch.distributed
    comms = dn.sync.local(4)                        four threads of this process

    net.sync_bn(comm)                               the network's batchnorms take the statistics of all ranks in training
    bn.sync(comm)                                   the same of a `BatchNorm`

A communicator is anything with `rank`, `size` and `allgather`; see `Comm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .communicators import Comm, from_mpi4py, from_torch
from .moments import Moments, local_stats, merge
from .threads import local

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["Comm", "Moments", "convert_sync_batchnorm", "from_mpi4py", "from_torch", "local", "local_stats", "merge"]


def convert_sync_batchnorm(net: Network, comm: Comm) -> Network:
    """`net.sync_bn(comm)` by the name that PyTorch has for it. Returns the same network."""
    net.sync_bn(comm)
    return net
