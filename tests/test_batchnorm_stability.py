"""Channels that are hard on a batchnorm: constant, far from 0, flat, denormal, with NaN or infinite values. Each profile's behavior
as literal values, and that no bit of another channel changes."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from pydarknetbn import BatchNorm
from pydarknetbn._native import Array
from pydarknetbn.cpu import cpu_info, cpu_variant

PROFILES = [profile.name for profile in dn.profiles()]
RULES = {profile.name: profile.rule("batchnorm") for profile in dn.profiles()}
DEVIATIONS = np.array([-1, -1, -1, 1, 1, 1, -1, 1], np.float32)  # mean 0, variance 1 over n and 8/7 over n-1


def sums(profile: str) -> str:
    """How the profile's mean and variance are summed."""
    rule = RULES[profile]
    return rule.summation if rule.variance_formula == "differences" else rule.variance_formula


def gain(profile: str, literals: dict[str, float]) -> float:
    """That of the profile's epsilon; a new one needs a literal of its own."""
    return literals[str(RULES[profile].forward)]


def in_8(profile: str, over_n: float) -> float:
    """A variance over n = 8 as the profile takes it."""
    return over_n * (8 / 7 if RULES[profile].normalize_variance == "n-1" else 1)


def channel(values: Array | list[float]) -> Array:
    """As (n, 1)."""
    return np.asarray(values, np.float32).reshape(-1, 1)


# --- what each profile gives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_gain_where_the_variance_is_0(profile):
    bn = BatchNorm(1, profile=profile)
    bn.rolling_mean[...], bn.rolling_variance[...] = 0, 0
    want = gain(profile, {"√v+1e-06": 1e6, "√(v+1e-05)": 316.227766, "√(v+0.001)": 31.6227766})
    assert bn.forward(channel([1]), train=False).item() == pytest.approx(want, rel=2e-7)


@pytest.mark.parametrize("profile", PROFILES)
def test_gain_where_the_variance_is_1e_8(profile):
    """One over its root is 10,000, which one convention gives but for a hundredth, and the others miss by far."""
    bn = BatchNorm(1, profile=profile)
    bn.rolling_mean[...], bn.rolling_variance[...] = 0, 1e-8
    want = gain(profile, {"√v+1e-06": 9900.990099, "√(v+1e-05)": 316.069771, "√(v+0.001)": 31.6226185})
    assert bn.forward(channel([1]), train=False).item() == pytest.approx(want, rel=2e-7)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("value", [1.0, -3.0, 0.0, 1024.0])
def test_channel_of_one_value_whose_sums_are_exact_gives_its_bias(profile, value):
    bn = BatchNorm(1, profile=profile)
    bn.biases[...] = 0.25
    x = np.full((4, 1, 4, 4), value, np.float32)
    assert (bn.forward(x, train=True) == 0.25).all()
    assert (bn.mean.item(), bn.variance.item()) == (value, 0)
    assert np.isfinite(bn.backward(x)).all()
    assert bn.scale_updates.item() == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_channel_of_one_value_whose_sums_are_rounded_gives_the_rounding_times_the_gain(profile):
    """100 values in a row: the mean is 4 units, 4.8e-7, too small, and one epsilon is hardly larger.

    In 25 parts it is exact, and in double.
    """
    bn = BatchNorm(1, profile=profile)
    x = np.full((4, 1, 5, 5), 1.2345678, np.float32)
    got = bn.forward(x, train=True)
    assert (got == got[0, 0, 0, 0]).all()
    off = {"serial": 4 * 2.0**-23, "strided": 0, "squares": 0, "double": 0}[sums(profile)]
    assert float(x[0, 0, 0, 0]) - bn.mean.item() == off
    assert bn.variance.item() == pytest.approx(off**2 * (100 / 99 if RULES[profile].normalize_variance == "n-1" else 1), rel=3e-7)
    want = gain(profile, {"√v+1e-06": 0.3223529, "√(v+1e-05)": 1.5078915e-4, "√(v+0.001)": 1.50789e-5})
    assert got[0, 0, 0, 0] == pytest.approx(want if off else 0, rel=1e-6)


@pytest.mark.parametrize("profile", PROFILES)
def test_mean_of_many_values_far_from_0_is_rounded_in_a_row_and_its_error_is_in_the_variance(profile):
    """From 2^24 on a sum of floats is even, from 2^27 on a multiple of 16: there 10,001 adds 10,000.

    512 parts stay below, and so do doubles. Means of squares are 8 apart there.
    """
    bn = BatchNorm(1, profile=profile)
    x = np.full((16, 1, 32, 32), 10001, np.float32)
    x[:, :, ::2] += 2.0**-7
    x[:, :, 1::2] -= 2.0**-7
    bn.forward(x, train=True)
    found = {
        "serial": (10000.2060546875, 0.6304102),
        "strided": (10001, 6.1039e-5),
        "squares": (10001, 0),
        "double": (10001, 2.0**-14),
    }
    mean, variance = found[sums(profile)]
    assert bn.mean.item() == mean
    assert bn.variance.item() == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize("profile", [profile for profile in PROFILES if sums(profile) == "squares"])
