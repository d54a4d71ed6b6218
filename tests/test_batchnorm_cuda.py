"""The profiles of the forks' CUDA kernels give the bits of those kernels, emulated thread by thread in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuda_kernels
import pydarknetbn as dn
from core import CoreLayer, assert_same_bits, batchnorm, bits
from nets import cfg_of
from pydarknetbn import num_threads
from pydarknetbn._native import Array, lib, view
from pydarknetbn.dialect import PROFILES
from test_batchnorm_kernel import arrays, compare

PROFILES_ON_GPU = list(cuda_kernels.FORKS)
# Around the 512 threads of a block, and one value in each channel.
SHAPES = [(1, 3, 1), (2, 3, 1), (5, 2, 7), (3, 1, 511), (2, 3, 512), (4, 2, 513), (1, 2, 1024), (2, 5, 1700), (1, 1, 4100)]
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38], np.float32)
NAMES = ("scales", "biases", "rolling_mean", "rolling_variance")


def given(shape: tuple[int, int, int], kind: str) -> tuple[Array, Array, dict[str, Array]]:
    rng = np.random.default_rng(sum(shape))
    x, delta = rng.normal(0.5, 2, (2, *shape)).astype(np.float32)
    channels = {name: rng.normal(size=shape[1]).astype(np.float32) for name in NAMES}
    channels["rolling_variance"] = rng.gamma(1, size=shape[1]).astype(np.float32)
    if kind == "special":
        for array in (x, delta, *channels.values()):
            chosen = rng.random(array.shape) < 0.03
            array[chosen] = rng.choice(SPECIAL, int(chosen.sum()))
    elif kind == "constant":
        x[...] = x[:1, :, :1]
    elif kind == "large":
        x += np.float32(1e4)
    return x, delta, channels


def made(profile: str, shape: tuple[int, int, int], channels: dict[str, Array]) -> CoreLayer:
    layer = batchnorm(PROFILES[profile].rule("batchnorm"), shape[1], 1, shape[2])
    for name, values in channels.items():
        layer.array(name)[...] = values
    return layer


def image(array: Array) -> Array:
    return array.reshape(*array.shape[:2], 1, array.shape[2])


@pytest.mark.parametrize("kind", ["normal", "special", "constant", "large"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("profile", PROFILES_ON_GPU)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_forward_backward_and_inference_are_the_kernels(profile: str, shape: tuple[int, int, int], kind: str, threads: int) -> None:
    x, delta, channels = given(shape, kind)
    fork = cuda_kernels.FORKS[profile](**{name: values.copy() for name, values in channels.items()})
    layer = made(profile, shape, channels)
    updates = {name: np.zeros(shape[1], np.float32) for name in ("bias_updates", "scale_updates")}
    for step in range(2):  # the second adds to what the first has left
        assert_same_bits(layer.forward(image(x), train=True, degenerate=True), fork.forward(x), f"output of step {step}")
        assert_same_bits(layer.backward(image(delta)), fork.backward(delta, **updates), "delta")
        for name in ("mean", "variance", "mean_delta", "variance_delta", "x_norm"):
            assert_same_bits(layer.array(name), fork.arrays[name], name)
        for name in ("rolling_mean", "rolling_variance"):
            assert_same_bits(layer.array(name), getattr(fork, name), name)
        for name, want in updates.items():
            assert_same_bits(layer.array(name), want, name)
    got = layer.backward(image(delta), train=False)
    assert_same_bits(got, fork.untrained_backward(delta, **updates), "delta outside training")
    for name in ("mean", "variance"):  # pjreddie's are another layer's, AlexeyAB's the rolling arrays from then on
        assert_same_bits(layer.array(name), fork.arrays[name], name)
    assert_same_bits(layer.forward(image(x)), fork.infer(x), "inference")


def test_the_emulated_block_is_not_the_serial_sum() -> None:
    """What the test above could not tell apart otherwise."""
    x = given((2, 3, 1700), "normal")[0]
    serial = np.array([cuda_kernels.serial(0, x[:, f].ravel()) for f in range(3)])
    assert (bits(cuda_kernels.blocks(x)) != bits(serial.astype(np.float32))).any()


@pytest.mark.parametrize("variant", dn.cpu_info().variants[-1:])
@pytest.mark.parametrize("kind", ["normal", "special", "grid"])
@pytest.mark.parametrize("sizes", [(1, 3, 513), (3, 2, 1024), (2, 9, 1100)], ids=str)
@pytest.mark.parametrize("profile", PROFILES_ON_GPU)
def test_the_fast_passes_equal_the_plain_loops(profile: str, sizes: tuple[int, int, int], kind: str, variant: str) -> None:
    """Smaller planes are in test_batchnorm_kernel.py, for every profile."""
    rule = PROFILES[profile].rule("connected")
    for threads in (1, 2):
        for drop in (frozenset[str](), frozenset({"x", "x_norm"}), frozenset({"in place"})):
            compare("batchnorm_train", variant, threads, rule, sizes, arrays(*sizes, 5, kind), drop)
        for drop in (frozenset[str](), frozenset({"x_norm", "in place"}), frozenset({"bias_updates"})):
            for constant in (0, 1):
                compare("batchnorm_backward", variant, threads, rule, sizes, arrays(*sizes, 6, kind), drop, constant=constant)


# --- the power ------------------------------------------------------------------------------------------------------------------


def test_the_power_is_two_and_a_half_units_from_the_exact_one_at_most() -> None:
    """Every float from 1 to 4; another power of 4 changes no bit. CUDA's powf, which it stands for, is not rounded correctly."""
    w = np.arange(np.float32(1).view(np.uint32), np.float32(4).view(np.uint32), dtype=np.uint32).view(np.float32)
    exact = w.astype(np.float64) ** -1.5
    off = np.abs(cuda_kernels.powf_minus_3_halves(w) - exact) / np.spacing(exact.astype(np.float32))
    assert 2.4 < off.max() < 2.42
    assert 0.42 < off.mean() < 0.44


