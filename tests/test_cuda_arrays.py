"""Arrays that libraries lend each other: the structs of DLPack, and what may come in."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from emulating import emulated_library
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.arrays import borrow, pointer_of_stream
from pydarknetbn.cuda.dlpack import Lent, capsule_of, take


class OnHost:
    """An array whose memory is lent through our own capsules."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        return capsule_of(Lent(self.array.ctypes.data, self.array.shape, self.array.dtype.name, -1, self.array))


def test_a_capsule_of_another_library_is_the_same_memory() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    lent = take(array.__dlpack__(), "x")
    assert (lent.pointer, lent.shape, lent.dtype, lent.device) == (array.ctypes.data, (2, 3, 4), "float32", -1)


def test_another_library_reads_the_memory_of_our_capsule() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = np.from_dlpack(OnHost(array))
    np.testing.assert_array_equal(got, array)
    assert np.shares_memory(got, array)


def test_what_is_lent_outlives_its_maker_and_goes_with_its_taker() -> None:
    freed: list[int] = []

    class Owner:
        def __del__(self) -> None:
            freed.append(1)

    array = np.arange(3, dtype=np.float32)
    capsule = capsule_of(Lent(array.ctypes.data, (3,), "float32", -1, Owner()))
    taken = take(capsule, "x")
    del capsule
    gc.collect()
    assert not freed
    del taken
    gc.collect()
    assert freed


def test_a_capsule_that_nobody_took_frees_what_it_kept() -> None:
    freed: list[int] = []

    class Owner:
        def __del__(self) -> None:
            freed.append(1)

    array = np.arange(3, dtype=np.float32)
    capsule = capsule_of(Lent(array.ctypes.data, (3,), "float32", -1, Owner()))
    del capsule
    gc.collect()
    assert freed


def test_types_and_strides_that_are_not_computed_are_told() -> None:
    with pytest.raises(dn.DtypeError, match="of 64 bits"):
        take(np.zeros(3).__dlpack__(), "x")
    with pytest.raises(dn.ShapeError, match="in C order"):
        take(np.zeros((4, 6), np.float32)[:, ::2].__dlpack__(), "x")


def test_axes_of_one_value_have_any_stride() -> None:
    assert take(np.zeros((4, 1, 6), np.float32)[:, ::1].__dlpack__(), "x").shape == (4, 1, 6)


def interface(**changes: Any) -> SimpleNamespace:
    described = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3} | changes
    return SimpleNamespace(__cuda_array_interface__=described)


def test_the_array_interface_is_read() -> None:
    lent = borrow(interface(), "x")
    assert (lent.pointer, lent.shape, lent.dtype) == (4096, (2, 3), "float32")


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [({"typestr": "<f8"}, dn.DtypeError, "<f8"), ({"strides": (48, 8)}, dn.ShapeError, "strides")],
    ids=["type", "strides"],
)
def test_what_the_array_interface_may_not_hold(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        borrow(interface(**changes), "x")


def test_our_arrays_show_both_interfaces() -> None:
    library = emulated_library()
    array = DeviceArray.from_numpy(library, np.arange(6, dtype=np.float32).reshape(2, 3))
    shown = array.__cuda_array_interface__
    assert (shown["shape"], shown["typestr"], shown["data"]) == ((2, 3), "<f4", (array.pointer, False))
    assert array.__dlpack_device__() == (2, 0)
    assert take(array.__dlpack__(), "x").device == 0
    np.testing.assert_array_equal(array.numpy(), [[0, 1, 2], [3, 4, 5]])


def test_streams_of_other_libraries_are_read() -> None:
    library = emulated_library()
    for stream, address in ((None, 0), (7, 7), (SimpleNamespace(cuda_stream=9), 9), (SimpleNamespace(ptr=11), 11)):
        assert int(library.ffi.cast("uintptr_t", pointer_of_stream(library, stream))) == address
    with pytest.raises(dn.DeviceError, match="expected a CUDA stream"):
        pointer_of_stream(library, "s")
