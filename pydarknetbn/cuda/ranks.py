"""Batch normalization over several devices: what gathers their statistics, which stay on the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..errors import SyncError
from ..sync.communicators import torch_error, torch_with_group
from .arrays import DeviceArray

__all__ = ["DeviceComm", "Exchange", "Gather", "from_torch"]

Gather: TypeAlias = Callable[[object], None]
"""Fills the rows of all ranks, behind what the stream it is given still has to do, and before what comes next on it."""


class DeviceComm(Protocol):
    """Ranks that have a device each.

    An attribute more may be there: `merges_alone`, by which a single rank merges its moments with nobody's, as each of many does.
    Without it a single rank computes as if it had no communicator.
    """

    @property
    def rank(self) -> int:
        """Of this one, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def gathering(self, own: DeviceArray, rows: DeviceArray, /) -> Gather:
        """What will fill rows, (size, k), with own, (k), of every rank in order. Every rank calls it as often as the others."""
        ...

    def tell(self, sentence: str, /) -> Sequence[str]:
        """The sentence of each rank."""
        ...


@dataclass(frozen=True, slots=True)
class _Torch:
    group: Any
    torch: Any
    rank: int
    size: int
    tensor_of: Callable[[DeviceArray], Any]

    def gathering(self, own: DeviceArray, rows: DeviceArray, /) -> Gather:
        target, source = self.tensor_of(rows).flatten(), self.tensor_of(own)

        def gather(stream: object) -> None:
            try:
                with self._on(stream, source):
                    self.torch.distributed.all_gather_into_tensor(target, source, group=self.group)
            except RuntimeError as reason:
                raise torch_error(self.rank, self.size, reason) from reason

        return gather

    def tell(self, sentence: str, /) -> Sequence[str]:
        told: list[Any] = [None] * self.size
        self.torch.distributed.all_gather_object(told, sentence, group=self.group)
        return told

    def _on(self, stream: object, tensor: Any) -> AbstractContextManager[Any]:
        """Torch's current stream becomes the caller's, which its collectives wait for and are waited for by."""
        cuda = self.torch.cuda
        if not tensor.is_cuda:
            return nullcontext()
        if isinstance(stream, int) and stream:
            stream = cuda.ExternalStream(stream, device=tensor.device)
        elif not hasattr(stream, "cuda_stream"):
            address = getattr(stream, "ptr", 0)
            stream = cuda.ExternalStream(address, device=tensor.device) if address else cuda.default_stream(tensor.device)
        context: AbstractContextManager[Any] = cuda.stream(stream)
        return context


def from_torch(group: Any = None) -> DeviceComm:
    """The ranks of a process group of torch.distributed; with nccl nothing leaves the devices.

    Args:
        group: the group; None: all ranks.

    Raises:
        MissingExtraError: torch is not installed.
        SyncError: `torch.distributed.init_process_group` was not called.
    """
    torch = torch_with_group()
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    return _Torch(group, torch, rank, size, torch.from_dlpack)


class Exchange:
    """The messages of one layer and those of all ranks. They are doubles, kept as pairs of floats: a gather moves bits alone.

    Args:
        comm: of this rank.
        make: makes an array of a shape on the layer's device.
        channels: C.
        described: the layer, in words that are the same on every rank.
        sums_parameters: gradients of parameters are those of all ranks.
    """

    def __init__(
        self,
        comm: DeviceComm,
        make: Callable[[tuple[int, ...]], DeviceArray],
        channels: int,
        *,
        described: str,
        sums_parameters: bool,
    ) -> None:
        self.size, self.sums_parameters = comm.size, sums_parameters
        self._comm, self._described, self._agreed = comm, f"{described}, reduce_params={sums_parameters}", False
        self.moments, self.all_moments = (make(shape) for shape in _shapes(1 + 2 * channels, comm.size))
        self.sums, self.all_sums = (make(shape) for shape in _shapes(2 * channels, comm.size))
        self._gather_moments = comm.gathering(self.moments, self.all_moments)
        self._gather_sums = comm.gathering(self.sums, self.all_sums)

    def gather_moments(self, stream: object) -> None:
        """Fills all_moments.

        Raises:
            SyncError: the gather failed, or another rank has another layer.
        """
        if not self._agreed:
            self._agree()
        self._gather_moments(stream)

    def gather_sums(self, stream: object) -> None:
        """Fills all_sums."""
        self._gather_sums(stream)

    def _agree(self) -> None:
        first, *others = self._comm.tell(self._described)
        for rank, other in enumerate(others, 1):
            if other != first:
                raise SyncError(f"rank 0 has {first}, rank {rank} has {other}; every rank has to run the same")
        self._agreed = True


def _shapes(doubles: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (2 * doubles,), (size, 2 * doubles)