# --- in networks ----------------------------------------------------------------------------------------------------------------

CONVOLUTION = cfg_of("convolutional batch_normalize=1 filters=5 size=3 pad=1 activation=linear", w=24, h=24)
CONNECTED = cfg_of("connected batch_normalize=1 output=7 activation=linear", w=2, h=2)


def array_of(layer: Any, name: str) -> Array:
    pointer = getattr(layer, name)
    return view(pointer, (lib.array_size(pointer),)).copy()


@pytest.mark.parametrize("cfg", [CONVOLUTION, CONNECTED], ids=["convolutional", "connected"])
@pytest.mark.parametrize("profile", PROFILES_ON_GPU)
def test_a_batchnorm_in_a_network_is_the_kernels(profile: str, cfg: bytes, threads: int) -> None:
    """Of a connected layer the delta is brought within 1 first, and AlexeyAB's adds the gradient of the biases twice."""
    net = dn.load(cfg, profile=profile, seed=3)
    rng = np.random.default_rng(9)
    x = rng.normal(size=(3, net.c, net.h, net.w)).astype(np.float32)
    layer = net.layers[0]
    layer.scales[...] = rng.normal(size=len(layer.scales))
    layer.biases[...] = rng.normal(size=len(layer.biases))
    fork = cuda_kernels.FORKS[profile](*(getattr(layer, name).copy() for name in NAMES))
    output = net.forward(x, train=True)[0]
    shape = (3, len(layer.scales), output[0].size // len(layer.scales))
    own = layer.native.batchnorm
    assert_same_bits(output, fork.forward(array_of(own, "x").reshape(shape)), "output")
    delta = rng.normal(size=output.shape).astype(np.float32)
    net.backward(delta)
    updates = {name: np.zeros(shape[1], np.float32) for name in ("bias_updates", "scale_updates")}
    flat = delta.reshape(shape)
    if layer.type == "connected":
        flat = np.clip(flat, np.float32(-1), np.float32(1))
        for row in flat[:, :, 0] if profile != "pjreddie-cuda" else ():
            updates["bias_updates"] += row
    fork.backward(flat, **updates)
    for name, want in updates.items():
        assert_same_bits(array_of(own, name), want, name)
    for name in ("mean_delta", "variance_delta"):
        assert_same_bits(array_of(own, name), fork.arrays[name], name)
    assert_same_bits(net.forward(x)[0], fork.infer(array_of_sums(net, x).reshape(shape)), "inference")


def array_of_sums(net: dn.Network, x: Array) -> Array:
    net.forward(x, cache=True)
    return array_of(net.layers[0].native.batchnorm, "x")


@pytest.mark.parametrize("profile", PROFILES_ON_GPU)
def test_deltas_of_a_connected_layer_are_brought_within_1_and_nan_to_minus_1(profile: str) -> None:
    net = dn.load(cfg_of("connected output=4 activation=linear", w=1, h=1, c=1), profile=profile)
    net.forward(np.zeros((1, 1, 1, 1), np.float32), train=True)
    net.backward(np.array([3, -2, 0.5, np.nan], np.float32).reshape(1, 4, 1, 1))
    assert array_of(net.layers[0].native, "bias_updates").tolist() == [1, -1, 0.5, -1]


def test_the_number_of_threads_changes_no_bit() -> None:
    x, delta, channels = given((3, 37, 600), "normal")
    found = []
    for threads in (1, 2, 5):
        layer = made("alexeyab-cuda", x.shape, channels)
        with num_threads(threads):
            found.append((layer.forward(image(x), train=True), layer.backward(image(delta))))
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            assert_same_bits(got, want, "threads")
