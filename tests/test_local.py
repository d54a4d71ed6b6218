"""[local] and [deconvolutional] against their definitions in float64, and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import RECORDED, same_bits
from nets import cfg_of, noise, numbered, ramp, refusal, weights_of
from pydarknetbn._native import Array


def loaded(section: str, x: Array, floats: Array | None, dialect: str = "pjreddie") -> dn.Network:
    c, h, w = x.shape[1:]
    return dn.load(cfg_of(section, c=c, h=h, w=w), None if floats is None else weights_of(floats), dialect=dialect, seed=3)


def local(x: Array, weights: Array, biases: Array, size: int, stride: int, pad: int, out: tuple[int, int]) -> Array:
    """weights (pixel, filter, c, size, size), biases (filter, pixel)."""
    room = pad + size + stride * max(out)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, room), (pad, room)])
    result = np.empty((len(x), weights.shape[1], *out))
    for row in range(out[0]):
        for column in range(out[1]):
            window = padded[:, :, row * stride : row * stride + size, column * stride : column * stride + size]
            pixel = row * out[1] + column
            result[:, :, row, column] = (
                np.einsum("bcij,fcij->bf", window, weights[pixel]) + biases.reshape(-1, *out)[:, row, column]
            )
    return result


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
@pytest.mark.parametrize(
    ("size", "stride", "pad", "out"),
    [
        (1, 1, 0, (5, 6)),
        (3, 1, 1, (5, 6)),
        (3, 2, 0, (2, 2)),
        (3, 2, 1, (3, 3)),
        (5, 1, 2, (5, 6)),
        (5, 1, 1, (5, 6)),
        (2, 1, 1, (5, 6)),
    ],
)
def test_local_has_weights_of_each_pixel(size, stride, pad, out, dialect, threads):
    """The padding is pad itself, and the output is as large as with half a kernel of it: then zeros lie behind the image."""
    x = noise(2, 3, 5, 6)
    net = loaded(f"local filters=2 size={size} stride={stride} pad={pad} activation=linear", x, None, dialect)
    layer = net.layers[0]
    layer.biases[...] = noise(*layer.biases.shape, seed=1)
    assert layer.weights.shape == (out[0] * out[1], 2, 3, size, size)
    want = local(x, layer.weights, layer.biases, size, stride, pad, out)
    limit = (3 * size * size + 1) * 2.0**-24 * 3 * size * size * np.abs(layer.weights).max()  # of each sum and product
    assert np.all(np.abs(net.forward(x)[0] - want) <= limit)


def test_local_adds_to_its_bias_in_the_forks_order():
    """2^24 + 1 is 2^24 in float: the bias comes first, so ones that follow are lost one by one."""
    x = np.ones((1, 3, 1, 1), np.float32)
    net = loaded("local filters=1 activation=linear", x, np.array([2.0**24, 1, 1, 1], np.float32))
    assert net.forward(x)[0].item() == 2.0**24


def test_local_lies_in_the_file_as_biases_by_filter_and_weights_by_pixel():
    x = np.zeros((1, 1, 1, 2), np.float32)
    net = loaded("local filters=3 activation=linear", x, numbered(12))
    assert net.forward(x)[0].reshape(3, 2).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert net.layers[0].weights.reshape(2, 3).tolist() == [[7, 8, 9], [10, 11, 12]]


def deconvolution(x: Array, weights: Array, size: int, stride: int, pad: int) -> Array:
    """Each input value lays a kernel into the output; weights (c, filter, size, size)."""
    batch, _, h, w = x.shape
    full = np.zeros((batch, weights.shape[1], (h - 1) * stride + size, (w - 1) * stride + size))
    for row in range(h):
        for column in range(w):
            part = np.einsum("bc,cfij->bfij", x[:, :, row, column].astype(np.float64), weights)
            full[:, :, row * stride : row * stride + size, column * stride : column * stride + size] += part
    return full[:, :, pad : full.shape[2] - pad, pad : full.shape[3] - pad]


@pytest.mark.parametrize(("size", "stride", "pad"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 1), (2, 3, 0), (5, 1, 2)])
def test_deconvolution_lays_a_kernel_for_each_input_value(size, stride, pad, threads):
    x = noise(2, 3, 4, 19)
    net = loaded(f"deconv filters=2 size={size} stride={stride} padding={pad} activation=linear", x, None)
    weights = net.layers[0].weights
    assert weights.shape == (3, 2, size, size)
    want = deconvolution(x, weights, size, stride, pad)
    got = net.forward(x)[0]
    assert got.shape == want.shape
    assert np.all(np.abs(got - want) <= 4 * size * size * 2.0**-24 * 3 * size * size * np.abs(weights).max())


def test_deconvolution_has_batchnorm_and_activation_behind_it():
    x = ramp(1, 1, 2)
    layout = [10, 2, 1, 4 - 1e-6, 1]  # bias, scale, mean, variance, weight
    net = loaded("deconv filters=1 batch_normalize=1 activation=relu", x, np.array(layout, np.float32))
    assert list(net.layers[0].params) == ["biases", "scales", "rolling_mean", "rolling_variance", "weights"]
    assert np.allclose(net.forward(x)[0].ravel(), [9, 10], atol=1e-5)  # (x - 1) / 2 * 2 + 10


def test_weights_of_both_start_with_the_forks_spread():
    x = noise(1, 3, 8, 8)
    uniform = loaded("local filters=40 size=3 pad=1", x, None).layers[0].weights
    limit = np.sqrt(2 / 27)
    assert 0.99 * limit < np.abs(uniform).max() <= limit
    normal = loaded("deconv filters=400 size=2 stride=2", x, None).layers[0].weights
    assert normal.std() == pytest.approx(0.02 * 4, rel=0.05)  # 16 x 16 output pixels for 8 x 8


@pytest.mark.parametrize("profile", RECORDED)
def test_picture_has_the_same_bits_alone_and_among_others(profile):
    cfg = cfg_of("local filters=2 size=3 pad=1 activation=leaky", "deconv filters=2 size=3 stride=2 pad=1 activation=elu")
    net, x = dn.load(cfg, dialect="pjreddie", profile=profile), noise(3, 3, 8, 8)
    together = net.forward(x)[0]
    assert all(same_bits(net.forward(x[b : b + 1])[0], together[b : b + 1]) for b in range(3))


WRONG = {
    "a kernel beyond the image": ("local size=9", "a kernel of 9 x 9 is larger than an image of 8 x 8"),
    "a padding that takes all": ("deconv size=3 padding=5", "a padding of 5 leaves nothing of an output of 10 x 10"),
    "weights without end": ("local filters=2000000000 size=3 pad=1", "layer 0"),
    "a stride without end": ("deconv filters=2 stride=2000000000", "is too large"),
}


@pytest.mark.parametrize(("section", "words"), WRONG.values(), ids=WRONG)
def test_sizes_that_make_no_layer_are_refused(section, words):
    try:
        message = refusal(dn.CfgError, cfg_of(section), dialect="pjreddie")
    except MemoryError as error:
        message = str(error)
    assert words in message
    assert message.startswith("<bytes>:5: ")
