"""Sums of gradients against the forks' loops, one float32 operation after another."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, noise
from pydarknetbn._native import Array

ZERO = np.float32(0)


def taken(plane: Array, row: int, column: int) -> np.float32:
    """0 outside the image."""
    inside = 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]
    return plane[row, column] if inside else ZERO


def trained(section: str, x: Array, dialect: str = "pjreddie") -> tuple[dn.Network, Array, Array]:
    """The network after forward and backward, the delta of its output, and that of its input."""
    _, c, h, w = x.shape
    net = dn.load(cfg_of(section, c=c, h=h, w=w), dialect=dialect, seed=1)
    out = net.forward(x, train=True)[0]
    delta = noise(*out.shape, seed=3)
    return net, delta, net.backward(delta)


@pytest.mark.parametrize(
    ("size", "stride", "pad", "h", "w"), [(3, 1, 1, 2, 17), (4, 2, 1, 3, 5), (2, 3, 0, 2, 16), (1, 1, 0, 1, 33), (5, 1, 3, 4, 3)]
)
def test_deconvolution_sums_over_the_pixels_for_weights_and_adds_one_by_one_for_the_input(size, stride, pad, h, w, threads) -> None:
    x = noise(2, 2, h, w)
    net, delta, into = trained(f"deconv filters=3 size={size} stride={stride} padding={pad} activation=linear", x)
    layer = net.layers[0]
    updates, want = np.zeros_like(layer.weights), np.zeros_like(x)
    for b, c, f, i, j in np.ndindex(2, 2, 3, size, size):
        sum_of_pixels = ZERO
        for row, column in np.ndindex(h, w):
            value = taken(delta[b, f], row * stride + i - pad, column * stride + j - pad)
            sum_of_pixels += x[b, c, row, column] * value
            want[b, c, row, column] += layer.weights[c, f, i, j] * value
        updates[c, f, i, j] += sum_of_pixels
    assert_same_bits(layer.weight_updates, updates, "weight_updates")
    assert_same_bits(into, want, "delta")


@pytest.mark.parametrize(("size", "stride", "pad"), [(3, 1, 1), (2, 2, 0), (3, 2, 1)])
def test_local_sums_over_the_filters_and_adds_kernel_elements_in_turn(size, stride, pad, threads) -> None:
    x = noise(2, 2, 5, 4)
    net, delta, into = trained(f"local filters=3 size={size} stride={stride} pad={pad} activation=linear", x)
    layer = net.layers[0]
    _, h, w = layer.out_shape
    updates, want, biases = np.zeros_like(layer.weights), np.zeros_like(x), np.zeros_like(delta[0])
    for b in range(2):
        biases += delta[b]
        for c, i, j, row, column in np.ndindex(2, size, size, h, w):
            pixel, y, z = row * w + column, row * stride + i - pad, column * stride + j - pad
            total = ZERO
            for f in range(3):
                updates[pixel, f, c, i, j] += ZERO + delta[b, f, row, column] * taken(x[b, c], y, z)
                total += layer.weights[pixel, f, c, i, j] * delta[b, f, row, column]
            if 0 <= y < 5 and 0 <= z < 4:
                want[b, c, y, z] += total
    assert_same_bits(layer.weight_updates, updates, "weight_updates")
    assert_same_bits(layer.bias_updates, biases.ravel(), "bias_updates")
    assert_same_bits(into, want, "delta")


@pytest.mark.parametrize("per", ["per_layer", "per_channel"])
def test_weights_of_a_shortcut_sum_image_after_image(per: str) -> None:
    x = noise(3, 2, 3, 5)
    sections = ["activation activation=linear", "conv filters=3 activation=linear", "conv filters=2 activation=linear"]
    shortcut = f"shortcut from=0,-2 weights_type={per} weights_normalization=none"
    net = dn.load(cfg_of(*sections, shortcut, c=2, h=3, w=5), dialect="alexeyab", seed=1)
    layer = net.layers[3]
    layer.weights[...] = noise(layer.weights.size, seed=2)
    net.forward(x, train=True)
    values = [net.layers[2].output.copy(), net.layers[0].output.copy(), net.layers[1].output[:, :2].copy()]
    delta = noise(3, 2, 3, 5, seed=3)
    net.backward(delta)
    weights, want = layer.weights.reshape(3, -1), np.zeros((3, layer.weights.size // 3), np.float32)
    for i, value in enumerate(values):
        for b, c, row, column in np.ndindex(delta.shape):
            want[i, c if per == "per_channel" else 0] += delta[b, c, row, column] * value[b, c, row, column]
    assert_same_bits(layer.weight_updates, want.ravel(), "weight_updates")
    by_channel = weights[0][:, None, None] if per == "per_channel" else weights[0]
    assert_same_bits(net.layers[2].delta, ZERO + delta * by_channel, "delta of the input")
