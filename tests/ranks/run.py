"""Runs the checks on four ranks: `mpiexec -n 4 python tests/ranks/run.py mpi`, or under torchrun with `torch`."""

from __future__ import annotations

import sys

from checks import CUTS, check_against_torch, check_all

from pydarknetbn import set_num_threads, sync
from pydarknetbn.sync.communicators import reduces_parameters


def main(carrier: str) -> None:
    set_num_threads(1)
    if carrier == "torch":
        import torch

        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
        comm = sync.from_torch()
        assert not reduces_parameters(comm, None)
        for cut in CUTS:
            check_against_torch(comm, cut)
    else:
        comm = sync.from_mpi4py()
        assert reduces_parameters(comm, None)
    check_all(comm)
    print(f"rank {comm.rank} of {comm.size} is right", flush=True)
    if carrier == "torch":
        torch.distributed.destroy_process_group()


main(sys.argv[1])
