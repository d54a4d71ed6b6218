"""The arrays that a layer of the core trains, by Darknet's names."""

from __future__ import annotations

from collections.abc import Iterator

from .. import _native
from .._native import Array, CData, ffi, lib
from ..layers import Layer

__all__ = ["core_arrays", "natives_within"]

_FIELDS = (
    *("weights", "biases", "scales", "rolling_mean", "rolling_variance"),
    *("weight_updates", "bias_updates", "scale_updates"),
)


def natives_within(layer: Layer) -> Iterator[tuple[str, CData]]:
    """Prefix of names, "" or "wf.", and layer of the core: the one at work, what stands in it, and their batchnorms."""
    outer = layer.trainer if layer.native is None else layer.native
    for prefix, native in (("", outer), *((f"{name}.", inner.native) for name, inner in layer.inner.items())):
        if native is not None:
            yield prefix, native
            if native.batchnorm != ffi.NULL:
                yield prefix, native.batchnorm


def core_arrays(layer: Layer) -> dict[str, Array]:
    """Parameters, rolling arrays and gradients that there are, as flat views; those of inner layers as "wf.weights".

    Also what no file holds, such as the biases of a [batchnorm] in a dialect whose files have none.
    """
    found = {}
    for prefix, native in natives_within(layer):
        for name in _FIELDS:
            pointer = getattr(native, name)
            if pointer != ffi.NULL:
                found[prefix + name] = _native.view(pointer, (lib.array_size(pointer),))
    return found
