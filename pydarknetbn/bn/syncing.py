"""A batchnorm of its own whose statistics are those of several ranks."""

from __future__ import annotations

from ..exchanging import Exchange
from ..sync import Comm
from ..sync.communicators import is_alone
from ..sync.ranks import Ranks

__all__ = ["exchange_over"]


def exchange_over(comm: Comm | None, described: str, *, reduce_params: bool | None) -> Exchange | None:
    """What the layer exchanges in training.

    Args:
        comm: of this rank.
        described: the layer, in words that are the same on every rank.
        reduce_params: see `BatchNorm.sync`.
    """
    if comm is None or is_alone(comm):
        return None
    ranks = Ranks.of(comm, lambda: [described], reduce_params=reduce_params)
    return ranks.exchange(sums_parameters=ranks.reduces)
