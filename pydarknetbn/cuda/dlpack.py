"""DLPack, the structs by which array libraries lend each other memory (dmlc/dlpack include/dlpack/dlpack.h, version 0.8)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DtypeError, ShapeError

__all__ = ["CUDA", "HOST", "Lent", "capsule_of", "take"]

HOST, CUDA = 1, 2
_FLOAT, _BFLOAT = 2, 4
_TYPES = {(_FLOAT, 32): "float32", (_FLOAT, 16): "float16", (_BFLOAT, 16): "bfloat16"}
_NAME, _USED = b"dltensor", b"used_dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_IsValid.restype, _api.PyCapsule_IsValid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class Lent:
    """An array of another library's, as long as this lives.

    Args:
        pointer: to its first value.
        shape: C order.
        dtype: float32, float16 or bfloat16.
        device: number of the CUDA device, -1 the host.
        owner: keeps it alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    device: int
    owner: Any


class _Loan:
    """Gives a tensor back to its library when it is let go."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def take(capsule: object, name: str) -> Lent:
    """The array of a capsule that `__dlpack__` gave, which is used up by it.

    Raises:
        DtypeError, ShapeError: not one of floats in C order.
    """
    managed = ctypes.cast(_api.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_Managed))
    _api.PyCapsule_SetName(capsule, _USED)
    loan, tensor = _Loan(managed), managed.contents.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    dtype = _TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise DtypeError(f"expected {name} of float32, float16 or bfloat16, got DLPack's type {tensor.code} of {tensor.bits} bits")
    if tensor.strides and not _is_compact(shape, [tensor.strides[axis] for axis in range(tensor.ndim)]):
        raise ShapeError(f"expected {name} in C order, got strides; make it contiguous")
    device = tensor.device_id if tensor.device_type == CUDA else -1
    return Lent((tensor.data or 0) + tensor.byte_offset, shape, dtype, device, loan)


def _is_compact(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


# --- giving ---------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Given:
    """What a tensor that is given away points to; it holds itself until it is given back."""

    owner: Any
    managed: _Managed
    shape: Any


_given: dict[int, _Given] = {}  # what other libraries hold, by the address of its struct


@_DELETER  # type: ignore[untyped-decorator]
def _give_back(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _forget(capsule: int) -> None:
    """Of a capsule that nobody took."""
    if _api.PyCapsule_IsValid(capsule, _NAME):
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
        _given.pop(get(capsule, _NAME), None)


def capsule_of(lent: Lent) -> object:
    """A capsule for another library, which then keeps the owner alive."""
    code, bits = next(key for key, name in _TYPES.items() if name == lent.dtype)
    managed = _Managed(deleter=_give_back)
    shape = (ctypes.c_int64 * len(lent.shape))(*lent.shape)
    tensor = managed.tensor
    tensor.data, tensor.ndim, tensor.shape = lent.pointer, len(lent.shape), shape
    tensor.device_type, tensor.device_id = (HOST, 0) if lent.device < 0 else (CUDA, lent.device)
    tensor.code, tensor.bits, tensor.lanes = code, bits, 1
    address = ctypes.addressof(managed)
    _given[address] = _Given(lent.owner, managed, shape)
    return _api.PyCapsule_New(address, _NAME, ctypes.cast(_forget, ctypes.c_void_p))
