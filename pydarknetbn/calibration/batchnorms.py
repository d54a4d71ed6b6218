"""The batchnorms of a network, each with all layers that normalise with its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import _native
from .._native import Array, CData, ffi
from ..errors import StateError, UnsupportedError
from ..layers import Layer

__all__ = ["BatchNormPlace", "batchnorms_of"]


@dataclass(frozen=True, slots=True)
class BatchNormPlace:
    """One pair of rolling arrays.

    Args:
        layers: that normalise with it, in order; more than one where they share it.
    """

    layers: tuple[Layer, ...]

    @property
    def first(self) -> Layer:
        """The layer whose arrays stand in the file."""
        return self.layers[0]

    @property
    def where(self) -> str:
        """Such as "layer 3 [convolutional] (line 40)"."""
        return f"layer {self.first.index} [{self.first.type}] (line {self.first.line})"

    @property
    def channels(self) -> int:
        """How many it has."""
        return int(self.natives[0].c)

    @property
    def natives(self) -> tuple[CData, ...]:
        """The core's batchnorm of each layer."""
        return tuple(found for layer in self.layers if (found := native_of(layer)) is not None)

    def array(self, name: str) -> Array:
        """A writable view of scales, biases, rolling_mean or rolling_variance."""
        return _native.view(getattr(self.natives[0], name), (self.channels,))


def native_of(layer: Layer) -> CData | None:
    """The core's batchnorm of a layer."""
    if layer.native is None or layer.type == "batchnorm":
        return layer.native
    return None if layer.native.batchnorm == ffi.NULL else layer.native.batchnorm


def batchnorms_of(layers: Sequence[Layer], name: str, *, folded: bool = False) -> tuple[BatchNormPlace, ...]:
    """All of a network, in the order of their first layers.

    Args:
        layers: of the network.
        name: how messages call it.
        folded: it has none any more.

    Raises:
        UnsupportedError: one stands within a recurrent layer, which normalises each time step with it.
        StateError: there is none.
    """
    found: dict[int, list[Layer]] = {}
    for layer in layers:
        inside = [inner for inner, each in layer.inner.items() if native_of(each) is not None]
        if inside:
            place = f"{name}:{layer.line}: layer {layer.index} [{layer.type}]"
            raise UnsupportedError(f"{place} has a batchnorm in its {inside[0]}, whose statistics are of time steps; not computed")
        native = native_of(layer)
        if native is not None:
            found.setdefault(int(ffi.cast("uintptr_t", native.rolling_mean)), []).append(layer)
    if not found:
        why = "is folded: its batchnorms are in the weights; take the network it was folded from" if folded else "has no batchnorm"
        raise StateError(f"{name}: {why}")
    return tuple(BatchNormPlace(tuple(each)) for each in found.values())


def users_of(places: Sequence[BatchNormPlace]) -> Iterator[tuple[int, CData]]:
    """Number of the place and the core's batchnorm, in the order of layers."""
    pairs = [(layer.index, number, native_of(layer)) for number, place in enumerate(places) for layer in place.layers]
    for _, number, native in sorted(pairs, key=lambda pair: pair[0]):
        yield number, native
