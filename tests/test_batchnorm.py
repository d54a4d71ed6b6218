"""The public layer: shapes, the oracle under every profile, and values from public reports and worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
from core import assert_same_bits
from pydarknetbn import BatchNorm
from pydarknetbn._native import Array
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import NumericsError

ALL = list(PROFILES)
N_MINUS_1 = [name for name in ALL if PROFILES[name].rule("batchnorm").normalize_variance == "n-1"]
SHAPES = [(5, 3), (2, 1), (64, 5), (2, 3, 1, 1), (1, 8, 19, 19), (3, 7, 5, 9), (2, 1, 1, 17), (1, 2, 1, 2), (4, 300, 3, 3)]
# one float32 operation: what a printed literal, a float32 variance and a float32 result may differ by
ROUNDED = {"rel": 3e-7}


def column(*values: float) -> Array:
    """A batch of one channel."""
    return np.array(values, np.float32).reshape(-1, 1)


def randomised(channels: int, profile: str, seed: int, **options: bool) -> BatchNorm:
    rng = np.random.default_rng(seed)
    bn = BatchNorm(channels, profile=profile, **options)
    bn.scales[...] = rng.uniform(0.5, 2, channels)
    bn.biases[...] = rng.uniform(-1, 1, channels)
    bn.rolling_mean[...] = rng.uniform(-1, 1, channels)
    bn.rolling_variance[...] = rng.uniform(0.5, 2, channels)
    return bn


def parameters(bn: BatchNorm) -> oracle.Parameters:
    return oracle.Parameters(
        *(oracle.doubles(getattr(bn, name)) for name in ("scales", "biases", "rolling_mean", "rolling_variance"))
    )


def flat(x: Any) -> oracle.Doubles:
    return oracle.doubles(x).reshape(x.shape[0], x.shape[1], -1)


def assert_close(got: Array, want: oracle.Doubles, limit: float, name: str) -> None:
    off = np.abs(oracle.doubles(got).reshape(want.shape) - want).max()
    assert off <= limit, f"{name}: off by {off}, limit {limit}"


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_batches_then_inference_then_backward_agree_with_the_oracle(shape: tuple[int, ...], profile: str, threads: int) -> None:
    """Bound: means of n terms below 8 are off by at most n + 16 roundings of 2^-24; roots below 1 enlarge it up to their cube.

    Sums are n times as large as means.
    """
    rng = np.random.default_rng(len(shape) * 100 + shape[0])
    rule = PROFILES[profile].rule("batchnorm")
    bn = randomised(shape[1], profile, 4)
    start = parameters(bn)
    n = int(np.prod(shape)) // shape[1]
    for _ in range(2):
        x = rng.uniform(-2, 2, shape).astype(np.float32)
        want = oracle.forward(rule, flat(x), start, train=True)
        start = want.parameters
        smallest = min(1.0, float(oracle.root(want.variance, rule.forward).min()))
        limit = (n + 16) * 2.0**-24 * 8 / smallest**3
        output = bn.forward(x, train=True)
        assert output.shape == bn.output.shape == shape
        assert_close(output, want.output, limit, "output")
        for name in ("mean", "variance", "x_norm"):
            assert_close(getattr(bn, name), getattr(want, name), limit, name)
        for name in ("rolling_mean", "rolling_variance"):
            assert_close(getattr(bn, name), getattr(want.parameters, name), limit, name)
    delta = rng.uniform(-1, 1, shape).astype(np.float32)
    back = oracle.backward(rule, want, flat(delta), train=True)
    assert_close(bn.backward(delta), back.delta, limit, "delta")
    for name in ("scale_updates", "bias_updates", "mean_delta", "variance_delta"):
        assert_close(getattr(bn, name), getattr(back, name), n * limit, name)
    inferred = oracle.forward(rule, flat(x), start, train=False)
    assert_close(bn.forward(x, train=False), inferred.output, limit, "inference")


@pytest.mark.parametrize("profile", ALL)
def test_two_axes_equal_four(profile: str) -> None:
    x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    two, four = randomised(4, profile, 2), randomised(4, profile, 2)
    assert_same_bits(two.forward(x, train=True), four.forward(x.reshape(6, 4, 1, 1), train=True), "forward")
    assert_same_bits(two.backward(x), four.backward(x.reshape(6, 4, 1, 1)), "backward")


@pytest.mark.parametrize("profile", ALL)
def test_a_constant_channel_gives_its_bias(profile: str) -> None:
    bn = randomised(2, profile, 3)
    x = np.full((4, 2, 2, 2), 0.5, np.float32)
    x[:, 1] = -3
    output = bn.forward(x, train=True)
    assert bn.mean.tolist() == [0.5, -3]
    assert bn.variance.tolist() == [0, 0]
    for f in range(2):
        assert np.all(output[:, f] == bn.biases[f])


@pytest.mark.parametrize("profile", ALL)
def test_batches_may_grow_and_shrink(profile: str) -> None:
    rng = np.random.default_rng(5)
    bn = randomised(3, profile, 6)
    for shape in ((4, 3, 2, 2), (9, 3, 5, 5), (2, 3, 1, 2), (9, 3, 5, 5), (2, 3), (30, 3)):
        x, delta = rng.normal(size=(2, *shape)).astype(np.float32)
        fresh = bn.snapshot()
        assert_same_bits(bn.forward(x, train=True), fresh.forward(x, train=True), f"forward {shape}")
        assert_same_bits(bn.backward(delta), fresh.backward(delta), f"backward {shape}")
        assert bn.x.shape == bn.x_norm.shape == bn.output.shape == bn.delta.shape == shape


def test_a_layer_of_4x4_may_become_8x8() -> None:
    """A [batchnorm] of its own writes through null buffers in the forks."""
    bn = BatchNorm(2)
    for size in (4, 8):
        x = np.random.default_rng(size).normal(size=(1, 2, size, size)).astype(np.float32)
        assert np.isfinite(bn.forward(x, train=True)).all()
        assert np.isfinite(bn.backward(x)).all()
        assert np.isfinite(bn.forward(x, train=False)).all()


# --- public reports: value and place of epsilon, factors, denominators ---------------------------------------------------


@pytest.mark.parametrize(
    ("variance", "outside", "inside"),
    [(1e-6, 999.000999, 301.511345), (0, 1e6, 316.227766), (1e-2, 9.9999, 9.995004), (1, 0.999999, 0.999995)],
)
def test_gain_of_a_small_variance(variance: float, outside: float, inside: float) -> None:
    for profile, want in (("pjreddie-cpu", outside), ("alexeyab-cpu", inside), ("textbook", inside)):
        bn = BatchNorm(1, profile=profile)
        bn.rolling_variance[...] = variance
        assert bn.forward(column(1), train=False)[0, 0] == pytest.approx(want, **ROUNDED)


@pytest.mark.parametrize(
    ("profile", "mean", "variance"),
    [("pjreddie-cpu", 0.025, 0.0166667), ("alexeyab-cpu", 0.25, 0.1666667), ("textbook", 0.025, 0.0125)],
)
def test_rolling_arrays_after_one_batch_of_1_2_3_4(profile: str, mean: float, variance: float) -> None:
    bn = BatchNorm(1, profile=profile)
    bn.forward(column(1, 2, 3, 4), train=True)
    assert bn.rolling_mean[0] == pytest.approx(mean, **ROUNDED)
    assert bn.rolling_variance[0] == pytest.approx(variance, rel=3e-6)  # the literal has six digits


@pytest.mark.parametrize(
    ("profile", "first", "second", "variance"),
    [
        ("alexeyab-cpu", -1.1618915, -0.3872972, 1.6666667),
        ("pjreddie-cpu", -1.1618941, -0.3872980, 1.6666667),
        ("textbook", -1.3416354, -0.4472118, 1.25),
    ],
)
def test_which_variance_normalises_1_2_3_4(profile: str, first: float, second: float, variance: float) -> None:
    bn = BatchNorm(1, profile=profile)
    got = bn.forward(column(1, 2, 3, 4), train=True).ravel()
    assert got.tolist() == pytest.approx([first, second, -second, -first], **ROUNDED)
    assert bn.variance[0] == pytest.approx(variance, **ROUNDED)


def test_fresh_rolling_arrays_are_0_and_multiply_by_the_inverse_root() -> None:
    for profile, gain in (("pjreddie-cpu", 1e6), ("alexeyab-cpu", 316.227766)):
        bn = BatchNorm(3, profile=profile)
        assert not bn.rolling_mean.any()
        assert not bn.rolling_variance.any()
        got = bn.forward(np.array([[1, -2, 0.5]], np.float32), train=False)
        assert got.ravel().tolist() == pytest.approx([gain, -2 * gain, 0.5 * gain], **ROUNDED)


@pytest.mark.parametrize(("variance", "inside"), [(-7e-44, 316.22778), (-9.9999e-6, 99977.8), (-1e-5, np.inf), (-2e-5, np.nan)])
def test_negative_variances_follow_the_formula(variance: float, inside: float) -> None:
    for profile, want in (("pjreddie-cpu", np.nan), ("alexeyab-cpu", inside)):
        bn = BatchNorm(1, profile=profile)
        bn.rolling_variance[...] = variance
        assert bn.rolling_variance[0] < 0, "a denormal must not be flushed to zero"
        got = bn.forward(column(1), train=False)[0, 0]
        assert got == pytest.approx(want, rel=1e-6, nan_ok=True)  # the literal has six digits


# --- by hand ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "bias"), [("pjreddie-cpu", 1), ("alexeyab-cpu", 0), ("textbook", 1)])
def test_updates_of_one_delta(profile: str, bias: float) -> None:
    """Only the first value has a delta: scale_updates is its x_norm. One fork's own layer has no bias gradient."""
    bn = BatchNorm(1, profile=profile)
    bn.forward(column(1, 2, 3, 4), train=True)
    bn.backward(column(1, 0, 0, 0))
    assert bn.scale_updates[0] == bn.x_norm[0, 0]
    assert bn.bias_updates[0] == bias
    bn.backward(column(1, 0, 0, 0))
    assert bn.scale_updates[0] == 2 * bn.x_norm[0, 0], "updates add up until they are applied"
    assert bn.bias_updates[0] == 2 * bias


