"""Batch normalization over several processes: what carries the numbers, and how moments are merged.

    comm = dn.sync.from_mpi4py(MPI.COMM_WORLD)      one process for each rank of MPI
    comm = dn.sync.from_torch()                     one for each rank of torch.distributed
    comms = dn.sync.local(4)                        four threads of this process

A communicator is anything with `rank`, `size` and `allgather`; see `Comm`.
"""

from __future__ import annotations

from .communicators import Comm, from_mpi4py, from_torch
from .moments import Moments, local_stats, merge
from .threads import local

__all__ = ["Comm", "Moments", "from_mpi4py", "from_torch", "local", "local_stats", "merge"]
