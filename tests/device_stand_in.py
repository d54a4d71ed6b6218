"""A library whose layers are the core's own, on the emulated device's memory.

What the layers compute there is tested by itself (`test_cuda_layers.py`, `test_cuda_convolution.py`). This one is as fast as the CPU
and has every layer, so what is left to test of a whole network is what goes from layer to layer, from the host and back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydarknetbn import _native
from pydarknetbn._native import CData, ffi, lib
from pydarknetbn.cuda.library import Device, Library


class StandIn:
    """A `Library`.

    Args:
        real: the emulated one, whose memory, devices and messages it has.
        without: types that it does not compute.
        devices: how many there are.

    Attributes:
        calls: the functions that were called, in order, with bytes where they copy.
    """

    def __init__(self, real: Library, *, without: tuple[str, ...] = (), devices: int = 1) -> None:
        self.real, self.ffi, self.without, self.count = real, real.ffi, without, devices
        self.calls: list[tuple[str, int]] = []
        self.functions = self
        self.check, self.fails_at = real.check, -1

    def devices(self) -> tuple[Device, ...]:
        """As many as were asked for, all named like the emulated one."""
        return tuple(Device(number, device.name, device.memory) for device in self.real.devices() for number in range(self.count))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("scratch_of_") or name in [f"forward_{kind}_layer_gpu" for kind in self.without]:
            raise AttributeError(name)
        if name.startswith("forward_"):
            return self._forward
        if name in ("gpu_push_array", "gpu_pull_array"):
            return self._counted(name)
        return getattr(self.real.functions, name)

    def _counted(self, name: str) -> Callable[..., int]:
        def copy(to: CData, of: CData, nbytes: int, stream: CData) -> int:
            self.calls.append((name, nbytes))
            return int(getattr(self.real.functions, name)(to, of, nbytes, stream))

        return copy

    def _forward(self, pointer: CData, arrays: CData) -> int:
        native = ffi.cast("layer *", self._address(pointer))
        self.calls.append(("forward", native.outputs))
        if sum(name == "forward" for name, _ in self.calls) == self.fails_at:
            count = self.ffi.new("int *")
            return int(self.real.functions.gpu_device_of(self.ffi.NULL, count)) or int(self.real.functions.GPU_FAILED)
        state, batch = ffi.new("network_state *"), arrays.batch
        sources = ffi.new("float *[]", [self._floats(arrays.sources[at]) for at in range(native.n_sources)])
        state.batch, state.steps, state.input, state.sources = batch, 1, self._floats(arrays.input), sources
        held = self._taken(native, arrays)
        _native.check(lib.forward_layer(native, state))
        ffi.memmove(self._floats(arrays.output), native.output, 4 * batch * native.outputs)
        self._put_back(native, held)
        return int(self.real.functions.GPU_OK)

    def _taken(self, native: CData, arrays: CData) -> dict[str, CData]:
        """The parameters of the device in the place of the host's, and no output; what was there before."""
        held = {"output": native.output, "batch": native.batch}
        native.output = ffi.NULL
        owner = native.batchnorm or native
        for name in ("weights", "biases", "scales", "rolling_mean", "rolling_variance", "anchors"):
            holder = native if name in ("weights", "anchors") else owner
            held[name] = getattr(holder, name)
            setattr(holder, name, self._floats(getattr(arrays, name)))
        return held

    def _put_back(self, native: CData, held: dict[str, CData]) -> None:
        lib.drop_output(native)
        owner = native.batchnorm or native
        for name, before in held.items():
            setattr(native if name in ("output", "batch", "weights", "anchors") else owner, name, before)

    def _address(self, pointer: CData) -> int:
        return int(self.ffi.cast("uintptr_t", pointer))

    def _floats(self, pointer: CData) -> CData:
        return ffi.cast("float *", self._address(pointer))
