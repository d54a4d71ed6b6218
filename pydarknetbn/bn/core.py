"""A batchnorm layer of the compiled core: made, sized, and its arrays by Darknet's names."""

from __future__ import annotations

from .. import _native
from .._native import Array, CData, lib
from ..errors import StateError
from .settings import Settings
from .shapes import sides

__all__ = ["PARAMETERS", "WORKING", "apart", "made", "resize", "view_of"]

PARAMETERS = ("scales", "biases", "rolling_mean", "rolling_variance")
_OF_CHANNELS = ("mean", "variance", "scale_updates", "bias_updates", "mean_delta", "variance_delta")
_OF_BATCHES = ("x", "x_norm")
WORKING = (*_OF_CHANNELS, *_OF_BATCHES)
"""Those that a forward or a backward makes."""


def made(channels: int, settings: Settings, shape: tuple[int, ...] = ()) -> CData:
    """A new layer, for an x of that shape."""
    return _native.make("batchnorm", channels, *sides(shape), _native.rule("batchnorm_rule", settings.rule))


def apart(layer: CData, settings: Settings, shape: tuple[int, ...]) -> CData:
    """Another one of the same scales and biases, whose statistics of a batch are its own."""
    other = made(layer.c, settings, shape)
    other.freeze_statistics = True
    for name in ("scales", "biases"):
        view_of(other, name)[...] = view_of(layer, name)
    return other


def resize(layer: CData, shape: tuple[int, ...]) -> None:
    """For an x of that shape: where its pixels are others, the working arrays are empty after it."""
    if (layer.h, layer.w) != sides(shape):
        _native.check(lib.resize_batchnorm_layer(layer, *sides(shape)))


def view_of(layer: CData, name: str, shape: tuple[int, ...] = (), *, described: str = "the layer") -> Array:
    """One of PARAMETERS or WORKING, over the layer's own memory.

    Args:
        layer: of the core.
        name: which.
        shape: of the last x, (N, C, …).
        described: how messages call the layer.

    Raises:
        StateError: nothing has made it yet.
    """
    shape = (getattr(layer, f"{name}_batch"), *shape[1:]) if name in _OF_BATCHES else (layer.c,)
    if name == "x_norm" and shape[0]:
        _native.check(lib.make_x_norm(layer))
    pointer = getattr(layer, name)
    if pointer == _native.ffi.NULL or shape[0] == 0:
        raise StateError(f"{described} has no {name} yet; it comes with the forward or backward that makes it")
    return _native.view(pointer, shape)
