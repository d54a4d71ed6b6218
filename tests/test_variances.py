"""A negative rolling variance: told where it is read, and computed as each convention does."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, refusal, weights_of

CFG = cfg_of("conv filters=2 batch_normalize=1 activation=linear", w=1, h=1, c=1)


def file_with(variance: float) -> bytes:
    """biases 0, scales 1, means 0, variances 1 and this, weights 1."""
    return weights_of(np.array([0, 0, 1, 1, 0, 0, 1, variance, 1, 1], np.float32))


@pytest.mark.parametrize("variance", [-7e-44, -1e-5, -np.inf, np.inf, np.nan])
def test_variance_that_is_negative_infinite_or_no_number_is_told_with_layer_and_channel(variance):
    data = file_with(variance)
    (warning,) = dn.load(CFG, data).warnings
    assert warning.startswith("<bytes>: layer 0 [convolutional] (line 5): 1 of 2 values of rolling_variance")
    assert f"the first {np.float32(variance):.3g} of channel 1" in warning
    assert refusal(dn.WeightsError, CFG, data, strict=True) == warning


@pytest.mark.parametrize("variance", [0, 2e-38, 3e38])
def test_variance_with_a_root_is_not_told(variance):
    assert dn.load(CFG, file_with(variance), strict=True).warnings == ()


@pytest.mark.parametrize("variance", [1e-45, 1.1e-38])
def test_denormal_variance_is_told_and_refused_where_strict(variance):
    data = file_with(variance)
    (warning,) = dn.load(CFG, data).warnings
    told = f"1 of 2 values of rolling_variance are denormal, the first {np.float32(variance):.3g} of channel 1: "
    assert warning.startswith(f"<bytes>: layer 0 [convolutional] (line 5): {told}programs that flush them take 0")
    assert refusal(dn.WeightsError, CFG, data, strict=True) == warning


def test_every_kind_is_counted_in_every_layer_with_its_channels():
    section = "conv filters=8 batch_normalize=1 activation=linear"
    net = dn.load(cfg_of(section, section, w=1, h=1, c=1))
    net.layers[0].rolling_variance[...] = [1, -1, 1e-40, np.nan, 2e-40, np.inf, -2, -3]
    net.layers[1].rolling_variance[...] = [-1, -2, -3, -4, -5, -6, 1, 1]
    bad, tiny, second = dn.load(cfg_of(section, section, w=1, h=1, c=1), net.to_bytes()).warnings
    assert "layer 0 [convolutional] (line 5): 5 of 8 values" in bad
    assert "the first -1 of channel 1 (then 3, 5, 6, 7): only some conventions have a root of it" in bad
    assert "layer 0 [convolutional] (line 5): 2 of 8 values" in tiny
    assert "the first 1e-40 of channel 2 (then 4): programs that flush them" in tiny
    assert "layer 1 [convolutional] (line 9): 6 of 8 values" in second
    assert "the first -1 of channel 0 (then 1, 2, 3, 4 …)" in second


@pytest.mark.parametrize(
    ("variance", "outside", "inside"),
    [(-7e-44, np.nan, 316.22778), (-9.9999e-6, np.nan, 99977.8), (-1e-5, np.nan, np.inf), (-2e-5, np.nan, np.nan)],
)
def test_each_convention_computes_its_own_of_a_negative_variance(variance, outside, inside):
    data, one = file_with(variance), np.ones((1, 1, 1, 1), np.float32)
    for profile, value in [("pjreddie-cpu", outside), ("textbook", inside)]:
        found = dn.load(CFG, data, profile=profile).forward(one)[0][0, 1, 0, 0]
        assert found == pytest.approx(value, rel=1e-6, nan_ok=True)  # the literals have six digits or more
