"""Convolutions of the CUDA library, whose kernels run here on the CPU (see `emulating.py`), against the same layers of the core."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from emulating import emulated_library
from on_device import CONNECTED, CONVOLUTIONS, OnDevice
from pydarknetbn.cuda.library import Library
from pydarknetbn.errors import DeviceError

PROFILES = [profile.name for profile in dn.profiles()]


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


# --- every output has the sum of the CPU -------------------------------------------------------------------------------------


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