def test_mean_of_squares_keeps_nothing_of_a_deviation_near_1e_2_from_1e4(profile):
    bn = BatchNorm(1, profile=profile)
    got = bn.forward(channel(10000 + DEVIATIONS / 128), train=True).ravel()
    assert (bn.mean.item(), bn.variance.item()) == (10000, 0)
    assert got.tolist() == pytest.approx((gain(profile, {"√(v+1e-05)": 2.47052942}) * DEVIATIONS).tolist(), rel=3e-7)


@pytest.mark.parametrize("profile", [profile for profile in PROFILES if sums(profile) != "squares"])
def test_mean_of_1e4_with_a_deviation_near_1e_2_keeps_its_variance(profile):
    """10,000 +- 1/128 are floats, and so is every sum of some of them."""
    bn = BatchNorm(1, profile=profile)
    step = 1 / 128
    got = bn.forward(channel(10000 + step * DEVIATIONS), train=True).ravel()
    assert bn.mean.item() == 10000
    assert bn.variance.item() == pytest.approx(in_8(profile, step**2), rel=2e-7)
    over_n = {"√v+1e-06": 0.999872016, "√(v+1e-05)": 0.926943707, "√(v+0.001)": 0.239841948}
    over_n_1 = {"√v+1e-06": 0.93530236, "√(v+1e-05)": 0.874807564, "√(v+0.001)": 0.238862502}
    want = gain(profile, over_n_1 if RULES[profile].normalize_variance == "n-1" else over_n)
    assert got.tolist() == pytest.approx((want * DEVIATIONS).tolist(), rel=3e-7)


@pytest.mark.parametrize("profile", PROFILES)
def test_variance_of_1e_8_in_training(profile):
    bn = BatchNorm(1, profile=profile)
    got = bn.forward(channel(np.float32(2.0**-13) * DEVIATIONS), train=True).ravel()  # a deviation of 1.22e-4
    assert bn.variance.item() == pytest.approx(in_8(profile, 2.0**-26), rel=2e-7)
    over_n = {"√v+1e-06": 0.991874564, "√(v+1e-05)": 0.0385732936, "√(v+0.001)": 0.00386017346}
    over_n_1 = {"√v+1e-06": 0.928300857, "√(v+1e-05)": 0.0385691947, "√(v+0.001)": 0.00386016935}
    want = gain(profile, over_n_1 if RULES[profile].normalize_variance == "n-1" else over_n)
    assert got.tolist() == pytest.approx((want * DEVIATIONS).tolist(), rel=3e-7)


@pytest.mark.parametrize("profile", PROFILES)
def test_denormal_variance_is_kept_and_not_taken_for_0(profile):
    """2^-66 squared is 2^-132, below the smallest normal float, 2^-126."""
    bn = BatchNorm(1, profile=profile)
    step = 2.0**-66
    got = bn.forward(channel(np.float32(step) * DEVIATIONS), train=True).ravel()
    assert bn.variance.item() == pytest.approx(in_8(profile, 2.0**-132), rel=2e-5)  # a denormal of 17 bits
    assert bn.variance.item() > 0
    want = step * gain(profile, {"√v+1e-06": 1e6, "√(v+1e-05)": 316.227766, "√(v+0.001)": 31.6227766})
    assert got.tolist() == pytest.approx((want * DEVIATIONS).tolist(), rel=2e-7)
    kept = RULES[profile].rolling_add * (8 / 7 if RULES[profile].keep_variance == "n-1" else 1) * 2.0**-132
    bn.rolling_variance[...] = 0
    bn.forward(channel(np.float32(step) * DEVIATIONS), train=True)
    assert bn.rolling_variance.item() == pytest.approx(kept, rel=2e-3)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("bad", "mean"), [(np.nan, np.nan), (np.inf, np.inf), (-np.inf, -np.inf)])
def test_a_nan_or_infinite_value_takes_its_channel_in_training_and_its_place_in_inference(profile, bad, mean):
    bn = BatchNorm(1, profile=profile)
    x = channel(DEVIATIONS.copy())
    x[3] = bad
    assert np.isnan(bn.forward(x, train=True)).all()
    assert np.isnan(bn.variance).all()
    np.testing.assert_array_equal(bn.mean, np.float32([mean]))
    np.testing.assert_array_equal(bn.rolling_mean, np.float32([mean]))
    assert np.isnan(bn.rolling_variance).all()
    assert np.isnan(bn.backward(channel(np.ones(8)))).all()
    assert np.isnan(bn.scale_updates).all()
    assert bn.bias_updates.item() == (8 if RULES[profile].bias_gradient else 0)
    good = channel(DEVIATIONS)
    assert np.isnan(bn.forward(good, train=False)).all(), "the rolling arrays keep it"
    assert np.isfinite(bn.forward(good, train=True)).all(), "training looks at its batch alone"
    bn.reset()
    bn.rolling_variance[...] = 1
    got = bn.forward(x, train=False).ravel()
    np.testing.assert_array_equal(got[3], np.float32(bad))
    assert np.isfinite(np.delete(got, 3)).all()


