"""The layers of a network on a CUDA device, where one after another runs on one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .. import _native
from .._native import CData, lib
from ..errors import DeviceError, DtypeError, ShapeError, UnsupportedError
from ..layers import Layer
from ..running import plan_outputs
from ..training import Pass
from .arrays import DeviceArray, borrow
from .dlpack import Lent
from .library import Library
from .parameters import Parameters

__all__ = ["DeviceLayers", "Place"]

# Types whose functions have another name: their layers are another type's to the core, or the name is taken.
_NAMED_OTHERWISE = MappingProxyType({"local_avgpool": "maxpool", "reorg3d": "reorg", "batchnorm": "standalone_batchnorm"})

_SCRATCH = -1  # its number among the arrays that layers use in turn


@dataclass(frozen=True, slots=True)
class Place:
    """Where layers run.

    Args:
        library: that computes.
        device: its number.
        stream: a `cudaStream_t`.
        blas: sums convolutions and products of matrices; None: they are summed in the order of the CPU.
    """

    library: Library
    device: int
    stream: CData
    blas: CData = None

    def __str__(self) -> str:
        return f"cuda:{self.device}"

    @property
    def address(self) -> int:
        """Of the stream, 0 the default one."""
        return int(self.library.ffi.cast("uintptr_t", self.stream))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For a block, the device is the calling thread's."""
        functions, before = self.library.functions, self.library.ffi.new("int *")
        self.library.check(functions.gpu_choose_device(self.device, before), str(self))
        try:
            yield
        finally:
            functions.gpu_choose_device(before[0], before)


@dataclass(slots=True)
class _Slots:
    """Arrays that grow with the batch, by the number of what lies in them."""

    place: Place
    arrays: dict[int, DeviceArray] = field(default_factory=dict)

    def take(self, number: int, floats: int) -> CData:
        """An array of so many floats or more, whose values may be any."""
        held = self.arrays.get(number)
        if held is None or held.shape[0] < floats:
            self.arrays.pop(number, None)  # before the larger one is made, so that both are never there together
            held = self.arrays[number] = DeviceArray(self.place.library, (floats,), device=self.place.device)
        return held.memory


class _Call(NamedTuple):
    """What of the library computes a layer: the host's struct, and the functions that run it and ask for its scratch, if any."""

    native: CData
    forward: Callable[..., int]
    scratch: Callable[..., int] | None


