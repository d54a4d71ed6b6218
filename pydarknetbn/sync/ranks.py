"""What the ranks of one network or layer do together, one after another in the same order on every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from zlib import crc32

import numpy as np

from ..errors import SyncError
from ..exchanging import Exchange, Exchanged
from .communicators import Comm, reduces_parameters, rows_of, sum_in_order, texts_of_all
from .moments import Doubles, Moments, merge

__all__ = ["Ranks"]


@dataclass(slots=True, eq=False)
class Ranks:
    """The ranks that run one network, or one layer.

    Args:
        comm: carries the numbers.
        describe: sentences that are the same on every rank, such as "layer 3 [convolutional] of 8 channels".
        reduces: gradients of parameters are summed over the ranks.
        agreed: every rank was seen to have the same sentences.
    """

    comm: Comm
    describe: Callable[[], Sequence[str]]
    reduces: bool
    agreed: bool = False

    @staticmethod
    def of(comm: Comm, describe: Callable[[], Sequence[str]], *, reduce_params: bool | None) -> Ranks:
        """Ranks of a communicator; reduce_params None: as its kind has it."""
        reduces = reduces_parameters(comm, reduce_params)
        return Ranks(comm, lambda: [f"reduce_params={reduces}", *describe()], reduces)

    def exchange(self, *, sums_parameters: bool) -> Exchange:
        """For the passes of a batchnorm. sums_parameters: its scale and bias updates become those of all ranks."""
        return Exchange(self.take, sums_parameters=sums_parameters)

    def take(self, kind: Exchanged, values: Doubles) -> None:
        """The values of this rank become those of all.

        Raises:
            SyncError: a rank does not answer, or has another network.
        """
        self.agree()
        if kind == "moments":
            rows = rows_of(self.comm, values)
            values[...] = merge(Moments.of_message(row) for row in rows).message()
        else:
            values[...] = sum_in_order(self.comm, values)

    def agree(self) -> None:
        """Asks once, with the first numbers that are exchanged, whether every rank says the same of itself.

        Raises:
            SyncError: naming the first difference.
        """
        if self.agreed:
            return
        text = "\n".join(self.describe())
        told = rows_of(self.comm, np.array([len(text), crc32(text.encode())], np.float64))
        if not (told == told[0]).all():
            raise SyncError(self._difference(text))
        self.agreed = True

    def _difference(self, text: str) -> str:
        first, *others = (told.split("\n") for told in texts_of_all(self.comm, text))
        rank, theirs = next((rank, lines) for rank, lines in enumerate(others, 1) if lines != first)
        pairs = zip_longest(first, theirs, fillvalue="no further layer")
        one, other = next(pair for pair in pairs if pair[0] != pair[1])
        return f"rank 0 has {one}, rank {rank} has {other}; every rank has to run the same"
