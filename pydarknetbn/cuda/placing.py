"""Opens what a network needs on a device, and puts its layers there."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import DeviceError
from ..layers import Layer
from . import library as opening
from .arrays import pointer_of_stream
from .blas import open_blas
from .library import Library
from .running import DeviceLayers, Place

__all__ = ["device_layers", "library_for"]


def library_for(number: int) -> Library:
    """The library of the installation, if it can compute on that device.

    Raises:
        DeviceError: it cannot.
    """
    library = opening.open_library()
    found = library.devices()
    if number >= len(found):
        told = ", ".join(f"cuda:{each.number} ({each.name})" for each in found)
        raise DeviceError(f"there is no device cuda:{number}; this machine has {told or 'none'}")
    return library


def device_layers(
    layers: Sequence[Layer], kept: Sequence[Layer], name: str, number: int, fast: bool, stream: object, before: DeviceLayers | None
) -> DeviceLayers:
    """A network's layers on a device.

    Args:
        layers: of the network.
        kept: those whose outputs outlive a forward.
        name: how messages call the network.
        number: of the device.
        fast: convolutions and products of matrices are cuBLAS'.
        stream: of the caller's, or None.
        before: where they are now; what is there already is not copied again.

    Raises:
        DeviceError: no library, device or memory.
        UnsupportedError: a layer is not computed there.
    """
    library = library_for(number)
    place = Place(library, number, pointer_of_stream(library, stream), open_blas(library, number) if fast else None)
    if before is not None and before.place.device == number and before.place.library is library:
        before.move_within(place)
        return before
    return DeviceLayers(layers, kept, name, place)
