"""What of a network's training lies in arrays: parameters, gradients, Adam's moments, deltas, recurrent state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import Array, CData, ffi, lib
from ..layers import Layer
from ..recurrence import read_state, reset_state
from .arrays import core_arrays, natives_within
from .stepping import start_of_delta

if TYPE_CHECKING:
    from ..network import Network

__all__ = ["Held", "held_arrays", "put_back"]

Held = NDArray[Any]

_KEY = re.compile(r"([0-9]{1,9})\.(?:(first|second|delta|signs|nans|state)\.)?(.+)")


def held_arrays(net: Network) -> Iterator[tuple[str, Held]]:
    """Name and array of all that the next steps depend on.

    3.weights               a parameter, of a recurrent layer 3.wf.weights
    3.weight_updates        its gradient, which holds the momentum
    3.first.weights         Adam's moments of it, first and second
    3.delta.here            what a delta that is not cleared starts from; 3.signs.here, 3.nans.here of one that is multiplied by 0
    3.state.state           of a recurrent layer
    """
    states = read_state(net.layers, training=True)
    for layer in net.layers:
        yield from ((f"{layer.index}.{name}", array) for name, array in core_arrays(layer).items())
        yield from ((f"{layer.index}.{kind}.{name}", array) for kind, name, array in _deltas(net, layer))
        yield from ((f"{layer.index}.state.{name}", array) for name, array in states.get(layer.index, {}).items() if len(array))
    for (index, name), moments in net.progress.moments.items():
        yield from ((f"{index}.{order}.{name}", array) for order, array in zip(("first", "second"), moments, strict=True))


def _with_delta(layer: Layer) -> dict[str, CData]:
    """By name, "here" or "wf.here"; a batchnorm behind a layer works in that one's delta."""
    found: dict[str, CData] = {}
    for prefix, native in natives_within(layer):
        found.setdefault(prefix + "here", native)
    return found


def _deltas(net: Network, layer: Layer) -> Iterator[tuple[str, str, Held]]:
    """A delta that the program does not clear goes on whole; of one that it multiplies by 0 the signs of the zeros and the NaNs."""
    start = start_of_delta(layer, net.arithmetic.training)
    for name, native in _with_delta(layer).items():
        if native.delta == ffi.NULL or start == "cleared":
            continue
        delta = _native.view(native.delta, (lib.array_size(native.delta) // native.outputs, native.outputs))
        if start == "kept":
            yield "delta", name, delta
            continue
        for kind, bits in (("signs", np.signbit(delta)), ("nans", ~np.isfinite(delta))):
            if bits.any():
                yield kind, name, np.packbits(bits, axis=1)


# --- back -----------------------------------------------------------------------------------------------------------------------


def put_back(net: Network, held: Mapping[str, Held]) -> None:
    """Gives a network what `held_arrays` of an equal one gave; nothing of it changes where that does not fit.

    Raises:
        ValueError: saying which array is missing, has no place here, or is of another type or shape.
    """
    places = _Places(net)
    for key, value in held.items():
        places.add(key, value)
    places.check()
    places.fill()


@dataclass(slots=True)
class _Places:
    """Where held arrays belong; found for all of them before the first is written."""

    net: Network
    parameters: dict[str, Array] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    moves: list[tuple[Array, Held]] = field(default_factory=list)
    moments: dict[tuple[int, str], dict[str, Array]] = field(default_factory=dict)
    deltas: list[tuple[CData, str, Held]] = field(default_factory=list)
    states: dict[int, dict[str, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for layer in self.net.layers:
            if layer.native is not None:
                _native.check(lib.prepare_gradients(layer.native), f"layer {layer.index} [{layer.type}]")
            self.parameters |= {f"{layer.index}.{name}": array for name, array in core_arrays(layer).items()}

    def add(self, key: str, value: Held) -> None:
        """Finds the place of one array."""
        self.found.add(key)
        if key in self.parameters:
            self.moves.append((self.parameters[key], _checked(key, value, self.parameters[key].shape)))
            return
        found = _KEY.fullmatch(key)
        layer = self.net.layers[int(found[1])] if found and int(found[1]) < len(self.net.layers) else None
        if found is None or layer is None or found[2] is None:
            raise ValueError(f"holds {key}, which has no place here")
        if found[2] in ("first", "second"):
            target = self.parameters.get(f"{layer.index}.{found[3]}")
            shape = () if target is None else target.shape
            self.moments.setdefault((layer.index, found[3]), {})[found[2]] = _checked(key, value, shape)
        elif found[2] == "state":
            shape = layer.states.get("state", ())
            self.states.setdefault(layer.index, {})[found[3]] = _checked(key, value, (max(1, len(value)), *shape))
        else:
            self._add_delta(layer, found[2], found[3], key, value)

    def _add_delta(self, layer: Layer, kind: str, name: str, key: str, value: Held) -> None:
        native = _with_delta(layer).get(name)
        outputs = native.outputs if native is not None else 0
        width, dtype = (outputs, np.float32) if kind == "delta" else ((outputs + 7) // 8, np.uint8)
        self.deltas.append((native, kind, _checked(key, value, (max(1, len(value)), width), dtype)))

    def check(self) -> None:
        """Raises a ValueError where an array is missing, of those that go together, or all."""
        for key in self.parameters:
            if not key.endswith("_updates") and key not in self.found:
                raise ValueError(f"has no {key}")
        for (index, name), both in self.moments.items():
            if len(both) < 2:
                raise ValueError(f"has one moment of {index}.{name} of two")
        for index, arrays in self.states.items():
            names = read_state([self.net.layers[index]], training=True)[index].keys()
            if not names <= arrays.keys() or len({len(array) for array in arrays.values()}) > 1:
                raise ValueError(
                    f"has {', '.join(arrays)} of layer {index} for its state, expected {', '.join(names)}, equally long"
                )

    def fill(self) -> None:
        """Writes all of them."""
        for array in self.parameters.values():
            array[...] = 0  # gradients that are not held
        for target, value in self.moves:
            target[...] = value
        self.net.progress.moments = {at: (both["first"], both["second"]) for at, both in self.moments.items()}
        for layer in self.net.layers:
            for _, native in natives_within(layer):
                if native.delta != ffi.NULL:
                    _native.view(native.delta, (lib.array_size(native.delta),))[...] = 0
        for native, kind, value in self.deltas:
            _fill_delta(native, kind, value)
        for index, arrays in self.states.items():
            layer = self.net.layers[index]
            reset_state([layer], len(next(iter(arrays.values()))))
            for name, array in read_state([layer], training=True)[index].items():
                array[...] = arrays[name]


def _checked(key: str, value: Held, shape: tuple[int, ...], dtype: type = np.float32) -> Held:
    if value.dtype != dtype or value.shape != shape:
        raise ValueError(f"holds {key} as {value.dtype} {value.shape}, expected {np.dtype(dtype)} {shape}")
    return value


def _fill_delta(native: CData, kind: str, value: Held) -> None:
    _native.check(lib.prepare_delta(native, len(value), _native.enum("delta_start", "kept")))
    delta = _native.view(native.delta, (len(value), native.outputs))
    if kind == "delta":
        delta[...] = value
    else:
        bits = np.unpackbits(value, axis=1, count=native.outputs).astype(bool)
        delta[bits] = np.nan if kind == "nans" else np.float32(-0.0)
