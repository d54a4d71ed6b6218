"""Backward of each layer under `textbook` against central differences of its definition in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array

Doubles = NDArray[np.float64]
Function = Callable[[Doubles, Mapping[str, Doubles]], Doubles]


class Case(NamedTuple):
    """Sections, the same in NumPy, and the shape of x. Parameters are named "2.weights": layer and array."""

    sections: tuple[str, ...]
    define: Function
    shape: tuple[int, int, int, int] = (2, 4, 4, 6)
    dialect: str = "alexeyab"


COPY = "activation activation=linear"
TANH = "activation activation=tanh"


def sigmoid(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def mish(x: Doubles) -> Doubles:
    return x * np.tanh(np.log1p(np.exp(x)))


def windows(x: Doubles, size: int, strides: tuple[int, int], before: int, fill: float) -> Doubles:
    """(batch, c, out_h, out_w, size * size), the padding of size - 1 shared out before and behind."""
    after = size - 1 - before
    padded = np.pad(x, [(0, 0), (0, 0), (before, after), (before, after)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1]].reshape(*view[:, :, :: strides[0], :: strides[1]].shape[:4], -1)


def largest(x: Doubles, size: int, strides: tuple[int, int]) -> Doubles:
    return windows(x, size, strides, (size - 1) // 2, -np.inf).max(axis=-1)


def mean_within(x: Doubles, size: int, stride: int) -> Doubles:
    taken = windows(x, size, (stride, stride), (size - 1) // 2, np.nan)
    return np.nanmean(taken, axis=-1)


def blurred(x: Doubles, stride: int) -> Doubles:
    kernel = np.array([1, 2, 1, 2, 4, 2, 1, 2, 1]) / 16
    return windows(x, 3, (stride, stride), 1, 0) @ kernel


def pair_max(x: Doubles) -> Doubles:
    return np.maximum(x[:, :2], x[:, 2:])


def repeated(x: Doubles, times: int) -> Doubles:
    return x.repeat(times, axis=2).repeat(times, axis=3)


def block_sums(x: Doubles, stride: int) -> Doubles:
    b, c, h, w = x.shape
    return x.reshape(b, c, h // stride, stride, w // stride, stride).sum(axis=(3, 5))


def to_depth(x: Doubles) -> Doubles:
    """(c, 2h, 2w) to (4c, h, w), the place in the block before the channel."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(b, 4 * c, h // 2, w // 2)


