"""What carries numbers from rank to rank: MPI, torch.distributed, or anything with one method."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import SyncError
from ..extras import import_extra
from .moments import Doubles

__all__ = [
    "Comm",
    "from_mpi4py",
    "from_torch",
    "is_alone",
    "reduces_parameters",
    "rows_of",
    "sum_in_order",
    "texts_of_all",
    "torch_error",
    "torch_with_group",
]

_PATIENCE = 1800.0  # seconds, as torch.distributed has it
_LOOKS, _PAUSE = 1000, 0.001  # how often it is looked for the others at once, and seconds between later looks


class Comm(Protocol):
    """A group of ranks that run the same network.

    Two attributes more may be there. `merges_alone`: a single rank merges its moments with nobody's all the same, as every rank of
    several does, and is what several are compared with bit by bit; without it a single rank computes as if it had no communicator.
    `reduces_parameters`: False where the caller reduces gradients, which is what `reduce_params=None` then means; without it True.
    """

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


def is_alone(comm: Comm) -> bool:
    """Whether there is nobody to exchange anything with."""
    return comm.size == 1 and not getattr(comm, "merges_alone", False)


def reduces_parameters(comm: Comm, asked: bool | None) -> bool:
    """Whether gradients of parameters are summed over the ranks: as asked, with None as the communicator says."""
    return bool(getattr(comm, "reduces_parameters", True)) if asked is None else asked


def rows_of(comm: Comm, values: Doubles) -> Doubles:
    """Every rank's values, (size, k).

    Raises:
        SyncError: the communicator gives something else.
    """
    rows = comm.allgather(values)
    if rows.shape != (comm.size, len(values)):
        raise SyncError(f"expected allgather to give an array of shape {(comm.size, len(values))}, got {rows.shape}")
    return rows


def texts_of_all(comm: Comm, text: str) -> list[str]:
    """The text of every rank, in the order of ranks."""
    own = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.float64)
    lengths = rows_of(comm, np.array([float(own.size)]))[:, 0].astype(int)
    padded = np.zeros(max(1, lengths.max()))
    padded[: own.size] = own
    rows = rows_of(comm, padded).astype(np.uint8)
    return [row[:length].tobytes().decode("utf-8", "replace") for row, length in zip(rows, lengths, strict=True)]


def sum_in_order(comm: Comm, values: Doubles) -> Doubles:
    """The sum over the ranks, added from rank 0 on, so that each rank has the same bits whatever the transport."""
    gathered = rows_of(comm, values)
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
    timeout: float | None
    unanswered: list[Any] = field(default_factory=list)  # what MPI may still write to after a time-out

    def allgather(self, values: Doubles, /) -> Doubles:
        own = np.ascontiguousarray(values, np.float64)
        out = np.empty((self.size, own.size), np.float64)
        buffers = [own, self.mpi.DOUBLE], [out, self.mpi.DOUBLE]
        try:
            if self.timeout is None:
                self.comm.Allgather(*buffers)
            else:
                self._await(self.comm.Iallgather(*buffers), buffers, self.timeout)
        except self.mpi.Exception as reason:
            raise SyncError(f"rank {self.rank} of {self.size}: MPI's Allgather failed: {reason}") from reason
        return out

    def _await(self, request: Any, buffers: Any, timeout: float) -> None:
        end, looks = time.monotonic() + timeout, 0
        while not request.Test():
            looks += 1
            if looks > _LOOKS:
                time.sleep(_PAUSE)
            if time.monotonic() > end:
                self.unanswered.append((request, buffers))
                raise SyncError(f"rank {self.rank} of {self.size} waited for the others for {timeout:g} seconds")


def from_mpi4py(comm: Any = None, *, timeout: float | None = _PATIENCE) -> Comm:
    """The ranks of an MPI communicator.

    Args:
        comm: of mpi4py; None: `MPI.COMM_WORLD`.
        timeout: seconds after which a rank that waits for the others gives up, None: never. The communicator is then of no more
            use.

    Raises:
        MissingExtraError: mpi4py is not installed.
        SyncError: comm is no communicator.
    """
    mpi = import_extra("mpi4py.MPI", "mpi")
    comm = mpi.COMM_WORLD if comm is None else comm
    if not isinstance(comm, mpi.Comm):
        raise SyncError(f"expected a communicator of mpi4py, got {type(comm).__name__}")
    return _Mpi(comm, mpi, comm.Get_rank(), comm.Get_size(), timeout)


@dataclass(frozen=True, slots=True)
class _Torch:
    group: Any
    torch: Any
    device: str
    rank: int
    size: int
    reduces_parameters: bool = False  # DistributedDataParallel does

    def allgather(self, values: Doubles, /) -> Doubles:
        torch = self.torch
        own = torch.from_numpy(np.ascontiguousarray(values, np.float64)).to(self.device)
        out = [torch.empty_like(own) for _ in range(self.size)]
        try:
            torch.distributed.all_gather(out, own, group=self.group)
        except RuntimeError as reason:
            raise torch_error(self.rank, self.size, reason) from reason
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
    torch = torch_with_group()
    device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    return _Torch(group, torch, device, torch.distributed.get_rank(group), torch.distributed.get_world_size(group))


def torch_with_group() -> Any:
    """PyTorch, of whose process groups there is one; else the errors of `from_torch`."""
    torch = import_extra("torch", "torch")
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise SyncError("torch.distributed has no process group; call torch.distributed.init_process_group first")
    return torch


def torch_error(rank: int, size: int, reason: RuntimeError) -> SyncError:
    """What an all-gather of torch.distributed raised, in a line."""
    line = (str(reason).splitlines() or [""])[0]
    return SyncError(f"rank {rank} of {size}: all_gather of torch.distributed failed: {line}")
