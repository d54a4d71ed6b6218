"""What carries numbers from rank to rank: MPI, torch.distributed, or anything with one method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import SyncError
from ..extras import import_extra
from .moments import Doubles

__all__ = ["Comm", "from_mpi4py", "from_torch", "sum_in_order"]


class Comm(Protocol):
    """A group of ranks that run the same network."""

    @property
    def rank(self) -> int:
        """Of this one, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def allgather(self, values: Doubles, /) -> Doubles:
        """Of every rank (k) float64, in the order of ranks: (size, k). Each rank has to call it, with as many values."""
        ...


def sum_in_order(comm: Comm, values: Doubles) -> Doubles:
    """The sum over the ranks, added from rank 0 on, so that each rank has the same bits whatever the transport."""
    gathered = comm.allgather(values)
    total: Doubles = gathered[0].copy()
    for row in gathered[1:]:
        total += row
    return total


@dataclass(frozen=True, slots=True)
class _Mpi:
    comm: Any
    mpi: Any
    rank: int
    size: int

    def allgather(self, values: Doubles, /) -> Doubles:
        own = np.ascontiguousarray(values, np.float64)
        out = np.empty((self.size, own.size), np.float64)
        try:
            self.comm.Allgather([own, self.mpi.DOUBLE], [out, self.mpi.DOUBLE])
        except self.mpi.Exception as reason:
            raise SyncError(f"rank {self.rank} of {self.size}: MPI's Allgather failed: {reason}") from reason
        return out


def from_mpi4py(comm: Any = None) -> Comm:
    """The ranks of an MPI communicator.

    Args:
        comm: of mpi4py; None: `MPI.COMM_WORLD`.

    Raises:
        MissingExtraError: mpi4py is not installed.
        SyncError: comm is no communicator.
    """
    mpi = import_extra("mpi4py.MPI", "mpi")
    comm = mpi.COMM_WORLD if comm is None else comm
    if not isinstance(comm, mpi.Comm):
        raise SyncError(f"expected a communicator of mpi4py, got {type(comm).__name__}")
    return _Mpi(comm, mpi, comm.Get_rank(), comm.Get_size())


@dataclass(frozen=True, slots=True)
class _Torch:
    group: Any
    torch: Any
    device: str
    rank: int
    size: int

    def allgather(self, values: Doubles, /) -> Doubles:
        torch = self.torch
        own = torch.from_numpy(np.ascontiguousarray(values, np.float64)).to(self.device)
        out = [torch.empty_like(own) for _ in range(self.size)]
        try:
            torch.distributed.all_gather(out, own, group=self.group)
        except RuntimeError as reason:
            line = (str(reason).splitlines() or [""])[0]
            raise SyncError(f"rank {self.rank} of {self.size}: all_gather of torch.distributed failed: {line}") from reason
        gathered: Doubles = np.stack([each.cpu().numpy() for each in out])
        return gathered


def from_torch(group: Any = None) -> Comm:
    """The ranks of a process group of torch.distributed; with nccl the numbers go by way of the GPU.

    Args:
        group: the group; None: all ranks.

    Raises:
        MissingExtraError: torch is not installed.
        SyncError: `torch.distributed.init_process_group` was not called.
    """
    torch = import_extra("torch", "torch")
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise SyncError("torch.distributed has no process group; call torch.distributed.init_process_group first")
    device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    return _Torch(group, torch, device, torch.distributed.get_rank(group), torch.distributed.get_world_size(group))
