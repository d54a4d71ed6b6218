"""Derivatives of activations against their definitions, and the forks' formulas where these are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pydarknetbn as dn
from definitions import CURVES
from nets import cfg_of
from pydarknetbn import _native
from pydarknetbn._native import Array, lib
from pydarknetbn.dialect import PROFILES, ArithmeticRule

RULE = PROFILES["alexeyab-cpu"].layers.arithmetic
X = np.linspace(-3.9, 3.9, 79).astype(np.float32) + np.float32(0.013)  # on no bend


def slopes(name: str, rule: ArithmeticRule) -> Array:
    """What a delta of 1 becomes."""
    y = CURVES[name][0](X.astype(np.float64)).astype(np.float32)
    delta = np.ones_like(X)
    pointers = [_native.floats(array) for array in (y, X)]
    struct = _native.rule("arithmetic_rule", rule)
    lib.gradient_array(*pointers, X.size, _native.enum("activation", name), struct, _native.floats(delta))
    return delta


@pytest.mark.parametrize("name", sorted(CURVES.keys() - {"gelu", "stair"}))
def test_derivatives_of_the_forks_are_the_derivatives(name: str) -> None:
    """Bound: a few float steps from an output that is rounded, of values up to 4; stair's is exact only where its floats are."""
    want = CURVES[name][1](X.astype(np.float64))
    assert np.all(np.abs(slopes(name, RULE) - want) <= 64 * 2.0**-24)


def test_the_forks_derivative_of_gelu_takes_the_output_for_the_input() -> None:
    """At x = 1 gelu is 0.841, and the slope there 1.083; theirs is that at 0.841, but for the literals of its own."""
    value, slope, _ = CURVES["gelu"]
    want = slope(value(X.astype(np.float64)))
    assert np.all(np.abs(slopes("gelu", RULE) - want) <= 1e-5)
    assert np.all(np.abs(slopes("gelu", replace(RULE, gelu_gradient="exact")) - slope(X.astype(np.float64))) <= 2.0**-23)
    assert np.abs(want - slope(X.astype(np.float64))).max() > 0.1


CHANNELS = ("normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval")


@pytest.mark.parametrize("name", CHANNELS)
def test_channel_gradient_sum_multiplies_each_delta_by_the_sum_of_output_times_delta(name: str) -> None:
    """Nothing for the channel that is not positive, where only those count."""
    net = dn.load(cfg_of(f"convolutional filters=3 size=1 activation={name}", w=1, h=1, c=3), profile="alexeyab-cpu")
    net.layers[0].weights[..., 0, 0] = np.eye(3)
    x = np.array([1, 3, -2], np.float32).reshape(1, 3, 1, 1)
    (y,) = net.forward(x, train=True)
    delta = np.array([8, 4, 2], np.float32)
    back = net.backward(delta.reshape(1, 3, 1, 1)).ravel()
    factor = float((y.ravel() * delta).sum())
    positive = name == "normalize_channels"
    assert back == pytest.approx([8 * factor, 4 * factor, 2 if positive else 2 * factor], rel=1e-6)
