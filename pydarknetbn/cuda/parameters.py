"""Copies on a device of what a network's layers read there, and when they are to be made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._native import CData, lib
from ..layers import Layer
from .arrays import DeviceArray
from .library import Library

__all__ = ["Parameters"]

_OF_LAYER = ("weights", "anchors")
_OF_NORMALIZATION = ("biases", "scales", "rolling_mean", "rolling_variance")


@dataclass(slots=True)
class _Copy:
    """One array of the host and its copy.

    Args:
        host: the core's.
        array: the copy.
        own: how many layers of the network refer to it.
        retained: how often it had been lent when it was copied; -1: somebody had it then, or it was not copied yet.
    """

    host: CData
    array: DeviceArray
    own: int
    retained: int = -1

    @property
    def may_be_old(self) -> bool:
        """Whether the host's can have changed: it was lent since it was copied, or to somebody who had it then.

        A layer's array is written by the layer itself, which does not while it is run elsewhere, and by who was lent it: a view of
        Python's, or a layer of another network that shares it. Each of them is counted. So nothing is compared or hashed, which for
        the weights of a large network takes longer than a forward.
        """
        return self.retained != int(lib.array_retained(self.host))

    def begin(self) -> None:
        """Before it is copied: from here on who is lent it is counted."""
        retained = int(lib.array_retained(self.host))
        self.retained = retained if lib.array_users(self.host) == self.own else -1


class Parameters:
    """The copies for all layers of a network; an array that layers share is copied once.

    Args:
        library: that makes them.
        device: number of the device.
        layers: of the network.
    """

    def __init__(self, library: Library, device: int, layers: Sequence[Layer]) -> None:
        self._library = library
        owners = Counter(_address(host) for layer in layers for _, host in _arrays(layer))
        self._copies: dict[int, _Copy] = {}
        self._of_layer: dict[int, dict[str, DeviceArray]] = {}
        for layer in layers:
            for name, host in _arrays(layer):
                at = _address(host)
                if at not in self._copies:
                    self._copies[at] = _Copy(host, DeviceArray(library, (lib.array_size(host),), device=device), owners[at])
                self._of_layer.setdefault(layer.index, {})[name] = self._copies[at].array

    def push(self, stream: CData) -> int:
        """Copies what may have changed on the host, and says how many arrays that were."""
        pushed = 0
        for copy in self._copies.values():
            if not copy.may_be_old:
                continue
            copy.begin()
            source = self._library.ffi.cast("void *", _address(copy.host))
            self._library.check(
                self._library.functions.gpu_push_array(copy.array.memory, source, copy.array.nbytes, stream), "a parameter"
            )
            pushed += 1
        return pushed

    def of(self, layer: Layer) -> dict[str, DeviceArray]:
        """The copies for one layer, by Darknet's names."""
        return self._of_layer.get(layer.index, {})


def _arrays(layer: Layer) -> Iterator[tuple[str, CData]]:
    if layer.native is None:
        return
    for name in (*_OF_LAYER, *_OF_NORMALIZATION):
        host = getattr(layer.native if name in _OF_LAYER else layer.owner(name), name)
        if host != _native.ffi.NULL:
            yield name, host


def _address(host: Any) -> int:
    return int(_native.ffi.cast("uintptr_t", host))
