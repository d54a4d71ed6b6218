"""The passes of a rank whose batch has no images: it joins what the batchnorms of all ranks exchange, and computes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .. import _native
from .._native import CData, ffi, lib
from ..exchanging import Exchange, exchanging
from ..layers import Layer
from .arrays import natives_within

if TYPE_CHECKING:
    from .backpropagation import Pass

__all__ = ["backward_without_rows", "forward_without_rows"]


def forward_without_rows(layers: Iterable[Layer], done: Pass, exchanges: Mapping[int, Exchange], name: str) -> None:
    """Mean, variance and rolling arrays of each batchnorm become those of all ranks; outputs are those of no image.

    Args:
        layers: of a network.
        done: the forward.
        exchanges: of batchnorms, by the numbers of layers.
        name: how messages call the network.
    """
    for layer in layers:
        for _, native in natives_within(layer):
            native.batch, native.cost = 0, 0
        _join(layer, done, exchanges.get(layer.index), name, _forward)


def backward_without_rows(layers: Iterable[Layer], done: Pass, exchanges: Mapping[int, Exchange], name: str) -> None:
    """Joins the sums of deltas; gradients are those of no image.

    Args:
        layers: that a backward goes through, in its order.
        done: the forward before.
        exchanges: of that.
        name: how messages call the network.
    """
    for layer in layers:
        for _, native in natives_within(layer):
            _native.check(lib.prepare_gradients(native))
        _join(layer, done, exchanges.get(layer.index), name, _backward)


def _forward(native: CData, state: CData) -> int:
    return int(lib.forward_batchnorm_layer(native, state, ffi.NULL))


def _backward(native: CData, state: CData) -> int:
    return int(lib.backward_batchnorm_layer(native, ffi.NULL, ffi.NULL, state))


def _join(layer: Layer, done: Pass, exchange: Exchange | None, name: str, call: Callable[[CData, CData], int]) -> None:
    """Calls the core with the layer's batchnorm and the state of the pass."""
    native = layer.native
    if exchange is None or native is None:
        return
    state, where = ffi.new("network_state *"), f"{name}:{layer.line}: layer {layer.index} [{layer.type}]"
    state.train, state.cache = done.train, done.cache
    with exchanging(state, exchange, where):
        _native.check(call(native if native.batchnorm == ffi.NULL else native.batchnorm, state), where)
