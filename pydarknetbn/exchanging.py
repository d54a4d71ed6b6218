"""Statistics that leave a batchnorm on its way, and come back: those of several processes, or for who measures them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._native import CData, choices, ffi, lib
from .errors import DarknetError, SyncError

__all__ = ["Exchange", "Exchanged", "exchanging"]

Exchanged: TypeAlias = Literal["moments", "delta sums"]
_NAMES: dict[int, Any] = {value: name for name, value in choices("exchanged").items()}


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is done with the statistics of one batchnorm.

    Args:
        take: gets the kind and the values of this process, float64, and changes them to those to go on with. *moments*, in a
            forward: n, the means (c), the sums of squared distances from them (c). *delta sums*, in a backward in training: the
            sums of delta (c), of delta times x's distance from the mean (c).
        in_inference: also outside training.
        normalizes: the moments that come back normalise; else they are only looked at.
        sums_parameters: scale and bias updates take up the delta sums that come back; else those of this process.
    """

    take: Callable[[Exchanged, NDArray[np.float64]], None]
    in_inference: bool = False
    normalizes: bool = True
    sums_parameters: bool = False


class _Call:
    """An exchange on its way through the core, and what it raised there."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.error: BaseException | None = None


def _keep_error(_: Any, error: BaseException, trace: TracebackType) -> None:
    """Also a Ctrl-C of the time in the core, which Python raises before the first line of what it calls."""
    call: _Call = ffi.from_handle(trace.tb_frame.f_locals["handle"])
    call.error = error


@ffi.def_extern(error=lib.STATUS_EXCHANGE, onerror=_keep_error)  # type: ignore[untyped-decorator]
def exchange_statistics(handle: CData, what: int, values: CData, n: int) -> int:
    """What the core calls."""
    call: _Call = ffi.from_handle(handle)
    call.exchange.take(_NAMES[what], np.frombuffer(ffi.buffer(values, n * ffi.sizeof("double")), np.float64))
    return int(lib.STATUS_OK)


@contextmanager
def exchanging(state: CData, exchange: Exchange | None, where: str) -> Iterator[None]:
    """In the block, a pass with that state exchanges the statistics of its batchnorm; what the exchange raises is raised.

    Args:
        state: a `network_state`.
        exchange: None: there is none.
        where: what the message of an error is about, such as "layer 3 [convolutional]".

    Raises:
        DarknetError: the exchange's own, which then says where.
    """
    if exchange is None:
        yield
        return
    call = _Call(exchange)
    handle = ffi.new_handle(call)
    made = ffi.new("statistics_exchange *")
    made.exchange, made.handle = lib.exchange_statistics, handle
    for name in ("in_inference", "normalizes", "sums_parameters"):
        setattr(made, name, getattr(exchange, name))
    state.exchange = made
    try:
        yield
    except SyncError as told:
        error = call.error
        if error is None:
            raise
        raise type(error)(f"{where}: {error}") if isinstance(error, DarknetError) else error from told
    finally:
        state.exchange = ffi.NULL
