"""What the recurrent layers of a network keep from one forward to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from . import _native
from ._native import Array, lib
from .layers import Layer

if TYPE_CHECKING:
    from .network import Network

__all__ = ["State", "fresh_state", "read_state", "reset_state", "reset_state_of", "state_of"]

State = dict[int, dict[str, Array]]


def read_state(layers: Sequence[Layer], *, training: bool = False) -> State:
    """Layer number -> "state", of LSTMs "cell" too -> writable view (sequences, c, h, w); at first of 0 sequences.

    Args:
        layers: of a network.
        training: with all that training goes on from: of LSTMs "cell_delta", which the forks' backward hands to the next batch's.
    """
    return {layer.index: {name: _view(layer, name) for name in _names(layer, training)} for layer in layers if layer.states}


def _names(layer: Layer, training: bool) -> list[str]:
    return [*layer.states, *(["cell_delta"] if training and "cell" in layer.states else [])]


def _view(layer: Layer, name: str) -> Array:
    assert layer.native is not None
    sequences = layer.native.sequences
    shape = (sequences, *layer.states["state"])
    return _native.view(getattr(layer.native, name), shape) if sequences else np.empty(shape, np.float32)


def reset_state(layers: Sequence[Layer], sequences: int | None) -> None:
    """Zeros for that many sequences; None: for as many as the next forward has.

    Raises:
        ValueError: less than one sequence.
        MemoryError: too many.
    """
    if sequences is not None and sequences < 1:
        raise ValueError(f"expected sequences to be 1 or more, or None for those of the next forward, got {sequences}")
    for layer in layers:
        if layer.states:
            _native.check(lib.reset_recurrent_layer(layer.native, sequences or 0), f"layer {layer.index} [{layer.type}]")


@contextmanager
def fresh_state(layers: Sequence[Layer]) -> Iterator[None]:
    """For a block the state starts anew; after it, it is what it was before."""
    now = read_state(layers, training=True)
    before = {index: {name: array.copy() for name, array in arrays.items()} for index, arrays in now.items()}
    reset_state(layers, None)
    try:
        yield
    finally:
        for layer in layers:
            if layer.states:
                kept = before[layer.index]
                reset_state([layer], len(kept["state"]) or None)
                for name, array in read_state([layer], training=True)[layer.index].items():
                    array[...] = kept[name]


# --- of a network ---------------------------------------------------------------------------------------------------------------


def state_of(net: Network) -> State:
    """What recurrent layers keep: `net.state[1]["state"]`, LSTMs' "cell" too, are writable views (sequences, c, h, w)."""
    with net.turn():
        return read_state(net.layers)


def reset_state_of(net: Network, sequences: int | None = None) -> None:
    """The state becomes zeros, for that many sequences or for those of the next forward."""
    with net.turn():
        reset_state(net.layers, sequences)
