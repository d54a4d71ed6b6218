"""Batch normalization of float16 and bfloat16: what the sums' type costs, and where a sum leaves its range."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import oracle
import pydarknetbn as dn
from core import assert_same_bits
from pydarknetbn.bn import backward_half, forward_half

PROFILES = [profile.name for profile in dn.profiles()]
SUMS = ["float32", "float64", "half"]


@pytest.fixture(params=["float16", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> Any:
    if request.param == "float16":
        return np.float16
    return pytest.importorskip("ml_dtypes", reason="ml_dtypes, of the extra half, is not installed").bfloat16


def bfloat16() -> Any:
    return pytest.importorskip("ml_dtypes", reason="ml_dtypes, of the extra half, is not installed").bfloat16


def column(values: Any, dtype: Any = np.float16) -> Any:
    """One channel."""
    return np.array(values, np.float32).reshape(-1, 1).astype(dtype)


def drawn(dtype: Any, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(3, 2, shape).astype(dtype)


# --- sums in the half type ----------------------------------------------------------------------------------------------


def test_float16_sum_of_4096_ones_stays_at_2048():
    """2048 + 1 lies midway between 2048 and 2050, and is rounded to the even one."""
    _, record = forward_half(column([1] * 4096), profile="torch", statistics="half")
    assert record.values["mean"] == [0.5]
    assert record.errors["mean"].absolute == [0.5]
    assert record.errors["mean"].relative == [0.5]
    assert record.faults == ()


def test_bfloat16_sum_of_4096_ones_stays_at_256():
    _, record = forward_half(column([1] * 4096, bfloat16()), profile="torch", statistics="half")
    assert record.values["mean"] == [0.0625]  # 256 / 4096


def test_half_sum_of_4096_squares_of_1_stays_there_too():
    for dtype, stays in ((np.float16, 2048), (bfloat16(), 256)):
        x = column([1, -1] * 2048, dtype)
        _, record = forward_half(x, profile="torch", statistics="half")
        assert record.values["mean"] == [0]
        assert record.values["variance"] == [stays / 4096]
        _, record = forward_half(x, profile="torch")
        assert record.values["variance"] == [1]


def test_half_sum_of_4096_deltas_stays_there_too():
    for dtype, stays in ((np.float16, 2048), (bfloat16(), 256)):
        x, delta = column([1, -1] * 2048, dtype), column([1] * 4096, dtype)
        assert backward_half(delta, x, profile="textbook", statistics="half")[1].values["bias_updates"] == [stays]
        for statistics in ("float32", "float64"):
            _, record = backward_half(delta, x, profile="textbook", statistics=statistics)
            assert record.values["bias_updates"] == [4096]
            assert record.values["scale_updates"] == [0]


@pytest.mark.parametrize("statistics", ["float32", "float64"])
def test_wide_sums_of_4096_ones_are_exact(dtype, statistics):
    output, record = forward_half(column([1] * 4096, dtype), profile="torch", statistics=statistics)
    assert record.values["mean"] == [1]
    assert record.values["variance"] == [0]
    assert not output.astype(np.float32).any()
    assert all(not (errors.absolute.any() or errors.relative.any()) for errors in record.errors.values())


def test_order_of_a_half_sum_is_batch_then_pixel():
    """1, then 2048, then 1: 1 + 2048 is 2048, and so is that + 1. Pixel, then batch, would be 1 + 1 + 2048 = 2050."""
    x = np.array([[[1, 2048]], [[1, -2050]]], np.float16)  # (2, 1, 2)
    assert forward_half(x, profile="torch", statistics="half")[1].values["mean"] == [-0.5]  # 2048 - 2050 = -2
    turned = np.ascontiguousarray(x.transpose(2, 1, 0))
    assert forward_half(turned, profile="torch", statistics="half")[1].values["mean"] == [0]


def test_differences_squares_and_factors_are_half_too():
    """Of 0, 3 and 0: the float16 next to 1/3 is 0.33325195, and 3 times that, 0.99975586, lies midway to 1, which is even.

    The squares are 1, 4 and 1; 6 times a third is 1.9995117, midway to 2, which is even.
    """
    for profile, variance in (("torch", 2), ("pjreddie-cpu", 3)):
        _, record = forward_half(column([0, 3, 0]), profile=profile, statistics="half")
        assert record.values["mean"] == [1]
        assert record.values["variance"] == [variance]
        assert record.errors["variance"].absolute == [0]


def test_half_mean_of_eleven_ones_is_not_1():
    """1/11 is 0.09088135 in float16, 11 times that 0.99969482, and the float16 next to it 0.99951172."""
    _, record = forward_half(column([1] * 11), profile="torch", statistics="half")
    assert record.values["mean"] == [0.99951171875]
    assert record.errors["mean"].absolute == [2**-11]


def test_a_small_square_is_lost_in_float16():
    """2^-13 squared is 2^-26, less than half the smallest float16, 2^-24."""
    values = [2**-13, -(2**-13)] * 8
    _, half = forward_half(column(values), profile="torch", statistics="half")
    _, wide = forward_half(column(values), profile="torch")
    assert half.values["variance"] == [0]
    assert wide.values["variance"] == [2**-26]


# --- overflow -----------------------------------------------------------------------------------------------------------


def test_overflow_of_a_float16_sum_is_named_with_channel_and_place():
    """2,047 values of 32 are 65504, the largest float16; the next one passes it."""
    x = np.zeros((64, 3, 8, 8), np.float16)
    x[:, 1] = -32
    output, record = forward_half(x, profile="pjreddie-cpu", statistics="half")
    assert record.faults == ("channel 1: the sum passes -65504 of float16 after 2,048 of 4,096 values",)
    assert str(record).splitlines()[1:] == list(record.faults)
    assert np.isinf(record.errors["mean"].absolute[1])
    assert record.errors["mean"].absolute[[0, 2]].tolist() == [0, 0]
    assert not output[:, [0, 2]].any()
    told = record.to_json()
    assert told["values"]["mean"] == [0.0, None, 0.0]
    assert told["errors"]["mean"]["absolute"] == [0.0, None, 0.0]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_overflow_of_a_float16_sum_of_squares_is_named():
    """255 squares of 16 are 65280, 256 are 65536."""
    x = np.zeros((512, 2), np.float16)
    x[:, 1] = [16, -16] * 256
    _, record = forward_half(x, profile="torch", statistics="half")
    assert record.faults == ("channel 1: the sum of squares passes 65504 of float16 after 256 of 512 values",)
    assert record.values["mean"].tolist() == [0, 0]
    _, wide = forward_half(x, profile="torch")
    assert wide.faults == ()
    assert wide.values["variance"].tolist() == [0, 256]


def test_bfloat16_passes_the_range_of_float32_and_that_is_named():
    """(2^64)^2 is 2^128, more than any float32; in double it is not."""
    x = column([2.0**64, -(2.0**64)], bfloat16())
    _, record = forward_half(x, profile="torch", statistics="float32")
    assert record.faults == ("channel 0: the sum of squares passes 3.40282e+38 of float32 after 1 of 2 values",)
    _, record = forward_half(x, profile="torch", statistics="half")
    assert record.faults == ("channel 0: the sum of squares passes 3.38953e+38 of bfloat16 after 1 of 2 values",)


def test_an_output_beyond_the_type_is_named():
    """Scaled by 1e5, (0, 2) become -1e5 and 1e5."""
    x = np.array([[5, 0], [5, 2]], np.float16)
    scales = np.array([1, 1e5], np.float32)
    output, record = forward_half(x, profile="torch", scales=scales)
    assert output.tolist() == [[0, -np.inf], [0, np.inf]]
    assert record.faults == ("channel 1: 2 of 2 values of the output pass 65504 of float16, first value 1, -99999.5",)


def test_values_that_are_no_finite_numbers_are_named_and_stay_in_their_channel():
    x = drawn(np.float16, 4, 4, 3, 3)
    clean = {sums: forward_half(x, profile="torch", statistics=sums)[0] for sums in SUMS}
    x[1, 2, 0, 1], x[3, 3, 2, 2] = np.nan, -np.inf
    for sums, want in clean.items():
        output, record = forward_half(x, profile="torch", statistics=sums)
        assert record.faults == (
            "channel 2: 1 of 36 values of x are infinite or no numbers, first value 11, nan",
            "channel 3: 1 of 36 values of x are infinite or no numbers, first value 36, -inf",
        )
        assert output[:, :2].tobytes() == want[:, :2].tobytes()
        assert np.isnan(output[:, 2]).all()


def test_a_rolling_variance_beyond_float16_is_named_where_it_is_held_in_it():
    rolling = np.array([0], np.float32), np.array([1e6], np.float32)
    output, record = forward_half(column([1000]), profile="textbook", rolling=rolling, statistics="half")
    assert record.faults == ("channel 0: 1 of 1 values of the rolling variance pass 65504 of float16, first value 1, 1e+06",)
    assert output.item() == 0
    output, record = forward_half(column([1000]), profile="textbook", rolling=rolling)
    assert (output.item(), record.faults) == (1, ())


# --- against the exact layer and float64 --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 5), (4, 5, 7), (4, 5, 3, 3), (2, 5, 2, 3, 2)])
@pytest.mark.parametrize("profile", PROFILES)
def test_float32_statistics_are_the_exact_layer_of_the_widened_array(profile, shape, dtype):
    x, delta = drawn(dtype, *shape), drawn(dtype, *shape, seed=1)
    scales, biases = np.arange(1, 6, dtype=np.float32), np.arange(5, dtype=np.float32)
    layer = dn.BatchNorm(5, profile=profile)
    layer.scales, layer.biases = scales, biases
    wide = x.astype(np.float32).reshape(shape[0], 5, -1, 1)
    output, record = forward_half(x, profile=profile, scales=scales, biases=biases)
    want = layer.forward(wide, train=True)
    assert output.shape == shape
    assert output.tobytes() == want.astype(dtype).tobytes()
    assert_same_bits(record.values["mean"].astype(np.float32), layer.mean, "mean")
    assert_same_bits(record.values["variance"].astype(np.float32), layer.variance, "variance")
    back, record = backward_half(delta, x, profile=profile, scales=scales)
    want = layer.backward(delta.astype(np.float32).reshape(wide.shape))
    assert back.shape == shape
    assert back.tobytes() == want.astype(dtype).tobytes()
    assert_same_bits(record.values["scale_updates"].astype(np.float32), layer.scale_updates, "scale_updates")
    assert_same_bits(record.values["bias_updates"].astype(np.float32), layer.bias_updates, "bias_updates")


@pytest.mark.parametrize("statistics", SUMS)
@pytest.mark.parametrize("profile", PROFILES)
def test_errors_are_the_distances_from_the_definition_in_float64(profile, statistics, dtype):
    x, delta = drawn(dtype, 16, 3, 4, 4), drawn(dtype, 16, 3, 4, 4, seed=1)
    rule = next(each for each in dn.profiles() if each.name == profile).rule("batchnorm")
    scales, biases = np.array([1, 2, 3], np.float32), np.array([0, 1, -1], np.float32)
    output, record = forward_half(x, profile=profile, scales=scales, biases=biases, statistics=statistics)
    wide = [np.asarray(each, np.float64).reshape(16, 3, 16) for each in (x, delta)]
    parameters = oracle.Parameters(*(np.asarray(each, np.float64) for each in (scales, biases, np.zeros(3), np.ones(3))))
    want = oracle.forward(rule, wide[0], parameters, train=True)
    for name, got, definition in [
        ("mean", record.values["mean"], want.mean),
        ("variance", record.values["variance"], want.variance),
        ("output", output.astype(np.float64).reshape(16, 3, 16), want.output),
    ]:
        assert_errors(record.errors[name], got, definition)
    back, record = backward_half(delta, x, profile=profile, scales=scales, statistics=statistics)
    want = oracle.backward(rule, want, wide[1], train=True)
    for name, got, definition in [
        ("scale_updates", record.values["scale_updates"], want.scale_updates),
        ("bias_updates", record.values["bias_updates"], want.bias_updates),
        ("delta", back.astype(np.float64).reshape(16, 3, 16), want.delta),
    ]:
        assert_errors(record.errors[name], got, definition)


def assert_errors(errors: Any, got: Any, want: Any) -> None:
    """The two definitions in float64 differ by some 1e-15 of a value: sums of 256 in another order."""
    got, want = (each.reshape(1, 3, 1) if each.ndim == 1 else each for each in (got, want))
    size = np.abs(want).max(axis=(0, 2))
    apart = np.abs(got - want).max(axis=(0, 2))
    assert np.all(np.abs(errors.absolute - apart) <= 1e-12 * (size + 1))
    assert np.all(np.abs(errors.relative * size - apart) <= 1e-12 * (size + 1))


def test_float32_and_float64_sums_leave_the_rounding_of_the_output_alone(dtype):
    """Half a unit of the type is 2^-11 of a value, in bfloat16 2^-8."""
    half_unit = 2.0**-11 if dtype is np.float16 else 2.0**-8
    x = drawn(dtype, 16, 3, 32, 32)
    for statistics in ("float32", "float64"):
        errors = forward_half(x, profile="torch", statistics=statistics)[1].errors
        assert errors["output"].relative.max() <= half_unit
        assert errors["variance"].relative.max() < 1e-5
    assert forward_half(x, profile="torch", statistics="half")[1].errors["output"].relative.max() > 10 * half_unit


@pytest.mark.parametrize("profile", PROFILES)
def test_rolling_arrays_normalize_as_in_inference(profile, dtype):
    x = drawn(dtype, 4, 2, 3, 3)
    layer = dn.BatchNorm(2, profile=profile)
    layer.rolling_mean, layer.rolling_variance = np.array([1, 3], np.float32), np.array([0.25, 4], np.float32)
    output, record = forward_half(x, profile=profile, rolling=(layer.rolling_mean, layer.rolling_variance))
    assert output.tobytes() == layer.forward(x.astype(np.float32), train=False).astype(dtype).tobytes()
    assert record.values["variance"].tolist() == [0.25, 4]


# --- refusals -----------------------------------------------------------------------------------------------------------


def test_the_layer_refuses_half_precision_and_says_what_takes_it(dtype):
    layer = dn.BatchNorm(1)
    with pytest.raises(dn.DtypeError, match=r"expected x of float32, got b?float16; bn.forward_half and bn.backward_half take it"):
        layer.forward(column([1, 2], dtype), train=True)


def test_wrong_arguments_are_told():
    x = column([1, 2])
    with pytest.raises(
        dn.DtypeError, match="expected x to be a NumPy array of float16 or bfloat16, got float32; BatchNorm takes float32"
    ):
        forward_half(x.astype(np.float32), profile="torch")
    with pytest.raises(dn.DtypeError, match="got list"):
        forward_half([[1.0]], profile="torch")
    with pytest.raises(dn.ShapeError, match=r"expected x of shape \(N, C\) with up to three axes more and none of 0, got \(2,\)"):
        forward_half(x[:, 0], profile="torch")
    with pytest.raises(dn.ShapeError, match=r"got \(0, 1\)"):
        forward_half(x[:0], profile="torch")
    with pytest.raises(dn.ShapeError, match=r"expected scales of shape \(1\), one value for each channel, got \(2,\)"):
        forward_half(x, profile="torch", scales=np.ones(2, np.float32))
    with pytest.raises(dn.ShapeError, match="expected rolling variance"):
        forward_half(x, profile="torch", rolling=(np.zeros(1, np.float32), np.ones(3, np.float32)))
    with pytest.raises(ValueError, match="expected statistics of float32, float64 or half, got 'double'"):
        forward_half(x, profile="torch", statistics="double")
    with pytest.raises(ValueError, match="expected a profile"):
        forward_half(x, profile="mxnet")
    with pytest.raises(dn.ShapeError, match=r"expected delta of x's shape \(2, 1\) and type float16, got \(1, 1\) and float16"):
        backward_half(x[:1], x, profile="torch")


@pytest.mark.parametrize("statistics", SUMS)
def test_one_value_has_no_variance_over_n_minus_1(statistics):
    with pytest.raises(dn.NumericsError, match="1 values in each channel have no variance over n-1 = 0; give a larger batch"):
        forward_half(column([1]), profile="pjreddie-cpu", statistics=statistics)
    assert forward_half(column([1]), profile="textbook", statistics=statistics)[0].item() == 0
