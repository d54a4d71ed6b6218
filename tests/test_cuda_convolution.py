"""Convolutions of the CUDA library, whose kernels run here on the CPU (see `emulating.py`), against the same layers of the core."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from emulating import emulated_blas, emulated_library
from nets import cfg_of
from pydarknetbn import _native
from pydarknetbn._native import Array
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.blas import open_blas
from pydarknetbn.cuda.library import Library
from pydarknetbn.errors import DeviceError

PROFILES = [profile.name for profile in dn.profiles()]
GUARD = 7  # floats behind an array on the device, which no kernel may touch
UNTOUCHED = np.float32(1234.5)


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


@pytest.fixture(scope="module")
def blas(library: Library) -> Any:
    return open_blas(library, 0, [str(emulated_blas())])


class OnDevice:
    """One layer, its parameters copied to the device.

    Args:
        library: that computes.
        section: of a cfg, of one layer.
        size: h, w, c of the input.
    """

    def __init__(
        self, library: Library, section: str, size: tuple[int, int, int], profile: str = "pjreddie-cpu", seed: int = 0
    ) -> None:
        h, w, c = size
        self.library = library
        dialect = "pjreddie" if section.startswith("deconvolutional") else "alexeyab"  # which knows the section
        self.net = dn.load(cfg_of(section, h=h, w=w, c=c), dialect=dialect, profile=profile, seed=seed)
        self.layer, self.shape = self.net.layers[0], (c, h, w)
        generator = np.random.default_rng(seed)
        native, owner = self.layer.native, self.layer.native.batchnorm or self.layer.native
        for name in ("biases", "scales", "rolling_mean", "rolling_variance"):
            if getattr(owner, name):
                values = _native.view(getattr(owner, name), (_native.lib.array_size(getattr(owner, name)),))
                values[...] = generator.normal(1, 0.3, values.shape)
        self.weights = _native.view(native.weights, (native.nweights,))

    def input(self, batch: int, seed: int = 1) -> Array:
        return np.random.default_rng(seed).normal(0, 1, (batch, *self.shape)).astype(np.float32)

    def on_cpu(self, x: Array) -> Array:
        return self.net.forward(x)[0]

    def arrays(self, x: Array, **options: Any) -> tuple[Any, list[Any]]:
        """The struct of a call, and what keeps its arrays."""
        ffi, native = self.library.ffi, self.layer.native
        owner = native.batchnorm or native
        arrays = ffi.new("gpu_arrays *")
        arrays.batch, kept = x.shape[0], []
        given = {"input": x, "output": np.full(x.shape[0] * native.outputs + GUARD, UNTOUCHED), "weights": self.weights}
        for name in ("biases", "scales", "rolling_mean", "rolling_variance"):
            if getattr(owner, name):
                given[name] = _native.view(getattr(owner, name), (_native.lib.array_size(getattr(owner, name)),))
        for name, array in given.items():
            kept.append(DeviceArray.from_numpy(self.library, array))
            setattr(arrays, name, ffi.cast("float *", kept[-1].pointer))
        for name, value in options.items():
            setattr(arrays, name, value)
        return arrays, kept

    @property
    def native(self) -> Any:
        return self.library.ffi.cast("layer *", int(_native.ffi.cast("uintptr_t", self.layer.native)))

    def scratch(self, arrays: Any) -> int:
        floats = self.library.ffi.new("size_t *")
        function = self.library.functions.scratch_of_convolutional_layer_gpu
        self.library.check(function(self.native, arrays, floats), "scratch")
        return int(floats[0])

    def on_device(self, x: Array, **options: Any) -> Array:
        arrays, kept = self.arrays(x, **options)
        scratch = None
        if self.layer.type == "convolutional":
            floats = self.scratch(arrays)
            scratch = DeviceArray.from_numpy(self.library, np.full(floats + GUARD, UNTOUCHED))
            arrays.scratch = self.library.ffi.cast("float *", scratch.pointer) if floats else self.library.ffi.NULL
        function = getattr(self.library.functions, f"forward_{self.layer.type}_layer_gpu")
        self.library.check(function(self.native, arrays), self.layer.type)
        got = kept[1].numpy()
        assert (got[-GUARD:] == UNTOUCHED).all()
        assert scratch is None or (scratch.numpy()[-GUARD:] == UNTOUCHED).all()
        return got[:-GUARD].reshape(x.shape[0], *self.layer.out_shape)

    def check(self, x: Array, **options: Any) -> None:
        assert_same_bits(self.on_device(x, **options), self.on_cpu(x), self.layer.type)


# --- every output has the sum of the CPU -------------------------------------------------------------------------------------

# Filters below, at and beyond tiles of 32, depths that fill no share of 32, pixels of several images in one tile
CONVOLUTIONS = {
    "one pixel": ("filters=1 size=1", (1, 1, 1), 1),
    "three by three": ("filters=33 size=3 pad=1", (9, 7, 5), 2),
    "a tile": ("filters=32 size=2", (5, 9, 8), 1),
    "one filter more than is narrow": ("filters=8 size=3 pad=1 stride=2", (11, 13, 3), 3),
    "narrow": ("filters=7 size=3 pad=1 stride=2", (11, 13, 3), 3),
    "strides of x and y": ("filters=10 size=3 padding=2 stride_x=3 stride_y=2", (13, 8, 3), 2),
    "groups": ("filters=24 size=3 pad=1 groups=3", (6, 5, 6), 2),
    "narrow groups": ("filters=12 size=3 pad=1 groups=4", (6, 5, 8), 2),
    "each channel by itself": ("filters=9 size=5 pad=1 groups=9 stride=2", (7, 6, 9), 3),
    "dilation": ("filters=9 size=3 pad=1 dilation=3", (9, 10, 2), 2),
    "dilation and groups": ("filters=16 size=3 pad=1 dilation=2 groups=2", (9, 10, 4), 2),
    "one pixel with a stride, read directly": ("filters=12 size=1 stride=2", (8, 6, 5), 2),
    "groups of one pixel with a stride, read directly": ("filters=16 size=1 stride=2 groups=2", (8, 6, 6), 2),
    "one pixel with a padding": ("filters=12 size=1 stride=1 padding=1", (4, 4, 3), 2),
    "a kernel larger than the image": ("filters=8 size=7 pad=1", (3, 2, 2), 2),
    "no padding": ("filters=40 size=3", (5, 6, 4), 1),
    "deep": ("filters=16 size=3 pad=1", (4, 3, 40), 1),
    "blur over 3 x 3": ("filters=10 size=3 pad=1 stride=2 antialiasing=1", (9, 7, 3), 2),
    "blur over 2 x 2": ("filters=10 size=3 pad=1 stride=2 antialiasing=2", (9, 8, 3), 2),
    "batchnorm": ("filters=12 size=3 pad=1 batch_normalize=1 activation=leaky", (5, 7, 3), 2),
    "batchnorm and blur": ("filters=12 size=3 pad=1 batch_normalize=1 antialiasing=1 stride=2 activation=mish", (6, 7, 3), 2),
}


@pytest.mark.parametrize("plain", [0, 1], ids=["tiled", "plain"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_each_output_has_the_sum_of_the_cpu(library: Library, name: str, plain: int) -> None:
    options, size, batch = CONVOLUTIONS[name]
    device = OnDevice(library, f"convolutional {options}", size)
    device.check(device.input(batch), plain=plain)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("activation", ["linear", "leaky", "logistic", "mish", "swish", "normalize_channels_softmax"])
def test_each_profile_has_the_bits_of_its_own(library: Library, profile: str, activation: str) -> None:
    for normalized in ("", " batch_normalize=1"):
        options = f"filters=9 size=1 stride=2 activation={activation}{normalized}"
        device = OnDevice(library, f"convolutional {options}", (6, 5, 4), profile)
        device.check(device.input(2))


@pytest.mark.parametrize(("side", "size"), [(64, (48, 91)), (128, (92, 92))])
def test_large_tiles_have_the_same_sums(library: Library, side: int, size: tuple[int, int]) -> None:
    """As soon as there are as many as keep a device busy: 128 blocks of two tiles of filters and 64 of pixels."""
    device = OnDevice(library, f"convolutional filters={side + side // 2} size=3", (*size, 2))
    device.check(device.input(1))


@pytest.mark.parametrize("plain", [0, 1], ids=["tiled", "plain"])
@pytest.mark.parametrize("pad", [0, 1])
def test_values_that_are_no_numbers_go_where_they_go_on_the_cpu(library: Library, plain: int, pad: int) -> None:
    device = OnDevice(library, f"convolutional filters=9 size=3 pad={pad}", (7, 9, 5))
    x = device.input(2)
    x[0, 1, 3, 3], x[1, 0, 0, 0], x[0, 4, 6, 8], x[1, 2, 5, 5] = np.nan, np.inf, -np.inf, -0.0
    x[1, 3] = np.float32(1e-42)  # denormal
    device.weights[7], device.weights[100], device.weights[50] = np.inf, np.nan, -0.0  # times the padding's 0, too
    got = device.on_device(x, plain=plain)
    assert_same_bits(got, device.on_cpu(x), "output")
    assert np.isnan(got).any()
    assert np.isfinite(got).any()


CONNECTED = {
    "one": ("output=1", (1, 1, 1), 1),
    "narrow": ("output=5 activation=leaky", (2, 3, 4), 3),
    "wide": ("output=40 activation=relu", (3, 3, 5), 2),
    "a batch beyond a tile": ("output=33 activation=logistic", (1, 1, 37), 35),
    "batchnorm": ("output=9 activation=leaky batch_normalize=1", (2, 2, 3), 4),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", CONNECTED)
def test_connected_layers_have_the_sums_of_the_cpu(library: Library, name: str, profile: str) -> None:
    options, size, batch = CONNECTED[name]
    device = OnDevice(library, f"connected {options}", size, profile)
    device.check(device.input(batch))


@pytest.mark.parametrize(
    "section",
    [
        "local filters=3 size=3 stride=2 pad=1 activation=leaky",
        "local filters=2 size=2 activation=logistic",
        "local filters=4 size=1 stride=3 activation=linear",
        "deconvolutional filters=3 size=4 stride=2 pad=1 activation=leaky",
        "deconvolutional filters=2 size=2 stride=3 activation=linear",
        "deconvolutional filters=5 size=3 stride=1 padding=1 batch_normalize=1 activation=logistic",
    ],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_local_and_transposed_convolutions_have_the_sums_of_the_cpu(library: Library, section: str, profile: str) -> None:
    device = OnDevice(library, section, (5, 7, 3), profile)
    x = device.input(2)
    x[0, 1, 2, 3] = np.inf
    device.check(x)


# --- cuBLAS ------------------------------------------------------------------------------------------------------------------


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
    small = open_blas(library, 0, [str(emulated_blas())], matrix)
    device = OnDevice(library, "convolutional filters=8 size=3 pad=1", (6, 8, 3))
    x = device.input(3)
    assert device.scratch(device.arrays(x, blas=small)[0]) == floats
    assert_near(device.on_device(x, blas=small), device.on_cpu(x))


def test_groups_share_a_part_of_the_matrix(library: Library) -> None:
    small = open_blas(library, 0, [str(emulated_blas())], 2 * 27 * 20)
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


def test_cublas_works_on_the_callers_stream_and_its_handle_is_given_back(library: Library) -> None:
    emulated = ctypes.CDLL(str(emulated_blas()))
    emulated.emulated_stream.restype = ctypes.c_void_p
    users = emulated.emulated_users()
    opened = open_blas(library, 0, [str(emulated_blas())])
    assert emulated.emulated_users() == users + 1
    device = OnDevice(library, "connected output=8", (1, 1, 3))
    device.on_device(device.input(1), blas=opened, stream=library.ffi.cast("void *", 4096))
    assert emulated.emulated_stream() == 4096
    library.ffi.release(opened)
    assert emulated.emulated_users() == users


def test_a_missing_cublas_is_told_with_the_package_that_has_it(library: Library, tmp_path: Any) -> None:
    with pytest.raises(DeviceError, match=r"math='fast' needs cuBLAS, and none could be opened; .*pip install nvidia-cublas"):
        open_blas(library, 0, [str(tmp_path / "libcublas.so.13")])


def test_a_file_that_is_no_cublas_is_told(library: Library) -> None:
    with pytest.raises(DeviceError, match="is no cuBLAS of a version from 11 on"):
        open_blas(library, 0, [str(library.path)])


# --- refusals ----------------------------------------------------------------------------------------------------------------


def test_signs_are_not_computed_on_a_device(library: Library) -> None:
    device = OnDevice(library, "convolutional filters=8 size=3 xnor=1", (5, 5, 3))
    with pytest.raises(DeviceError, match=r"signs \(xnor=1\) is not computed on a device"):
        device.on_device(device.input(1))


@pytest.mark.parametrize("missing", ["input", "output", "weights", "biases"])
def test_arrays_that_are_not_there_are_told(library: Library, missing: str) -> None:
    for section in ("convolutional filters=8 size=1", "connected output=3", "local filters=2", "deconvolutional filters=2"):
        device = OnDevice(library, section, (5, 5, 3))
        with pytest.raises(DeviceError, match="needs its input, output and parameters on the device"):
            device.on_device(device.input(1), **{missing: library.ffi.NULL})


def test_a_batch_beyond_32_bits_is_told(library: Library) -> None:
    device = OnDevice(library, "convolutional filters=8 size=1", (5, 5, 3))
    with pytest.raises(DeviceError, match=r"3 x 5 x 5 in a batch of 85899346 is too large for a device; give a smaller batch"):
        device.on_device(device.input(1), batch=(1 << 31) // 25 + 1)
