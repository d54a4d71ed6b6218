"""The fast gradients of a convolution equal the plain loops that specify them, bit by bit."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import assert_same_bits, convolutional
from pydarknetbn import _native, num_threads
from pydarknetbn._native import Array, lib
from pydarknetbn.cpu import cpu_variant
from test_convolution_kernel import LARGE, SPECIAL, VARIANTS, Case, cases

How = Literal["added", "overwritten", "overwritten by 1x1"]
HOWS: tuple[How, ...] = ("added", "overwritten", "overwritten by 1x1")


class Arrays:
    """Input, weights, delta of the output, and what was in the sums before."""

    def __init__(self, case: Case, seed: int, special: bool) -> None:
        rng = np.random.default_rng(seed)
        images = case.batch * case.groups
        kernels = (case.groups, case.n, case.c, case.size, case.size)

        def made(*shape: int) -> Array:
            array = rng.normal(size=shape).astype(np.float32)
            chosen = rng.random(shape) < (0.02 if special else 0)
            array[chosen] = rng.choice(SPECIAL, int(chosen.sum()))
            return array

        self.x, self.x_delta = (made(images, case.c, case.h, case.w) for _ in range(2))
        self.weights, self.updates = made(*kernels), made(*kernels)
        self.delta = made(images, case.n, *case.out)


def weight_gradients(case: Case, given: Arrays, variant: str | None) -> Array:
    """By the kernel of a variant; None: by the plain one."""
    updates, shape = given.updates.copy(), case.struct()
    pointers = [_native.floats(array) for array in (given.x, given.delta, updates)]
    sizes = shape, case.batch, case.groups
    if variant is None:
        lib.weight_gradients_plain(*sizes, *pointers)
        return updates
    with cpu_variant(variant):
        threads = lib.get_num_threads()
        scratch = np.full(lib.weight_gradients_scratch(shape) * threads, np.nan, np.float32)
        lib.weight_gradients(*sizes, *pointers, _native.floats(scratch), threads)
    return updates


def input_gradients(case: Case, given: Arrays, how: How, variant: str | None) -> Array:
    """What becomes of the delta that was there before; likewise."""
    into, shape = given.x_delta.copy(), case.struct()
    kind, delta = _native.enum("input_delta", how), _native.floats(given.delta)
    sizes = shape, case.batch, case.groups
    if variant is None:
        lib.input_gradients_plain(*sizes, _native.floats(given.weights), delta, kind, _native.floats(into))
        return into
    with cpu_variant(variant):
        threads = lib.get_num_threads()
        scratch = np.full(lib.input_gradients_scratch(shape) * threads, np.nan, np.float32)
        transposed = np.full_like(given.weights, np.nan)
        lib.transpose_weights(shape, case.groups, _native.floats(given.weights), _native.floats(transposed))
        last = _native.floats(into), _native.floats(scratch), threads
        lib.input_gradients(*sizes, _native.floats(transposed), delta, kind, *last)
    return into


def check(case: Case, given: Arrays, variant: str) -> None:
    assert_same_bits(weight_gradients(case, given, variant), weight_gradients(case, given, None), f"weights of {case}")
    for how in HOWS:
        got = input_gradients(case, given, how, variant)
        assert_same_bits(got, input_gradients(case, given, how, None), f"input, {how}, of {case}")


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31), special=st.booleans(), n_threads=st.sampled_from([1, 2]))
def test_fast_equals_plain(variant: str, case: Case, seed: int, special: bool, n_threads: int) -> None:
    with num_threads(n_threads):
        check(case, Arrays(case, seed, special), variant)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31), special=st.booleans(), size=st.integers(1, 9))
def test_fast_equals_plain_on_one_channel_each(variant: str, case: Case, seed: int, special: bool, size: int) -> None:
    case = case._replace(c=1, n=1, dilation=1, direct=False, size=size, h=case.h + 8, w=case.w + 8)
    check(case, Arrays(case, seed, special), variant)


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=4000, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31), special=st.booleans(), n_threads=st.sampled_from([1, 2, 3, 7]))
def test_fast_equals_plain_over_many_shapes(variant: str, case: Case, seed: int, special: bool, n_threads: int) -> None:
    with num_threads(n_threads):
        check(case, Arrays(case, seed, special), variant)


@pytest.mark.parametrize("special", [False, True], ids=["normal", "special"])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_fast_equals_plain_on_sizes_of_real_networks(variant: str, case: Case, special: bool, threads: int) -> None:
    check(case, Arrays(case, 1, special), variant)


def test_plain_sums_the_pixels_of_an_image_and_then_the_images() -> None:
    """1 + 1e8 - 1e8 is 0 in float: what an image gives is summed by itself, from its first pixel on."""
    case = Case(c=1, h=1, w=3, n=1, size=1, stride_x=1, stride_y=1, pad_x=0, pad_y=0, dilation=1, direct=True, batch=2, groups=1)
    given = Arrays(case, 0, special=False)
    given.x[...], given.updates[...] = 1, 0
    given.delta.ravel()[...] = [1, 1e8, -1e8, 1e8, -1e8, 3]
    assert weight_gradients(case, given, None).ravel().tolist() == [3]


def test_plain_spreads_each_output_over_its_window() -> None:
    case = Case(c=1, h=2, w=3, n=2, size=2, stride_x=1, stride_y=1, pad_x=0, pad_y=0, dilation=1, direct=False, batch=1, groups=1)
    given = Arrays(case, 0, special=False)
    given.weights.ravel()[...] = [1, 2, 3, 4, 0, 0, 0, 10]
    given.delta.ravel()[...] = [1, 100, 1, 0]
    given.x_delta[...] = 0.5
    spread = np.array([[1, 102, 200], [3, 314, 400]], np.float32)
    assert np.array_equal(input_gradients(case, given, "overwritten", None)[0, 0], spread)
    assert np.array_equal(input_gradients(case, given, "added", None)[0, 0], spread + np.float32(0.5))


@pytest.mark.parametrize("channels", [1, 3, 8, 19])
def test_biases_sum_the_pixels_of_an_image_and_then_the_images(channels: int, threads: int) -> None:
    layer = convolutional("textbook", c=2, h=5, w=7, n=channels, size=1)
    rng = np.random.default_rng(channels)
    x = rng.normal(size=(3, 2, 5, 7)).astype(np.float32)
    delta = rng.normal(size=(3, channels, 35)).astype(np.float32)
    layer.forward(x, train=True)
    layer.backward_whole(x, delta, np.zeros_like(x))
    want = np.zeros(channels, np.float32)
    for image in delta:
        want += np.add.accumulate(image, 1, np.float32)[:, -1]  # one float sum after another
    assert_same_bits(layer.array("bias_updates"), want, "bias_updates")


def test_what_reads_the_image_as_a_matrix_writes_it_so() -> None:
    """A kernel of one pixel that takes two of four pixels, in place of those that its stride of rows would name."""
    case = Case(c=2, h=2, w=2, n=1, size=1, stride_x=1, stride_y=2, pad_x=0, pad_y=0, dilation=1, direct=True, batch=1, groups=1)
    given = Arrays(case, 0, special=False)
    given.weights.ravel()[...] = [1, 100]
    given.delta.ravel()[...] = [2, 3]
    given.x_delta[...] = 0
    by_how = {how: input_gradients(case, given, how, None).ravel().tolist() for how in HOWS}
    assert by_how["added"] == [2, 3, 200, 300, 0, 0, 0, 0]  # the derivative of that forward
    assert by_how["overwritten"] == [2, 3, 0, 0, 200, 300, 0, 0]  # the forks' own, which is none
    assert by_how["overwritten by 1x1"][:4] == [2, 3, 200, 300]