class DeviceLayers:
    """A network's layers on a device.

    Sizes, options and rules are read from the host's layers, parameters from copies that follow the host's (see `Parameters`).
    Outputs lie in as few arrays as the plan of a forward on the host says; those that are asked for are copied into the host's
    layers, so that who reads these need not know where they were computed.

    Args:
        layers: of the network.
        kept: those whose outputs outlive a forward.
        name: how messages call the network.
        place: where to.

    Raises:
        UnsupportedError: a layer that the library does not compute.
        DeviceError: no memory.
    """

    def __init__(self, layers: Sequence[Layer], kept: Sequence[Layer], name: str, place: Place) -> None:
        self._layers, self._kept, self._name, self.place = layers, kept, name, place
        self._calls = {layer.index: self._call_of(layer) for layer in layers if layer.native is not None}
        self._check_calls()
        self._plan = plan_outputs(layers, kept)
        with place.entered():
            self._parameters = Parameters(place.library, place.device, layers)
            self._parameters.push(place.stream)
            place.library.check(place.library.functions.gpu_synchronize(place.stream), name)
        self._slots, self._held = _Slots(place), _Slots(place)
        self._workspace: CData = None  # of the host's outputs
        self._last: object = None  # what the work on the stream may still read

    def move_within(self, place: Place) -> None:
        """To another stream of the same device, or other sums; what is still at work is waited for."""
        with self.place.entered():
            self.place.library.check(self.place.library.functions.gpu_synchronize(self.place.stream), self._name)
        self.place = place

    def _where(self, layer: Layer) -> str:
        return f"{self._name}:{layer.line}: layer {layer.index} [{layer.type}]"

    def _call_of(self, layer: Layer) -> _Call:
        library, name = self.place.library, _NAMED_OTHERWISE.get(layer.type, layer.type.lower())
        forward, scratch = (getattr(library.functions, f"{each}_{name}_layer_gpu", None) for each in ("forward", "scratch_of"))
        if forward is None:
            raise UnsupportedError(f"{self._where(layer)} is not computed on a device; the network stays where it is")
        return _Call(library.ffi.cast("layer *", int(_native.ffi.cast("uintptr_t", layer.native))), forward, scratch)

    def _check_calls(self) -> None:
        """What the library refuses of a layer's options, it tells where it is asked for scratch."""
        arrays = self.place.library.ffi.new("gpu_arrays *")
        arrays.batch, arrays.blas = 1, self.place.blas or self.place.library.ffi.NULL
        for layer in self._layers:
            if layer.index in self._calls:
                self._scratch_floats(layer, arrays)

    def _scratch_floats(self, layer: Layer, arrays: CData) -> int:
        call, floats = self._calls[layer.index], self.place.library.ffi.new("size_t *")
        if call.scratch is not None:
            self.place.library.check(call.scratch(call.native, arrays, floats), self._where(layer))
        return int(floats[0])

    # --- running ----------------------------------------------------------------------------------------------------------------

    def checked(self, x: object, expected: Sequence[int | str]) -> Lent:
        """A batch on the device that a forward takes, or an error."""
        lent = borrow(x, "x", stream=self.place.address)
        if lent.dtype != "float32":
            raise DtypeError(f"expected x of float32, got {lent.dtype}")
        sizes = zip(expected, lent.shape, strict=False)
        if len(lent.shape) != len(expected) or 0 in lent.shape or any(isinstance(e, int) and e != got for e, got in sizes):
            raise ShapeError(f"expected x of shape ({', '.join(map(str, expected))}), got {lent.shape}")
        if lent.device != self.place.device:
            raise DeviceError(f"expected x on {self.place}, where the network is, got it on cuda:{lent.device}")
        return lent

    def run(self, done: Pass, *, keep_all: bool) -> Pass:
        """Computes each layer's output, and gives the host's layers all or those of the kept ones.

        Args:
            done: the batch, on the host or what `checked` gave.
            keep_all: or else the kept ones alone.

        Returns:
            The pass, whose x is on the host where an output of the kept layers is that.
        """
        batch = int(done.x.shape[0])
        wanted = {layer.maker.index for layer in (self._layers if keep_all else self._kept) if layer.maker}
        self._prepare_host(batch)
        with self.place.entered():
            for layer, output in self._forward(done.x):
                if layer.index in wanted:
                    self._pull(layer, output, batch)
            return replace(done, x=self._on_host(done.x)) if any(layer.passes_input for layer in self._kept) else done

    def outputs(self, x: Any) -> list[DeviceArray]:
        """New arrays on the device: the outputs of the kept layers. The work is on the stream and not waited for."""
        with self.place.entered():
            own = {layer.maker.index: self._array((x.shape[0], *layer.out_shape)) for layer in self._kept if layer.maker}
            for _ in self._forward(x, own):
                pass
            return [own[layer.maker.index] if layer.maker else self._copy_of_input(x) for layer in self._kept]

    def _array(self, shape: Sequence[int]) -> DeviceArray:
        made = DeviceArray(self.place.library, shape, device=self.place.device)
        made.stream = self.place.address
        return made

    def _forward(self, x: Any, own: Mapping[int, DeviceArray] = MappingProxyType({})) -> Iterator[tuple[Layer, CData]]:
        """Puts each layer's work on the stream, and gives the layer and its output, which stays until the next is asked for."""
        library, batch = self.place.library, int(x.shape[0])
        self._parameters.push(self.place.stream)
        arrays = library.ffi.new("gpu_arrays *")
        arrays.batch, arrays.stream, arrays.blas = batch, self.place.stream, self.place.blas or library.ffi.NULL
        current = library.ffi.cast("float *", self._input(x))
        outputs: list[CData] = []
        for layer in self._layers:
            if layer.native is not None:
                sources = library.ffi.new("float *[]", [outputs[index] for index in layer.sources])
                arrays.input, arrays.sources = current, sources
                current = library.ffi.cast("float *", self._output(layer, batch, own))
                arrays.output = current
                self._call(layer, arrays)
                yield layer, current
            outputs.append(current)

    def _call(self, layer: Layer, arrays: CData) -> None:
        ffi, copies = self.place.library.ffi, self._parameters.of(layer)
        for name in ("weights", "biases", "scales", "rolling_mean", "rolling_variance", "anchors"):
            setattr(arrays, name, ffi.cast("float *", copies[name].memory) if name in copies else ffi.NULL)
        floats = self._scratch_floats(layer, arrays)
        arrays.scratch = ffi.cast("float *", self._slots.take(_SCRATCH, floats)) if floats else ffi.NULL
        call = self._calls[layer.index]
        self.place.library.check(call.forward(call.native, arrays), self._where(layer))

    def _input(self, x: Any) -> CData:
        library = self.place.library
        self._last = x
        if isinstance(x, Lent):
            return library.ffi.cast("void *", x.pointer)
        memory = self._held.take(0, x.size)
        library.check(library.functions.gpu_push_array(memory, library.ffi.from_buffer(x), x.nbytes, self.place.stream), self._name)
        return memory

    def _output(self, layer: Layer, batch: int, own: Mapping[int, DeviceArray]) -> CData:
        if layer.index in own:
            return own[layer.index].memory
        number = self._plan.place.get(layer.index)
        if number is None:
            return self._held.take(layer.index + 1, layer.out_shape.floats * batch)
        return self._slots.take(number, self._plan.floats[number] * batch)

    # --- to the host ------------------------------------------------------------------------------------------------------------

    def _prepare_host(self, batch: int) -> None:
        """The host's layers have no output, but are of that batch."""
        if self._workspace is None:
            made = _native.ffi.new("workspace **")
            _native.check(lib.make_workspace(made, len(self._layers)))
            self._workspace = _native.ffi.gc(made[0], lib.free_workspace)
        for layer in self._layers:
            if layer.native is not None:
                lib.drop_output(layer.native)
                layer.native.batch = batch

    def _pull(self, layer: Layer, output: CData, batch: int) -> None:
        library, native, floats = self.place.library, layer.native, layer.out_shape.floats
        assert native is not None
        _native.check(lib.lend_output(native, self._workspace, layer.index, floats, batch), self._where(layer))
        target = library.ffi.cast("void *", int(_native.ffi.cast("uintptr_t", native.output)))
        library.check(library.functions.gpu_pull_array(output, target, 4 * floats * batch, self.place.stream), self._where(layer))

    def _on_host(self, x: Any) -> Any:
        if not isinstance(x, Lent):
            return x
        library, made = self.place.library, np.empty(x.shape, np.float32)
        source = library.ffi.cast("void *", x.pointer)
        library.check(library.functions.gpu_pull_array(source, library.ffi.from_buffer(made), made.nbytes, self.place.stream), "x")
        return made

    def _copy_of_input(self, x: Any) -> DeviceArray:
        library, made = self.place.library, self._array(x.shape)
        source = library.ffi.cast("void *", x.pointer) if isinstance(x, Lent) else self._held.arrays[0].memory
        library.check(library.functions.gpu_copy_array(made.memory, source, made.nbytes, self.place.stream), "x")
        return made