def first_order(x: Doubles) -> Doubles:
    """Darknet's first reorg: the image's floats read as if it had c / 4 channels of (2h, 2w), and given its own sizes after."""
    b, c, h, w = x.shape
    return to_depth(x.reshape(b, c // 4, 2 * h, 2 * w)).reshape(b, 4 * c, h // 2, w // 2)


def across(x: Doubles, size: int, alpha: float, beta: float) -> Doubles:
    """The norms of [normalization] as the forks keep them: what enters a window and what leaves it, channel by channel."""
    squares, c = x * x, x.shape[1]
    norms = np.empty_like(x)
    norms[:, 0] = 1 + alpha * squares[:, : size // 2].sum(axis=1)
    for k in range(1, c):
        norms[:, k] = norms[:, k - 1]
        if k - (size - 1) // 2 - 1 >= 0:
            norms[:, k] -= alpha * squares[:, k - (size - 1) // 2 - 1]
        if k + size // 2 < c:
            norms[:, k] += alpha * squares[:, k + size // 2]
    return x * norms**-beta


def share(weights: Doubles, kind: str) -> Doubles:
    """(sources + 1, ...) normalised over the first axis."""
    if kind == "none":
        return weights
    values = np.maximum(weights, 0) if kind == "relu" else np.exp(weights - weights.max(axis=0))
    return values / (float(np.float32(1e-4)) + values.sum(axis=0))


def weighted(kind: str, per: str) -> Function:
    def define(x: Doubles, p: Mapping[str, Doubles]) -> Doubles:
        weights = share(p["2.weights"].reshape(3, -1), kind)[:, None, :, None, None]
        once = np.tanh(x)
        return mish(weights[0] * np.tanh(once) + weights[1] * once + weights[2] * np.tanh(once))

    return define


def strided(x: Doubles, _: Mapping[str, Doubles]) -> Doubles:
    """0.7 of every second pixel of the enlarged image and 1.3 of the small one; the others stay."""
    large = repeated(x, 2)
    large[:, :, ::2, ::2] = np.float32(0.7) * large[:, :, ::2, ::2] + np.float32(1.3) * x
    return large


def local(x: Doubles, p: Mapping[str, Doubles]) -> Doubles:
    taken = windows(x, 3, (1, 1), 1, 0)  # (b, c, h, w, 9)
    _, c, h, w, _ = taken.shape
    weights = p["0.weights"].reshape(h, w, 2, c, 9)
    return sigmoid(np.einsum("bchwk,hwfck->bfhw", taken, weights) + p["0.biases"].reshape(2, h, w))


def transposed(x: Doubles, p: Mapping[str, Doubles]) -> Doubles:
    b, _, h, w = x.shape
    large = np.zeros((b, 3, 2 * h + 2, 2 * w + 2))
    for i in range(4):
        for j in range(4):
            large[:, :, i : i + 2 * h : 2, j : j + 2 * w : 2] += np.einsum("bchw,cf->bfhw", x, p["0.weights"][:, :, i, j])
    return np.tanh(large[:, :, 1:-1, 1:-1] + p["0.biases"][:, None, None])


def sharp_then_blurred(x: Doubles, p: Mapping[str, Doubles]) -> Doubles:
    sharp = np.einsum("bchwk,fck->bfhw", windows(x, 3, (1, 1), 1, 0), p["0.weights"].reshape(3, 4, 9))
    return blurred(mish(sharp + p["0.biases"][:, None, None]), 2)


def twice(x: Doubles, p: Mapping[str, Doubles]) -> Doubles:
    once = np.einsum("bchw,fc->bfhw", x, p["0.weights"][:, :, 0, 0]) + p["0.biases"][:, None, None]
    return np.einsum("bchw,fc->bfhw", np.tanh(once), p["0.weights"][:, :, 0, 0]) + p["0.biases"][:, None, None]


_SUM = "shortcut from=-2,-1 activation=mish weights_normalization={} weights_type={}"
CASES = {
    "maxpool": Case(("maxpool size=3 stride=2",), lambda x, _: largest(x, 3, (2, 2))),
    "maxpool_strides": Case(("maxpool size=2 stride_x=2 stride_y=1",), lambda x, _: largest(x, 2, (1, 2))),
    "maxpool_depth": Case(("maxpool maxpool_depth=1 out_channels=2",), lambda x, _: pair_max(x)),
    "maxpool_blur": Case(("maxpool size=3 stride=2 antialiasing=1",), lambda x, _: blurred(largest(x, 3, (1, 1)), 2)),
    "local_avgpool": Case(("local_avgpool size=3 stride=2",), lambda x, _: mean_within(x, 3, 2)),
    "avgpool": Case(("avgpool",), lambda x, _: x.mean(axis=(2, 3), keepdims=True)),
    "route": Case((COPY, TANH, "route layers=-1,0"), lambda x, _: np.concatenate([np.tanh(x), x], axis=1)),
    "route_groups": Case(
        (COPY, TANH, "route layers=-2,-1 groups=2 group_id=1"), lambda x, _: np.concatenate([x[:, 2:], np.tanh(x)[:, 2:]], axis=1)
    ),
    "shortcut": Case((COPY, TANH, "shortcut from=0 activation=logistic"), lambda x, _: sigmoid(x + np.tanh(x))),
    "shortcut_of_itself": Case((COPY, "shortcut from=-1"), lambda x, _: 2 * x),
    "shortcut_strides": Case((COPY, "upsample", "shortcut from=0 alpha=.7 beta=1.3"), strided, dialect="pjreddie"),
    "upsample": Case(("upsample scale=.5",), lambda x, _: repeated(x, 2) / 2),
    "upsample_reverse": Case((COPY, "upsample stride=-2"), lambda x, _: block_sums(x, 2)),
    "reorg": Case(("reorg stride=2",), lambda x, _: first_order(x)),
    "reorg3d": Case(("reorg3d stride=2",), lambda x, _: to_depth(x)),
    "reorg_flatten": Case(
        ("reorg flatten=1",), lambda x, _: x.reshape(2, 4, 24).transpose(0, 2, 1).reshape(x.shape), dialect="pjreddie"
    ),
    "reorg_extra": Case(
        ("reorg extra=3",), lambda x, _: np.pad(x.reshape(2, -1), [(0, 0), (0, 3)])[:, :, None, None], dialect="pjreddie"
    ),
    "activation": Case(("activation activation=mish",), lambda x, _: mish(x)),
    "l2norm": Case(("l2norm",), lambda x, _: x / np.sqrt((x * x).sum(axis=1, keepdims=True)), dialect="pjreddie"),
    "normalization_odd": Case(("lrn size=5 alpha=.1",), lambda x, _: across(x, 5, float(np.float32(0.1)), 0.75), (2, 7, 2, 3)),
    "normalization_even": Case(("lrn size=2 alpha=.1",), lambda x, _: across(x, 2, float(np.float32(0.1)), 0.75), (2, 5, 2, 3)),
    "scale_channels": Case(
        (COPY, "avgpool", "scale_channels from=0 activation=tanh"), lambda x, _: np.tanh(x * x.mean(axis=(2, 3), keepdims=True))
    ),
    "scale_pixels": Case(
        (COPY, "maxpool maxpool_depth=1 out_channels=1", "scale_channels from=0 scale_wh=1"),
        lambda x, _: x * x.max(axis=1, keepdims=True),
    ),
    "sam": Case((COPY, TANH, "sam from=0 activation=logistic"), lambda x, _: sigmoid(x * np.tanh(x))),
    "local": Case(("local filters=2 size=3 pad=1 activation=logistic",), local),
    "deconvolutional": Case(
        ("deconv filters=3 size=4 stride=2 padding=1 activation=tanh",), transposed, (2, 2, 3, 4), dialect="pjreddie"
    ),
    "implicit": Case(
        ("implicit filters=4 atoms=3",), lambda x, p: np.broadcast_to(p["0.weights"].reshape(4, 3, 1), (len(x), 4, 3, 1))
    ),
    "convolution_blur": Case(("conv filters=3 size=3 pad=1 stride=2 antialiasing=1 activation=mish",), sharp_then_blurred),
    "shared_kernel": Case(("conv filters=4 activation=linear", TANH, "conv filters=4 activation=linear share_index=0"), twice),
}
CASES |= {
    f"shortcut_{kind}_{per}": Case((TANH, TANH, _SUM.format(kind, per)), weighted(kind, per))
    for kind in ("none", "relu", "softmax")
    for per in ("per_feature", "per_channel")
}


def prepared(case: Case) -> tuple[dn.Network, Array, Array]:
    _, c, h, w = case.shape
    net = dn.load(cfg_of(*case.sections, c=c, h=h, w=w), dialect=case.dialect, profile="textbook")
    rng = np.random.default_rng(5)
    for layer in net.layers:
        for array in layer.params.values() if layer.stored else ():
            array[...] = rng.uniform(0.1, 1, array.shape) if layer.type == "shortcut" else rng.normal(size=array.shape) / 2
    x = rng.normal(size=case.shape).astype(np.float32)
    out = net.forward(x, train=True)[0]
    return net, x, rng.normal(size=out.shape).astype(np.float32)


def slopes(function: Callable[[Doubles], Doubles], at: Doubles, delta: Doubles) -> Doubles:
    """Central differences of sum(delta * function)."""
    result, step = np.empty(at.size), 1e-5
    for i in range(at.size):
        ends = [np.array(at), np.array(at)]
        for end, sign in zip(ends, (1, -1), strict=True):
            end.reshape(-1)[i] += sign * step
        result[i] = float(np.sum(delta * (function(ends[0]) - function(ends[1])))) / (2 * step)
    return result.reshape(at.shape)


def assert_close(got: Any, want: Doubles, name: str) -> None:
    """2e-5 of the largest element: the rounding of a few dozen float operations."""
    off = np.abs(np.asarray(got, np.float64).reshape(want.shape) - want)
    assert np.all(off <= 2e-5 * max(np.max(np.abs(want)), 1e-3)), f"{name}: off by {off.max()} of {np.max(np.abs(want))}"


@pytest.mark.parametrize("name", CASES)
def test_textbook_backward_is_the_derivative_of_the_definition(name: str) -> None:
    case = CASES[name]
    net, x, delta = prepared(case)
    into = net.backward(delta)
    stored = [layer for layer in net.layers if layer.stored]
    params = {f"{layer.index}.{key}": a.astype(np.float64) for layer in stored for key, a in layer.params.items()}
    exact = case.define(x.astype(np.float64), params)
    assert np.allclose(exact, net.forward(x)[0], rtol=1e-5, atol=1e-5), "the definition is not this layer's"
    assert_close(into, slopes(lambda at: case.define(at, params), x.astype(np.float64), delta.astype(np.float64)), "x")
    for key, value in params.items():
        index, array = key.split(".")
        updates = getattr(net.layers[int(index)], {"weights": "weight_updates", "biases": "bias_updates"}[array])
        want = slopes(lambda at, key=key: case.define(x.astype(np.float64), params | {key: at}), value, delta.astype(np.float64))
        assert_close(updates, want, key)