@pytest.mark.parametrize("profile", PROFILES)
def test_values_whose_squares_pass_the_floats_give_an_infinite_variance_and_their_bias(profile):
    bn = BatchNorm(1, profile=profile)
    bn.biases[...] = 0.25
    got = bn.forward(channel(np.float32(1e30) * DEVIATIONS), train=True)
    assert bn.variance.item() == np.inf
    assert (got == 0.25).all()
    assert np.isinf(bn.rolling_variance).all()


# --- nothing leaks ------------------------------------------------------------------------------------------------------------


BAD = {
    "NaN": lambda x: np.full_like(x, np.nan),
    "one NaN": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size // 2, np.float32(np.nan), x),
    "one inf": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 0, np.float32(np.inf), x),
    "one -inf": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size - 1, np.float32(-np.inf), x),
    "constant": lambda x: np.full_like(x, 1.2345678),
    "far": lambda x: np.float32(1e4) + np.float32(1e-2) * x,
    "denormal": lambda x: np.float32(1e-20) * x,
    "huge": lambda x: np.float32(1e38) * x,
}
OF_CHANNELS = ("mean", "variance", "rolling_mean", "rolling_variance")
BACKWARD = ("scale_updates", "bias_updates", "mean_delta", "variance_delta")
SIZES = [(4, 1, 5, 7), (3, 5, 1, 1), (2, 17, 3, 3), (4, 33, 13, 13), (5, 70, 1, 1), (2, 70, 13, 13)]


def passes(profile: str, x: Array, delta: Array) -> dict[str, Array]:
    """Every array of two training steps with updates, an inference, and a backward behind it: (c) or (batch, c, ...)."""
    bn = BatchNorm(x.shape[1], profile=profile)
    bn.scales, bn.biases = np.linspace(0.5, 2, x.shape[1], dtype=np.float32), np.linspace(-1, 1, x.shape[1], dtype=np.float32)
    found = {}
    for step in ("first", "second"):
        found[f"{step} output"] = bn.forward(x, train=True)
        found[f"{step} delta"] = bn.backward(delta)
        for name in ("x_norm", *OF_CHANNELS, *BACKWARD):
            found[f"{step} {name}"] = getattr(bn, name).copy()
        bn.update(learning_rate=0.1, momentum=0.9, decay=0.0005, batch=x.shape[0])
        found |= {f"{step} {name}": getattr(bn, name).copy() for name in ("scales", "biases")}
    found["inference output"] = bn.forward(x, train=False, cache=True)
    found["inference delta"] = bn.backward(delta, train=False)
    return found


def without(array: Array, channels: list[int]) -> Array:
    return np.ascontiguousarray(np.delete(array, channels, axis=0 if array.ndim == 1 else 1))


@pytest.mark.parametrize("variant", cpu_info().variants)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("profile", PROFILES)
def test_no_bit_of_another_channel_changes(profile, size, variant, threads):
    x, delta = np.random.default_rng(size[1]).normal(size=(2, *size)).astype(np.float32)
    c = size[1]
    taken = sorted({0, c // 2, c - 1} if c > 3 else {0})
    with cpu_variant(variant), np.errstate(all="ignore"):
        clean = passes(profile, x, delta)
        for kind, make in BAD.items():
            worse, back = x.copy(), delta.copy()
            for channel_ in taken:
                worse[:, channel_] = make(x[:, channel_])
                back[0, channel_] = make(delta[0, channel_])
            for name, array in passes(profile, worse, back).items():
                assert_same_bits(without(array, taken), without(clean[name], taken), f"{kind}: {name}")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_of_a_bad_batch_is_left_after_a_reset(profile, size, threads):
    x, delta = np.random.default_rng(size[1]).normal(size=(2, *size)).astype(np.float32)
    bad = np.full_like(x, np.nan)
    fresh, used = BatchNorm(size[1], profile=profile), BatchNorm(size[1], profile=profile)
    used.forward(bad, train=True)
    used.backward(bad)
    used.reset()
    used.scale_updates[...] = used.bias_updates[...] = 0
    for bn in (fresh, used):
        bn.forward(x, train=True)
        bn.backward(delta)
    for name in ("output", "delta", "x_norm", *OF_CHANNELS, *BACKWARD):
        assert_same_bits(getattr(used, name), getattr(fresh, name), name)
