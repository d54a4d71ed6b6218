"""Under mpiexec several processes run one command: they share its work, and the first one speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias, TypeVar

import typer

from .._native import num_threads
from ..calibration.ranks import together
from ..errors import DarknetError
from ..extras import import_extra
from ..sync import Comm, from_mpi4py, local
from ..sync.communicators import texts_of_all

__all__ = ["MpiOption", "Ranks", "sharing"]

MpiOption: TypeAlias = Annotated[
    bool, typer.Option("--mpi", help="Share the work among the processes of mpiexec. Default: where it is seen to run under it.")
]

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
_ON_THIS_MACHINE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
Made = TypeVar("Made")


class Ranks:
    """The processes of one command.

    Args:
        comm: what they talk by.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm = comm

    @property
    def first(self) -> bool:
        """Whether this one prints and writes."""
        return self.comm.rank == 0

    def together(self, work: Callable[[], Made]) -> Made:
        """What the work gives, once it is done in every process; else each of them fails."""
        return together(self.comm, work)

    def texts(self, own: str) -> list[str]:
        """One of each process."""
        return texts_of_all(self.comm, own)


@contextmanager
def sharing(mpi: bool, threads: int | None) -> Iterator[Ranks]:
    """Those that share the work of the block; what fails in it is told by the first process alone, and ends all.

    Args:
        mpi: whatever the environment says.
        threads: as the user says; None: the processors are divided among the processes of this machine.

    Raises:
        MissingExtraError: mpi4py is not installed.
    """
    if not mpi and max(map(_number, _SIZES)) <= 1:
        yield Ranks(local(1)[0])
        return
    ranks = _ranks_of_mpi()
    here = max(map(_number, _ON_THIS_MACHINE))
    try:
        with num_threads(threads or max(1, len(os.sched_getaffinity(0)) // max(1, here))):
            yield ranks
    except (DarknetError, OSError, ValueError, MemoryError):
        if ranks.first:
            raise
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("pydarknetbn: interrupted\n" if ranks.first else "")
        import_extra("mpi4py.MPI", "mpi").COMM_WORLD.Abort(130)


def _ranks_of_mpi() -> Ranks:
    try:
        return Ranks(from_mpi4py())
    except DarknetError:
        if max(map(_number, _NUMBERS)) == 0:
            raise
        raise typer.Exit(2) from None


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0
