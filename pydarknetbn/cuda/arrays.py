"""Arrays on a device: this package's own, and those that other libraries lend it without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import extras
from ..errors import DeviceError, DtypeError, ShapeError
from .dlpack import CUDA, HOST, Lent, capsule_of, take
from .library import Library

__all__ = ["DTYPES", "DeviceArray", "address_of_stream", "borrow", "numpy_dtype", "pointer_of_stream"]

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a value of each storage type."""
_TYPESTRINGS = {"<f4": "float32", "<f2": "float16"}
_LEGACY_STREAM = 1  # how DLPack and the array interface call the stream that CUDA calls 0


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's; bfloat16 is that of ml_dtypes.

    Raises:
        MissingExtraError: ml_dtypes is not installed.
    """
    return np.dtype(extras.import_extra("ml_dtypes", "half").bfloat16 if name == "bfloat16" else name)


class DeviceArray:
    """An array on a CUDA device, in C order.

    Others take it without a copy through `__dlpack__` (`torch.from_dlpack`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack`) or
    `__cuda_array_interface__`; `numpy()` copies it to the host.

    Args:
        library: that makes it.
        shape: of it.
        dtype: float32, float16 or bfloat16.
        device: number of the device.

    Attributes:
        stream: address of the one that its values are made on, 0 the default one; whoever reads it on another waits for that.
        memory: what the library's functions take.
    """

    def __init__(self, library: Library, shape: Sequence[int], dtype: str = "float32", device: int = 0) -> None:
        if dtype not in DTYPES:
            raise DtypeError(f"expected one of {', '.join(DTYPES)}, got {dtype!r}")
        self.library, self.shape, self.dtype, self.device = library, tuple(shape), dtype, device
        self.stream = 0
        made = library.ffi.new("void **")
        library.check(library.functions.gpu_make_array(made, device, self.nbytes), f"an array of shape {self.shape}")
        self.memory = library.ffi.gc(made[0], library.functions.gpu_free_array)

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, device={self.device})"

    @property
    def nbytes(self) -> int:
        """Of its values."""
        return math.prod(self.shape) * DTYPES[self.dtype]

    @property
    def pointer(self) -> int:
        """Address of its first value."""
        return int(self.library.ffi.cast("uintptr_t", self.memory))

    @classmethod
    def from_numpy(cls, library: Library, array: NDArray[Any], device: int = 0) -> DeviceArray:
        """A copy on the device of an array of the host."""
        array = np.ascontiguousarray(array)
        made = cls(library, array.shape, array.dtype.name, device)
        source = library.ffi.from_buffer(array.view(np.uint8).reshape(-1)) if array.size else library.ffi.NULL
        library.check(library.functions.gpu_push_array(made.memory, source, made.nbytes, library.ffi.NULL), repr(made))
        library.check(library.functions.gpu_synchronize(library.ffi.NULL), repr(made))
        return made

    def numpy(self, stream: object = None) -> NDArray[Any]:
        """A copy on the host, behind what the stream, by default its own, still has to do."""
        out = np.empty(self.shape, numpy_dtype(self.dtype))
        if out.size:
            queue = pointer_of_stream(self.library, self.stream if stream is None else stream)
            target = self.library.ffi.from_buffer(out.view(np.uint8).reshape(-1))
            self.library.check(self.library.functions.gpu_pull_array(self.memory, target, self.nbytes, queue), repr(self))
        return out

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        for typestring, name in _TYPESTRINGS.items():
            if name == self.dtype:
                data = (self.pointer, False)
                return {
                    "shape": self.shape,
                    "typestr": typestring,
                    "data": data,
                    "version": 3,
                    "stream": self.stream or _LEGACY_STREAM,
                }
        raise AttributeError(f"{self.dtype} has no place in __cuda_array_interface__; take it through __dlpack__")

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> object:
        if stream != -1:
            self.wait_for(stream or 0)
        return capsule_of(self.lent())

    def wait_for(self, stream: int) -> None:
        """Waits until another stream than its own may read it; on its own, whatever reads it comes behind what makes it."""
        if (stream or _LEGACY_STREAM) != (self.stream or _LEGACY_STREAM):
            queue = pointer_of_stream(self.library, self.stream)
            self.library.check(self.library.functions.gpu_synchronize(queue), repr(self))

    def lent(self) -> Lent:
        """Itself, for a call of the library."""
        return Lent(self.pointer, self.shape, self.dtype, self.device, self.memory)


def borrow(array: object, name: str, *, stream: int = 0) -> Lent:
    """The memory of an array on a device: a `DeviceArray`, or any object with `__dlpack__` or `__cuda_array_interface__`.

    Args:
        array: PyTorch's, CuPy's, JAX' …; it is not copied.
        name: how messages call it.
        stream: address of the one that will read it, 0 the default one; it waits for what is still to be done to the array.
            What shows `__cuda_array_interface__` alone is taken as it is.

    Raises:
        DeviceError: it lies on the host, or it is no array.
        DtypeError, ShapeError: not one of floats in C order.
    """
    if isinstance(array, DeviceArray):
        array.wait_for(stream)
        return array.lent()
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        kind = array.__dlpack_device__()[0]
        if kind != CUDA:
            place = "the host" if kind == HOST else f"DLPack's device {kind}"
            raise DeviceError(f"expected {name} on a CUDA device, got one on {place}; move it there first")
        detached = array.detach() if hasattr(array, "detach") else array  # a tensor that wants gradients refuses to be lent
        return take(detached.__dlpack__(stream=stream or _LEGACY_STREAM), name)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise DeviceError(f"expected {name} to be an array on a CUDA device, got {type(array).__name__}; see cuda.to_device")
    return _of_interface(array, interface, name)


def _of_interface(array: object, interface: dict[str, Any], name: str) -> Lent:
    dtype = _TYPESTRINGS.get(interface["typestr"])
    if dtype is None:
        raise DtypeError(f"expected {name} of float32 or float16, got {interface['typestr']}")
    if interface.get("strides") is not None:
        raise ShapeError(f"expected {name} in C order, got strides {interface['strides']}; make it contiguous")
    return Lent(interface["data"][0], tuple(interface["shape"]), dtype, 0, array)


def pointer_of_stream(library: Library, stream: object) -> Any:
    """A `cudaStream_t`: None the default stream, a number, or another library's stream.

    Raises:
        DeviceError: none of these.
    """
    for attribute in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        stream = getattr(stream, attribute, stream)
    if stream is not None and not isinstance(stream, int):
        raise DeviceError(f"expected a CUDA stream or its address, got {type(stream).__name__}")
    return library.ffi.cast("void *", stream or 0)


def address_of_stream(library: Library, stream: object) -> int:
    """The same as a number, 0 the default one."""
    return int(library.ffi.cast("uintptr_t", pointer_of_stream(library, stream)))