@pytest.mark.parametrize("decay", [0.0, 0.75])
def test_update_moves_by_rate_over_batch_and_keeps_momentum(decay: float) -> None:
    bn = BatchNorm(2)
    bn.forward(np.array([[1, 2], [3, 5]], np.float32), train=True)
    bn.backward(np.ones((2, 2), np.float32))
    bn.scale_updates[...] = [8, -16]
    bn.bias_updates[...] = [4, 2]
    bn.update(learning_rate=0.5, momentum=0.5, decay=decay, batch=4)
    assert bn.scales.tolist() == [2, -1]
    assert bn.biases.tolist() == [0.5, 0.25]
    assert bn.scale_updates.tolist() == [4, -8]
    assert bn.bias_updates.tolist() == [2, 1]
    want, left = oracle.update([2, -1], [4, -8], learning_rate=0.5, momentum=0.5, batch=4)
    bn.update(learning_rate=0.5, momentum=0.5, decay=decay, batch=4)
    assert bn.scales.tolist() == want.tolist() == [2.5, -2]
    assert bn.scale_updates.tolist() == left.tolist() == [2, -4]


# --- one value in a channel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", N_MINUS_1)
@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)])
def test_one_value_has_no_variance_over_n_minus_1(profile: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(NumericsError, match=r"shape \(1, 3.*one value in each channel"):
        BatchNorm(3, profile=profile).forward(np.ones(shape, np.float32), train=True)


def test_one_value_is_its_own_mean_over_n() -> None:
    bn = BatchNorm(2, profile="textbook")
    assert bn.forward(np.array([[3, -4]], np.float32), train=True).tolist() == [[0, 0]]
    assert bn.mean.tolist() == [3, -4]
    assert bn.variance.tolist() == [0, 0]


@pytest.mark.parametrize("profile", N_MINUS_1)
def test_allow_degenerate_gives_the_forks_nan_and_a_finite_mean(profile: str) -> None:
    bn = BatchNorm(2, profile=profile, allow_degenerate=True)
    assert np.isnan(bn.forward(np.array([[3, -4]], np.float32), train=True)).all()
    assert bn.mean.tolist() == [3, -4]
    assert np.isnan(bn.variance).all()
    assert np.isnan(bn.rolling_variance).all()
    assert np.isfinite(bn.rolling_mean).all()
