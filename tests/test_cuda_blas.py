"""Convolutions and connected layers of the CUDA library by cuBLAS, for which `emulated/cublas.c` stands."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulating import emulated_blas, emulated_library, on_real_device
from on_device import CONNECTED, CONVOLUTIONS, OnDevice
from pydarknetbn._native import Array
from pydarknetbn.cuda.blas import candidates, open_blas
from pydarknetbn.cuda.library import Library
from pydarknetbn.errors import DeviceError


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


def opened(library: Library, matrix: int = 1 << 24) -> Any:
    """That of the emulated device, or on a GPU the real one."""
    try:
        return open_blas(library, 0, None if on_real_device() else [str(emulated_blas())], matrix)
    except DeviceError as reason:
        if not on_real_device():
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def blas(library: Library) -> Any:
    return opened(library)


def assert_near(got: Array, expected: Array) -> None:
    """Sums of another order: 1e-4 of the largest value."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_cublas_multiplies_the_same_matrices(library: Library, blas: Any, name: str) -> None:
    options, size, batch = CONVOLUTIONS[name]
    device = OnDevice(library, f"convolutional {options}", size)
    x = device.input(batch)
    assert_near(device.on_device(x, blas=blas), device.on_cpu(x))


@pytest.mark.parametrize(
    ("matrix", "floats"),
    [(1, 27), (27 * 20 + 26, 27 * 20), (27 * 48, 27 * 48), (2 * 27 * 48, 2 * 27 * 48), (10 * 27 * 48, 3 * 27 * 48)],
    ids=["a column", "columns", "an image", "images", "all"],
)
def test_a_matrix_is_made_in_parts(library: Library, matrix: int, floats: int) -> None:
    """Of 6 x 8 pixels, each a column of 27, in three images."""
    small = opened(library, matrix)
    device = OnDevice(library, "convolutional filters=8 size=3 pad=1", (6, 8, 3))
    x = device.input(3)
    assert device.scratch(device.arrays(x, blas=small)[0]) == floats
    assert_near(device.on_device(x, blas=small), device.on_cpu(x))


def test_groups_share_a_part_of_the_matrix(library: Library) -> None:
    small = opened(library, 2 * 27 * 20)
    device = OnDevice(library, "convolutional filters=16 size=3 pad=1 groups=2", (6, 8, 6))
    x = device.input(3)
    assert device.scratch(device.arrays(x, blas=small)[0]) == 2 * 27 * 20
    assert_near(device.on_device(x, blas=small), device.on_cpu(x))


def test_the_scratch_is_that_of_the_blur_and_the_matrix(library: Library, blas: Any) -> None:
    sizes = {
        "filters=8 size=3 pad=1": (0, 2 * 27 * 48),
        "filters=8 size=1": (0, 0),
        "filters=7 size=3 pad=1": (0, 0),
        "filters=8 size=3 pad=1 antialiasing=1 stride=2": (2 * 8 * 48, 2 * 8 * 48 + 2 * 27 * 48),
    }
    for options, expected in sizes.items():
        device = OnDevice(library, f"convolutional {options}", (6, 8, 3))
        x = device.input(2)
        assert tuple(device.scratch(device.arrays(x, blas=by)[0]) for by in (library.ffi.NULL, blas)) == expected, options


@pytest.mark.parametrize("name", CONNECTED)
def test_cublas_multiplies_connected_layers(library: Library, blas: Any, name: str) -> None:
    options, size, batch = CONNECTED[name]
    device = OnDevice(library, f"connected {options}", size)
    x = device.input(batch)
    assert_near(device.on_device(x, blas=blas), device.on_cpu(x))


@pytest.mark.skipif(on_real_device(), reason="what stands for cuBLAS tells how it was called")
def test_cublas_works_on_the_callers_stream_and_its_handle_is_given_back(library: Library) -> None:
    emulated = ctypes.CDLL(str(emulated_blas()))
    emulated.emulated_stream.restype = ctypes.c_void_p
    users = emulated.emulated_users()
    handle = open_blas(library, 0, [str(emulated_blas())])
    assert emulated.emulated_users() == users + 1
    device = OnDevice(library, "connected output=8", (1, 1, 3))
    device.on_device(device.input(1), blas=handle, stream=library.ffi.cast("void *", 4096))
    assert emulated.emulated_stream() == 4096
    library.ffi.release(handle)
    assert emulated.emulated_users() == users


def test_a_missing_cublas_is_told_with_the_package_that_has_it(library: Library, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"math='fast' needs cuBLAS, and none could be opened; .*pip install nvidia-cublas"):
        open_blas(library, 0, [str(tmp_path / "libcublas.so.13")])


def test_the_cublas_of_an_installed_package_comes_before_the_loaders_and_a_newer_one_before_an_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "nvidia" / folder for folder in ("cu13/lib/libcublas.so.13", "cublas/lib/libcublas.so.12")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    found = [path for path in candidates() if path.startswith(str(tmp_path)) or not path.startswith("/")]
    assert found == [str(files[0]), "libcublas.so.13", str(files[1]), "libcublas.so.12", "libcublas.so.11"]


def test_a_cublas_that_lacks_what_lies_beside_it_says_so(library: Library, tmp_path: Path) -> None:
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        (tmp_path / name).write_bytes(b"no library")
    with pytest.raises(DeviceError, match=r"none could be opened \(.*libcublas.so.13: .*\); install it"):
        open_blas(library, 0, [str(tmp_path / "libcublas.so.13"), str(tmp_path / "missing.so")])


def test_a_file_that_is_no_cublas_is_told(library: Library) -> None:
    with pytest.raises(DeviceError, match="is no cuBLAS of a version from 11 on"):
        open_blas(library, 0, [str(library.path)])
