"""Which parameters and rolling arrays of a network move in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._native import CData, ffi
from ..layers import Layer
from .backpropagation import clear_gradients, natives_of

__all__ = ["freeze_layers"]


def freeze_layers(layers: Sequence[Layer], parameters: bool | None, statistics: bool | None) -> None:
    """Freezes (True), unfreezes (False) or leaves (None) parameters and rolling arrays.

    Gradients that came together while a layer was frozen are no step's: unfreezing forgets them.
    """
    for layer in layers:
        for native in _all_natives(layer):
            if statistics is not None:
                native.freeze_statistics = statistics
            if parameters is not None:
                native.freeze_parameters = parameters
        if parameters is False:
            clear_gradients([layer])


def _all_natives(layer: Layer) -> Iterator[CData]:
    for outer in (*natives_of(layer), *(inner.native for inner in layer.inner.values())):
        yield outer
        if outer.batchnorm != ffi.NULL:
            yield outer.batchnorm
