"""Ranks that are threads of one process: for tests, and for machines with one process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from ..errors import ShapeError, SyncError
from .communicators import Comm
from .moments import Doubles

__all__ = ["local"]

_PATIENCE = 60.0  # seconds


@dataclass(slots=True)
class _Board:
    """Where the ranks put their values, and the barriers before and after they are read."""

    size: int
    timeout: float
    rows: list[Doubles] = field(default_factory=list)
    written: threading.Barrier = field(init=False)
    read: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [np.empty(0)] * self.size
        self.written, self.read = threading.Barrier(self.size), threading.Barrier(self.size)


@dataclass(frozen=True, slots=True)
class _Thread:
    board: _Board
    rank: int
    size: int
    merges_alone: bool = True

    def allgather(self, values: Doubles, /) -> Doubles:
        board = self.board
        board.rows[self.rank] = np.array(values, np.float64)
        self._wait(board.written)
        sizes = {len(row) for row in board.rows}
        made = np.stack(board.rows) if len(sizes) == 1 else None
        self._wait(board.read)
        if made is None:
            raise ShapeError(f"rank {self.rank} of {self.size} brings {len(values)} values; other ranks bring {sorted(sizes)}")
        return made

    def _wait(self, barrier: threading.Barrier) -> None:
        try:
            barrier.wait(self.board.timeout)
        except threading.BrokenBarrierError:
            limit = f"{self.board.timeout:g} seconds"
            raise SyncError(f"rank {self.rank} of {self.size} waited for the others for {limit}, or one of them failed") from None


def local(size: int, *, timeout: float = _PATIENCE) -> tuple[Comm, ...]:
    """Communicators of as many ranks, each for a thread of its own.

    A rank that waited in vain leaves them all of no more use: make new ones.

    Args:
        size: how many. One is what several are compared with: it merges the moments of its batch with nobody's, in the same
            arithmetic as they do, where a single rank of MPI or torch.distributed computes as if it had no communicator.
        timeout: seconds after which a rank that waits for the others gives up.

    Raises:
        ValueError: fewer than 1.
    """
    if size < 1:
        raise ValueError(f"expected 1 rank or more, got {size}")
    board = _Board(size, timeout)
    return tuple(_Thread(board, rank, size) for rank in range(size))
