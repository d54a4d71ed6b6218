"""The only importer of the compiled core: checks its statuses, lends it arrays, views its memory."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import DtypeError, NumericsError, ShapeError, StateError, SyncError, UnsupportedError

try:
    from . import _core
    from ._core import ffi, lib
except ImportError as error:
    raise ImportError(
        f"the compiled core of pydarknetbn is not in {Path(__file__).parent} ({error}); "
        "in a source tree run `pip install -e .`, elsewhere reinstall the package for this Python and platform"
    ) from error

__all__ = [
    "Array",
    "CData",
    "array_limit",
    "available_memory",
    "borrowed",
    "check",
    "choices",
    "clone",
    "core_file",
    "enum",
    "ffi",
    "floats",
    "flush_denormals",
    "input_array",
    "lib",
    "make",
    "num_threads",
    "output_array",
    "rule",
    "set_num_threads",
    "view",
]

Array: TypeAlias = NDArray[np.float32]
CData: TypeAlias = Any

_EXCEPTIONS: dict[int, type[Exception]] = {
    lib.STATUS_OUT_OF_MEMORY: MemoryError,
    lib.STATUS_SHAPE: ShapeError,
    lib.STATUS_NUMERICS: NumericsError,
    lib.STATUS_STATE: StateError,
    lib.STATUS_UNSUPPORTED: UnsupportedError,
    lib.STATUS_EXCHANGE: SyncError,
}


def check(status: int, where: str = "") -> None:
    """Raises what a status of the core stands for, with its message.

    Args:
        status: what a function of the core returned.
        where: what the message is about, such as "layer 3 [convolutional]".
    """
    if status == lib.STATUS_OK:
        return
    message = ffi.string(lib.status_message()).decode()
    raise _EXCEPTIONS[status](f"{where}: {message}" if where else message)


def core_file() -> Path:
    """Where the compiled core lies; what else the build made lies beside it."""
    return Path(str(_core.__file__))


def make(name: str, *arguments: Any, where: str = "") -> CData:
    """A layer from the core's `make_<name>_layer`, freed with its last reference."""
    made = ffi.new("layer **")
    check(getattr(lib, f"make_{name}_layer")(made, *arguments), where)
    return ffi.gc(made[0], lib.free_layer)


def clone(layer: CData, *, share: bool) -> CData:
    """A layer of the same kind and parameters, or with the same arrays of parameters, that nothing has run through yet."""
    made = ffi.new("layer **")
    check(lib.clone_layer(made, layer, share))
    return ffi.gc(made[0], lib.free_layer)


def borrowed(pointer: CData, owner: CData) -> CData:
    """A pointer into what `owner` owns, which keeps it alive."""
    kept = [owner]
    return ffi.gc(pointer, lambda _: kept.clear())


# --- rules ----------------------------------------------------------------------------------------------------------------------


@cache
def choices(kind: str) -> dict[str, int]:
    """The values of an enum of the core under the names that Python uses: DENOMINATOR_N_MINUS_1 is "n-1"."""
    constants = ffi.typeof(kind).relements
    names = {name.removeprefix(f"{kind.upper()}_").lower(): value for name, value in constants.items()}
    return {name.replace("_minus_", "-").replace("_", " "): value for name, value in names.items()}


def enum(kind: str, name: str) -> int:
    """The core's constant for a name: `enum("activation", "hard_mish")`."""
    return choices(kind)[name.replace("_", " ")]


def rule(kind: str, record: Any) -> CData:
    """A rule struct of the core filled from the frozen record whose fields have the same names."""
    struct = ffi.new(f"{kind} *")
    _fill(struct, record)
    return struct


def _fill(struct: CData, record: Any) -> None:
    for name, field in ffi.typeof(struct).item.fields:
        value = getattr(record, name)
        if dataclasses.is_dataclass(value):
            _fill(ffi.addressof(struct, name), value)
        elif isinstance(value, str):
            setattr(struct, name, enum(field.type.cname, value))
        else:
            setattr(struct, name, value)


# --- arrays ---------------------------------------------------------------------------------------------------------------------


def floats(array: Array) -> CData:
    """A `float *` to an array's first element, valid while the array lives."""
    return ffi.from_buffer("float[]", array)


