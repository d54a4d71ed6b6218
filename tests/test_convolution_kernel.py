"""The fast matrix product of a convolution equals the plain loops that specify it, bit by bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import assert_same_bits
from oracle import convolution
from pydarknetbn import _native, cpu_info, num_threads
from pydarknetbn._native import Array, ffi, lib
from pydarknetbn.cpu import cpu_variant

VARIANTS = cpu_info().variants
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38], np.float32)


class Case(NamedTuple):
    """The sizes of one group, in the names of the core's struct, and how many."""

    c: int
    h: int
    w: int
    n: int
    size: int
    stride_x: int
    stride_y: int
    pad_x: int
    pad_y: int
    dilation: int
    direct: bool
    batch: int
    groups: int

    @property
    def out(self) -> tuple[int, int]:
        reach = self.dilation * (self.size - 1) + 1
        return (self.h + 2 * self.pad_y - reach) // self.stride_y + 1, (self.w + 2 * self.pad_x - reach) // self.stride_x + 1

    def struct(self) -> Any:
        made = ffi.new("convolution_shape *")
        for name in ("c", "h", "w", "n", "size", "stride_x", "stride_y", "pad_x", "pad_y", "dilation", "direct"):
            setattr(made, name, getattr(self, name))
        made.out_h, made.out_w = self.out
        return made


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 5))
    dilation = draw(st.integers(1, 3))
    reach = dilation * (size - 1) + 1
    pad_x, pad_y = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    case = Case(
        c=draw(st.integers(1, 5)),
        h=draw(st.integers(max(1, reach - 2 * pad_y), 20)),
        w=draw(st.integers(max(1, reach - 2 * pad_x), 40)),
        n=draw(st.integers(1, 9)),
        size=size,
        stride_x=draw(st.integers(1, 4)),
        stride_y=draw(st.integers(1, 4)),
        pad_x=pad_x,
        pad_y=pad_y,
        dilation=dilation,
        direct=False,
        batch=draw(st.integers(1, 3)),
        groups=draw(st.integers(1, 3)),
    )
    fits = size == 1 and case.out[0] * case.out[1] <= case.h * case.w  # what the layer sees to
    return case._replace(direct=fits and draw(st.booleans()))


def arrays(case: Case, seed: int, special: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    images = case.batch * case.groups
    both = []
    for shape in ((images, case.c, case.h, case.w), (case.groups, case.n, case.c, case.size, case.size)):
        made = rng.normal(size=shape).astype(np.float32)
        if special:
            chosen = rng.random(shape) < 0.05
            made[chosen] = rng.choice(SPECIAL, int(chosen.sum()))
        both.append(made)
    return both[0], both[1]


def empty_output(case: Case) -> Array:
    """Filled with a value that no sum has, so that a pixel left out shows."""
    return np.full((case.batch * case.groups, case.n, *case.out), 12345.678, np.float32)


def fast(case: Case, x: Array, weights: Array, variant: str) -> Array:
    with cpu_variant(variant):
        return _fast(case, x, weights)


def _fast(case: Case, x: Array, weights: Array) -> Array:
    out, shape = empty_output(case), case.struct()
    threads = lib.get_num_threads()
    scratch = np.full(lib.convolve_scratch(shape) * threads, np.nan, np.float32)
    pointers = [_native.floats(array) for array in (x, weights, out, scratch)]
    lib.convolve(shape, case.batch * case.groups, case.groups, *pointers, threads)
    return out


def plain(case: Case, x: Array, weights: Array) -> Array:
    out = empty_output(case)
    pointers = [_native.floats(array) for array in (x, weights, out)]
    lib.convolve_plain(case.struct(), case.batch * case.groups, case.groups, *pointers)
    return out


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=250, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31), special=st.booleans(), n_threads=st.sampled_from([1, 2]))
def test_fast_equals_plain(variant: str, case: Case, seed: int, special: bool, n_threads: int) -> None:
    x, weights = arrays(case, seed, special)
    with num_threads(n_threads):
        got = fast(case, x, weights, variant)
    assert_same_bits(got, plain(case, x, weights), repr(case))


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=5000, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31), special=st.booleans(), n_threads=st.sampled_from([1, 2, 3, 7]))
def test_fast_equals_plain_over_many_shapes(variant: str, case: Case, seed: int, special: bool, n_threads: int) -> None:
    x, weights = arrays(case, seed, special)
    with num_threads(n_threads):
        got = fast(case, x, weights, variant)
    assert_same_bits(got, plain(case, x, weights), repr(case))


LARGE = [
    Case(16, 33, 31, 20, 3, 1, 1, 1, 1, 1, False, 2, 1),
    Case(64, 13, 13, 67, 1, 1, 1, 0, 0, 1, True, 1, 1),
    Case(1, 52, 52, 1, 3, 2, 2, 1, 1, 1, False, 1, 24),
    Case(3, 64, 48, 16, 3, 2, 1, 1, 1, 1, False, 1, 1),
    Case(40, 26, 51, 13, 3, 2, 2, 1, 1, 1, False, 2, 1),  # several blocks of channels
    Case(30, 5, 7, 200, 3, 1, 1, 1, 1, 2, False, 2, 2),  # few pixels: cut by filters
    Case(1024, 5, 7, 30, 1, 1, 1, 0, 0, 1, True, 1, 1),  # weights whose rows are a page apart
    Case(520, 6, 5, 14, 3, 1, 1, 1, 1, 1, False, 1, 1),
    Case(1, 40, 71, 1, 5, 3, 1, 2, 2, 2, False, 1, 3),
]


@pytest.mark.parametrize("special", [False, True], ids=["normal", "special"])
@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_fast_equals_plain_on_sizes_of_real_networks(variant: str, case: Case, special: bool, threads: int) -> None:
    x, weights = arrays(case, 1, special)
    assert_same_bits(fast(case, x, weights, variant), plain(case, x, weights), repr(case))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(case=cases(), seed=st.integers(0, 2**31))
def test_plain_is_the_definition(case: Case, seed: int) -> None:
    """Bound: a sum of k float products in any order is within k * 2^-24 of the sum of their magnitudes."""
    case = case._replace(direct=False, pad_x=case.dilation * (case.size // 2), pad_y=case.dilation * (case.size // 2))
    x, weights = arrays(case, seed, special=False)
    options = {
        "groups": case.groups,
        "stride_x": case.stride_x,
        "stride_y": case.stride_y,
        "pad": case.size // 2,
        "dilation": case.dilation,
    }
    x = x.reshape(case.batch, case.groups * case.c, case.h, case.w)
    weights = weights.reshape(case.groups * case.n, case.c, case.size, case.size)
    want, magnitude = convolution(x, weights, options), convolution(np.abs(x), np.abs(weights), options)
    got = plain(case, x, weights).reshape(want.shape)
    assert np.all(np.abs(got - want) <= case.c * case.size**2 * 2.0**-24 * magnitude)


def test_a_direct_product_reads_pixel_after_pixel() -> None:
    case = Case(c=2, h=2, w=3, n=1, size=1, stride_x=2, stride_y=1, pad_x=0, pad_y=0, dilation=1, direct=True, batch=1, groups=1)
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    weights = np.array([1, 100], np.float32).reshape(1, 1, 2, 1, 1)
    # four output pixels; channel k of the "matrix" starts at k * 4, not at k * 6
    want = [[[400, 501], [602, 703]]]
    assert plain(case, x, weights)[0].tolist() == want
    for variant in VARIANTS:
        assert fast(case, x, weights, variant)[0].tolist() == want
