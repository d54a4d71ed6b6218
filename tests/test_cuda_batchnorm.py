"""Batch normalization of the CUDA library, whose kernels run here on the CPU (see `emulating.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
import pydarknetbn as dn
from emulating import emulated_library, on_real_device
from pydarknetbn.cuda import BatchNorm, DeviceArray
from pydarknetbn.cuda.library import Library
from pydarknetbn.dialect import profile_named

DEVICE_PROFILES = ("pjreddie-cuda", "alexeyab-cuda", "hank-ai-cuda")
# Planes below, at and above the 512 threads of a block, one value for each channel and image, one channel.
SHAPES = [(3, 5, 7, 9), (2, 3, 16, 32), (2, 3, 30, 30), (4, 2, 1, 1), (5, 1, 3, 1), (6, 4)]
# Channels that several blocks share, in packs and value by value
SEVERAL_BLOCKS = [(40, 2, 32, 32), (30, 2, 13, 13)]
NAMES = ("scales", "biases", "rolling_mean", "rolling_variance", "mean", "variance", "scale_updates", "bias_updates")


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


def numbers(shape: tuple[int, ...], seed: int = 0, mean: float = 1, deviation: float = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, deviation, shape).astype(np.float32)


def both(library: Library, channels: int, profile: str, **options: Any) -> tuple[dn.BatchNorm, BatchNorm]:
    """The layer of the CPU and that of the device, with equal parameters."""
    ours, theirs = dn.BatchNorm(channels, profile=profile), BatchNorm(channels, profile=profile, library=library, **options)
    ours.scales, ours.biases = numbers((channels,), 1), numbers((channels,), 2)
    theirs.push(**{name: getattr(ours, name).copy() for name in NAMES[:4]})
    return ours, theirs


def assert_same_bits(ours: dn.BatchNorm, theirs: BatchNorm) -> None:
    got = theirs.pull()
    for name in NAMES:
        np.testing.assert_array_equal(got[name], getattr(ours, name), err_msg=name)


# --- strict -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", DEVICE_PROFILES)
@pytest.mark.parametrize("shape", SHAPES)
def test_strict_kernels_have_the_bits_of_the_same_profile_on_the_cpu(
    library: Library, profile: str, shape: tuple[int, ...]
) -> None:
    ours, theirs = both(library, shape[1], profile, kernels="strict")
    x, delta = numbers(shape, 3), numbers(shape, 4)
    on_device, delta_on_device = DeviceArray.from_numpy(library, x), DeviceArray.from_numpy(library, delta)
    for _ in range(2):  # gradients and rolling arrays are added to what there is
        np.testing.assert_array_equal(theirs.forward(on_device, train=True).numpy(), ours.forward(x, train=True))
        np.testing.assert_array_equal(theirs.backward(delta_on_device).numpy(), ours.backward(delta))
        assert_same_bits(ours, theirs)
    ours.update(learning_rate=0.1, momentum=0.9, decay=0, batch=4)
    theirs.update(learning_rate=0.1, momentum=0.9, batch=4)
    assert_same_bits(ours, theirs)
    np.testing.assert_array_equal(theirs.forward(on_device, train=False).numpy(), ours.forward(x, train=False))


def test_strict_kernels_keep_values_that_are_no_numbers_in_their_channel(library: Library) -> None:
    ours, theirs = both(library, 3, "alexeyab-cuda", kernels="strict")
    x = numbers((2, 3, 5, 5))
    x[0, 1, 2, 2], x[1, 2, 0, 0] = np.nan, np.inf
    got = theirs.forward(DeviceArray.from_numpy(library, x), train=True).numpy()
    np.testing.assert_array_equal(got, ours.forward(x, train=True))
    assert np.isfinite(got[:, 0]).all()


@pytest.mark.parametrize(("profile", "dtype"), [("torch", "float32"), ("pjreddie-cpu", "float32"), ("pjreddie-cuda", "float16")])
def test_strict_kernels_compute_the_forks_gpu_in_float32_alone(library: Library, profile: str, dtype: str) -> None:
    with pytest.raises(dn.DeviceError, match="strict kernels compute in float32"):
        BatchNorm(3, profile=profile, kernels="strict", dtype=dtype, library=library)


# --- fast ---------------------------------------------------------------------------------------------------------------


def assert_near(got: np.ndarray, expected: np.ndarray, name: str, *, terms: int = 1) -> None:
    """Up to the rounding of float32; a sum whose terms cancel has that of its terms, which grows with the root of their number."""
    size = max(np.abs(expected).max(), np.sqrt(terms))
    np.testing.assert_allclose(got, expected.reshape(got.shape), rtol=0, atol=3e-6 * size, err_msg=name)


@pytest.mark.parametrize("profile", ["torch", "cudnn", "textbook", "pjreddie-cuda", "alexeyab-cpu", "pjreddie-cpu", "keras"])
@pytest.mark.parametrize("shape", [*SHAPES[:-3], (64, 2, 8, 8), (2, 70, 4, 4), (6, 4), *SEVERAL_BLOCKS])
def test_fast_kernels_are_the_profiles_formulas_within_rounding(library: Library, profile: str, shape: tuple[int, ...]) -> None:
    layer, rule, c = BatchNorm(shape[1], profile=profile, library=library), profile_named(profile).rule("batchnorm"), shape[1]
    given = oracle.Parameters(*(oracle.doubles(numbers((c,), seed)) for seed in (1, 2, 3)), oracle.doubles(numbers((c,), 4)) ** 2)
    layer.push(**{name: getattr(given, name).astype(np.float32) for name in NAMES[:4]})
    x, delta = numbers(shape, 5), numbers(shape, 6, mean=0)
    after = oracle.forward(rule, x.reshape(shape[0], c, -1), given, train=True)
    back = oracle.backward(rule, after, delta.reshape(shape[0], c, -1), train=True)
    assert_near(layer.forward(DeviceArray.from_numpy(library, x), train=True).numpy(), after.output, "output")
    assert_near(layer.backward(DeviceArray.from_numpy(library, delta)).numpy(), back.delta, "delta")
    pulled = layer.pull()
    for name in ("mean", "variance"):
        assert_near(pulled[name], getattr(after, name), name)
    for name in ("rolling_mean", "rolling_variance"):
        assert_near(pulled[name], getattr(after.parameters, name), name)
    for name in ("mean_delta", "variance_delta", "scale_updates", "bias_updates"):
        assert_near(pulled[name], getattr(back, name), name, terms=x.size // c)


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_half_types_round_what_goes_in_and_out_and_no_statistics(library: Library, dtype: str, unit: float) -> None:
    half = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.float16
    x, delta = numbers((2, 3, 16, 32), 3).astype(half), numbers((2, 3, 16, 32), 4).astype(half)
    ours, theirs = both(library, 3, "torch", dtype=dtype)
    expected = ours.forward(x.astype(np.float32), train=True)
    got = theirs.forward(DeviceArray.from_numpy(library, x), train=True).numpy()
    assert got.dtype == half
    np.testing.assert_allclose(got.astype(np.float32), expected, rtol=1.01 * unit, atol=1e-5)
    expected = ours.backward(delta.astype(np.float32))
    np.testing.assert_allclose(
        theirs.backward(DeviceArray.from_numpy(library, delta)).numpy().astype(np.float32), expected, rtol=1.01 * unit, atol=1e-5
    )
    np.testing.assert_allclose(theirs.pull()["variance"], ours.variance, rtol=1e-6)


def test_a_large_mean_does_not_cancel_a_small_variance(library: Library) -> None:
    x = numbers((4, 2, 32, 32), mean=10_000, deviation=0.1)
    theirs = BatchNorm(2, profile="torch", library=library)
    theirs.forward(DeviceArray.from_numpy(library, x), train=True)
    expected = x.astype(np.float64).var(axis=(0, 2, 3))
    np.testing.assert_allclose(theirs.pull()["variance"], expected, rtol=1e-2)


# --- both ---------------------------------------------------------------------------------------------------------------


def test_statistics_that_are_not_tracked_stay(library: Library) -> None:
    layer = BatchNorm(2, profile="torch", library=library)
    layer.track_statistics = False
    layer.forward(DeviceArray.from_numpy(library, numbers((3, 2, 4, 4))), train=True)
    assert not layer.pull()["rolling_mean"].any()


def test_inference_may_be_in_place_and_training_may_not(library: Library) -> None:
    layer, x = BatchNorm(2, profile="torch", library=library), DeviceArray.from_numpy(library, numbers((3, 2, 4, 4)))
    with pytest.raises(dn.ShapeError, match="cannot overwrite x"):
        layer.forward(x, train=True, out=x)
    assert layer.forward(x, train=False, out=x) is x


def test_a_backward_needs_its_forward(library: Library) -> None:
    layer, x = BatchNorm(2, profile="torch", library=library), DeviceArray.from_numpy(library, numbers((3, 2, 4, 4)))
    with pytest.raises(dn.StateError, match="needs a training forward"):
        layer.backward(x)
    layer.forward(x, train=True)
    layer.forward(x, train=False)
    with pytest.raises(dn.StateError, match="needs a training forward"):
        layer.backward(x)


@pytest.mark.parametrize(
    ("array", "error", "said"),
    [
        (numbers((3, 2, 4, 4)), dn.DeviceError, "on a CUDA device, got one on the host"),
        ([1.0], dn.DeviceError, "array on a CUDA device, got list"),
    ],
    ids=["host", "list"],
)
def test_what_is_not_on_a_device_is_refused(library: Library, array: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        BatchNorm(2, profile="torch", library=library).forward(array, train=True)


@pytest.mark.parametrize("shape", [(3, 3, 4, 4), (2,), (3, 2, 0, 4)])
def test_another_shape_is_refused(library: Library, shape: tuple[int, ...]) -> None:
    with pytest.raises(dn.ShapeError, match="expected x of shape"):
        BatchNorm(2, profile="torch", library=library).forward(DeviceArray(library, shape), train=True)


def test_another_dtype_is_refused(library: Library) -> None:
    with pytest.raises(dn.DtypeError, match="expected x of float32, got float16"):
        BatchNorm(2, profile="torch", library=library).forward(DeviceArray(library, (3, 2, 4), "float16"), train=True)


@pytest.mark.parametrize("profile", ["pjreddie-cuda", "torch"])  # that normalizes by it, and that keeps it
def test_one_value_has_no_variance_over_n_minus_1(library: Library, profile: str) -> None:
    layer = BatchNorm(2, profile=profile, library=library)
    with pytest.raises(dn.DeviceError, match="one value in each channel"):
        layer.forward(DeviceArray.from_numpy(library, numbers((1, 2))), train=True)
    assert not layer.pull()["rolling_mean"].any()


@pytest.mark.skipif(on_real_device(), reason="the emulated device has less than 4 GiB")
def test_memory_that_a_device_does_not_have_is_told(library: Library) -> None:
    with pytest.raises(dn.DeviceError, match="no memory for an array of 8589934592 bytes"):
        DeviceArray(library, (1 << 31,))


def test_a_device_that_there_is_not_is_told(library: Library) -> None:
    with pytest.raises(dn.DeviceError, match="choosing the device"):
        BatchNorm(2, profile="torch", device=99, library=library)


def test_an_installation_without_the_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from pydarknetbn import _native
    from pydarknetbn.cuda import library as module

    monkeypatch.setattr(_native, "core_file", lambda: tmp_path / "_core.so")
    module.open_library.cache_clear()
    with pytest.raises(dn.DeviceError, match=r"built without; .*PYDARKNETBN_CUDA=ON"):
        dn.cuda.devices()
