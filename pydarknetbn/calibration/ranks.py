"""What ranks tell each other beside numbers: texts, bytes, and that one of them failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ..errors import SyncError
from ..sync import Comm
from ..sync.communicators import texts_of_all
from ..sync.moments import Doubles

__all__ = ["from_first", "raise_first", "together"]

Made = TypeVar("Made")


def from_first(comm: Comm, values: Doubles) -> Doubles:
    """Rank 0's values on every rank; the others' count for nothing."""
    length = int(comm.allgather(np.array([float(values.size)]))[0, 0])
    given = values if comm.rank == 0 else np.zeros(length)
    values_of_first: Doubles = comm.allgather(given)[0]
    return values_of_first


def raise_first(comm: Comm, failure: Exception | None) -> None:
    """Every rank calls it; where one or more failed, each of them raises.

    Raises:
        Exception: the rank's own failure.
        SyncError: the first of another rank's.
    """
    told = texts_of_all(comm, f"{failure}" or type(failure).__name__ if failure else "")
    if failure:
        raise failure
    for rank, text in enumerate(told):
        if text:
            raise SyncError(f"rank {rank} of {comm.size}: {text}")


def together(comm: Comm, work: Callable[[], Made]) -> Made:
    """What the work gives, once it is done on every rank; else it fails on all of them, see `raise_first`."""
    made: Made | None = None
    failure: Exception | None = None
    try:
        made = work()
    except Exception as reason:  # whatever it is, the others would wait for ever
        failure = reason
    raise_first(comm, failure)
    return made  # type: ignore[return-value]
