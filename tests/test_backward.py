"""Backward through the layers of a network: what comes back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array

CONVOLUTIONS = cfg_of(
    "convolutional batch_normalize=1 filters=4 size=3 pad=1 activation=leaky",
    "convolutional filters=3 size=3 stride=2 pad=1 activation=logistic",
    "connected output=5 activation=linear",
)


def sample(net: dn.Network, batch: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(batch, net.c, net.h, net.w)).astype(np.float32)
    return x, rng.normal(size=(batch, *net.layers[-1].out_shape)).astype(np.float32)


def test_delta_of_the_input_is_minus_the_slope_of_the_loss() -> None:
    """In the profile whose backward is the derivative; the slope is measured along the gradient itself."""
    net = dn.load(CONVOLUTIONS, profile="textbook")
    x, delta = sample(net, 4)
    net.forward(x, train=True)
    into = net.backward(delta)
    step = np.float32(1e-2) * into / np.float32(np.linalg.norm(into))
    rise = sum(
        sign * float(np.vdot(delta.astype(np.float64), net.forward(x + sign * step, train=True)[0]))
        for sign in (np.float32(1), np.float32(-1))
    )
    assert rise / 2e-2 == pytest.approx(float(np.linalg.norm(into)), rel=1e-3)


def test_without_a_training_forward_there_is_nothing_to_go_back_through() -> None:
    net = dn.load(CONVOLUTIONS)
    x, delta = sample(net, 1)
    net.forward(x)
    with pytest.raises(dn.StateError, match=r"backward needs forward\(x, train=True\) before it"):
        net.backward(delta)


def test_a_delta_of_another_shape_is_refused() -> None:
    net = dn.load(CONVOLUTIONS)
    x, delta = sample(net, 2)
    net.forward(x, train=True)
    with pytest.raises(dn.ShapeError, match=r"expected delta of layer 2 of shape \(2, 5, 1, 1\), got \(1, 5, 1, 1\)"):
        net.backward(delta[:1])
    with pytest.raises(dn.ShapeError, match=r"expected 1 deltas, one for each of layers 2, got 2"):
        net.backward([delta, delta])
