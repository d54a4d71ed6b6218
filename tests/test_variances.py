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


@pytest.mark.parametrize("variance", [0, 1e-45, 3e38])
def test_variance_with_a_root_is_not_told(variance):
    assert dn.load(CFG, file_with(variance), strict=True).warnings == ()


@pytest.mark.parametrize(
    ("variance", "outside", "inside"),
    [(-7e-44, np.nan, 316.22778), (-1e-5, np.nan, np.inf), (-2e-5, np.nan, np.nan)],
)
def test_each_convention_computes_its_own_of_a_negative_variance(variance, outside, inside):
    data, one = file_with(variance), np.ones((1, 1, 1, 1), np.float32)
    for profile, value in [("pjreddie-cpu", outside), ("textbook", inside)]:
        found = dn.load(CFG, data, profile=profile).forward(one)[0][0, 1, 0, 0]
        np.testing.assert_array_equal(found, np.float32(value))
