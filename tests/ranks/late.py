"""The last of two ranks comes too late: `mpiexec -n 2 python tests/ranks/late.py mpi`, or under torchrun with `torch`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import numpy as np

import pydarknetbn as dn
from pydarknetbn import sync

LATE = 3.0


def waits_in_vain(comm: Any) -> None:
    net = dn.load(b"[net]\nheight=2\nwidth=2\nchannels=1\n[batchnorm]\n")
    net.sync_bn(comm)
    try:
        net.forward(np.ones((1, 1, 2, 2), np.float32), train=True)
    except dn.SyncError as error:
        print(f"rank {comm.rank}: {error}", flush=True)


def main(carrier: str) -> None:
    if carrier == "torch":
        import torch

        torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=1))
        comm = sync.from_torch()
    else:
        comm = sync.from_mpi4py(timeout=1)
    if comm.rank == 0:
        waits_in_vain(comm)
    time.sleep(LATE)
    if carrier == "mpi" and comm.rank:
        comm.allgather(np.zeros(2))  # what rank 0 has asked for, so that MPI can end


main(sys.argv[1])