def view(pointer: CData, shape: Sequence[int]) -> Array:
    """An array over memory of the core. It keeps that memory, not its layer, alive."""
    count, held = math.prod(shape), lib.array_size(pointer)
    if count > held:
        raise StateError(f"an array of {held} floats cannot be viewed as {tuple(shape)}")
    kept = ffi.gc(lib.array_retain(pointer), lib.array_release)
    buffer = ffi.buffer(kept, count * ffi.sizeof("float"))
    return np.frombuffer(buffer, dtype=np.float32, count=count).reshape(tuple(shape))


def input_array(array: object, name: str, expected: Sequence[int | str | None], *, empty: bool = False) -> Array:
    """The one gate for arrays that go into the core.

    Args:
        array: what the caller gave.
        name: how messages call it.
        expected: the shape; None or a word for a free axis, such as ("batch", 3, 416, 416).
        empty: it may have no values.

    Returns:
        The same array: nothing is copied in silence.

    Raises:
        DtypeError: not an array of float32.
        ShapeError: another shape, not C-contiguous, empty or read-only.
    """
    if not isinstance(array, np.ndarray):
        raise DtypeError(f"expected {name} to be a NumPy array of float32, got {type(array).__name__}")
    if array.dtype != np.float32 or not array.dtype.isnative:
        raise DtypeError(f"expected {name} of float32, got {array.dtype}; use {name}.astype(numpy.float32)")
    fits = array.ndim == len(expected) and all(
        not isinstance(want, int) or want == have for want, have in zip(expected, array.shape, strict=True)
    )
    if not fits or (array.size == 0 and not empty):
        wanted = ", ".join("any" if axis is None else str(axis) for axis in expected)
        raise ShapeError(f"expected {name} of shape ({wanted}), got {array.shape}")
    if not array.flags.c_contiguous:
        raise ShapeError(f"expected {name} C-contiguous, got strides {array.strides}; use numpy.ascontiguousarray")
    if not array.flags.writeable:
        raise ShapeError(f"expected {name} writable, got a read-only array; pass a copy")
    return array


def output_array(out: object, shape: Sequence[int]) -> Array:
    """A new array of that shape, or the caller's own after the gate."""
    return np.empty(tuple(shape), np.float32) if out is None else input_array(out, "out", shape)


@contextmanager
def array_limit(nbytes: int) -> Iterator[None]:
    """In the block, this thread's new arrays take at most so many bytes together; more is a MemoryError before it is taken."""
    lib.limit_arrays(nbytes // ffi.sizeof("float"))
    try:
        yield
    finally:
        lib.limit_arrays(ffi.cast("size_t", -1))


def available_memory() -> int:
    """Bytes that the machine can still give; all of its memory where it does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# --- threads --------------------------------------------------------------------------------------------------------------------


def set_num_threads(n: int) -> None:
    """How many threads later calls use, 1 to 256. The default is the processors that the process may use.

    The number never changes a bit of a result.
    """
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= lib.MAX_THREADS:
        raise ValueError(f"expected a number of threads from 1 to {lib.MAX_THREADS}, got {n!r}")
    lib.set_num_threads(n)


@contextmanager
def num_threads(n: int) -> Iterator[None]:
    """`set_num_threads` for a block."""
    before = lib.get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        lib.set_num_threads(before)


@contextmanager
def flush_denormals(on: bool) -> Iterator[None]:
    """In the block, this thread's networks and layers take denormal floats for 0 and give 0 for them; with False they keep them.

    Denormals are the floats nearer to 0 than 1.18e-38. They are kept by default, as in the forks. Processors take longer for them:
    a convolution of 64 channels whose products all were denormal took 1.8 times as long on an AMD EPYC, and elsewhere it may be
    far more. Without any, both ways take the same time. With True the bits are no longer the fork's wherever a denormal occurs.

    It counts for every thread of the pool that works for this one, only while forward, backward or update run: NumPy's and
    others' arithmetic in the block goes on as it was. And what others switched on does not count for this package.

    Raises:
        UnsupportedError: the processor has no such switch.
    """
    before = lib.get_flush_denormals()
    check(lib.set_flush_denormals(bool(on)), "flush_denormals")
    try:
        yield
    finally:
        lib.set_flush_denormals(before)
