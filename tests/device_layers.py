"""One layer of a network on the emulated device, beside the same one of the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import pydarknetbn as dn
from core import assert_same_bits
from pydarknetbn import _native
from pydarknetbn._native import Array
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.library import Library
from pydarknetbn.layers import Layer

# Types whose function on the device is not named after them
NAMED_OTHERWISE = {"local_avgpool": "maxpool", "reorg3d": "reorg", "batchnorm": "standalone_batchnorm"}
PARAMETERS = ("weights", "biases", "scales", "rolling_mean", "rolling_variance")


def function_of(library: Library, kind: str, what: str = "forward") -> Any:
    """The library's forward for layers of a type, or scratch_of, or None."""
    name = NAMED_OTHERWISE.get(kind, kind.lower())
    return getattr(library.functions, f"{what}_{name}_layer_gpu", None)


def arrays_of(library: Library, batch: int, **arrays: DeviceArray | None) -> Any:
    """A `gpu_arrays` with these, the others NULL."""
    made = library.ffi.new("gpu_arrays *")
    made.batch = batch
    for name, array in arrays.items():
        if array is not None:
            setattr(made, name, library.ffi.cast("float *", array.pointer))
    return made


def run(library: Library, layer: Layer, x: Array, sources: list[Array]) -> Array:
    """The output on the device of a layer for that input and those sources."""
    held = {"input": DeviceArray.from_numpy(library, x), "output": DeviceArray(library, (len(x), *layer.out_shape))}
    parameters = layer.params
    held |= {name: DeviceArray.from_numpy(library, parameters[name]) for name in PARAMETERS if name in parameters}
    pushed = [DeviceArray.from_numpy(library, source) for source in sources]
    arrays = arrays_of(library, len(x), **held)
    arrays.sources = pointers = library.ffi.new("float *[]", [library.ffi.cast("float *", array.pointer) for array in pushed])
    native = library.ffi.cast("layer *", int(_native.ffi.cast("uintptr_t", layer.native)))
    floats, scratch_of = library.ffi.new("size_t *"), function_of(library, layer.type, "scratch_of")
    if scratch_of:
        library.check(scratch_of(native, arrays, floats), layer.type)
    scratch = DeviceArray(library, (floats[0],))
    arrays.scratch = library.ffi.cast("float *", scratch.pointer)
    library.check(function_of(library, layer.type)(native, arrays), layer.type)
    assert pointers
    return held["output"].numpy()


def compared(library: Library, net: dn.Network, x: Array) -> Iterator[Layer]:
    """Holds each layer's output on the device, of what the core's layers before it gave, against the core's; gives the layer."""
    net.forward(x, keep="all")
    for layer in net.layers:
        if layer.native is None:
            continue
        before = net.layers[layer.index - 1].output if layer.index else x
        got = run(library, layer, np.ascontiguousarray(before), [net.layers[index].output for index in layer.sources])
        assert_same_bits(got, layer.output, f"layer {layer.index} [{layer.type}]")
        yield layer
