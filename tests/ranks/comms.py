"""Communicators that do something else than carry numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Comm:
    """Of one process alone, which does as if there were others, and counts what is asked of it.

    Args:
        size: ranks that it tells of.
        others: what the other ranks send, made of what this one does; None: the same.
        fails_at: number of the call, from 0, that raises what `error` makes.
        error: makes the exception.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        rank: int = 0,
        others: Callable[[Any], Any] | None = None,
        fails_at: int | None = None,
        error: Callable[[], BaseException] = RuntimeError,
    ) -> None:
        self.rank, self.size, self.calls = rank, size, 0
        self.others, self.fails_at, self.error = others or (lambda values: values), fails_at, error

    def allgather(self, values: Any) -> Any:
        self.calls += 1
        if self.fails_at is not None and self.calls > self.fails_at:
            raise self.error()
        rows = [np.array(values) if rank == self.rank else np.array(self.others(values)) for rank in range(self.size)]
        return np.stack(rows)
