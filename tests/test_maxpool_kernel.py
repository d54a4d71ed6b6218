"""Maxpool, a row of windows at a time, equals its definition bit by bit, NaN and the sign of zero included."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core import CoreLayer, assert_same_bits, layer_rule
from pydarknetbn import ShapeError, _native
from pydarknetbn._native import Array, ffi
from pydarknetbn.dialect import PROFILES

LOWEST = np.finfo(np.float32).min


def defined(x: Array, want: Array, size: int, stride: tuple[int, int], offset: int) -> Array:
    """Each window from -FLT_MAX on, row after row; only what is larger counts."""
    for b, c, row, column in itertools.product(*map(range, want.shape)):
        largest = LOWEST
        for dy, dx in itertools.product(range(size), range(size)):
            y, at = row * stride[0] + dy - offset, column * stride[1] + dx - offset
            if 0 <= y < x.shape[2] and 0 <= at < x.shape[3] and x[b, c, y, at] > largest:
                largest = x[b, c, y, at]
        want[b, c, row, column] = largest
    return want


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    sides=st.tuples(st.integers(1, 11), st.integers(1, 23)),
    size=st.integers(1, 6),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.integers(0, 14),
    seed=st.integers(0, 2**31),
)
def test_maxpool_is_its_definition(sides: tuple[int, int], size: int, stride: tuple[int, int], padding: int, seed: int) -> None:
    options = ffi.new("maxpool_options *")
    options.c, (options.h, options.w), options.size, options.padding = 2, sides, size, padding
    options.stride_y, options.stride_x = stride
    try:
        layer = CoreLayer(_native.make("maxpool", options, layer_rule(PROFILES["textbook"].layers)))
    except ShapeError:
        assume(False)
    rng = np.random.default_rng(seed)
    x = rng.choice(np.array([np.nan, 0.0, -0.0, -np.inf, LOWEST, 1.5, -2.5, 3.0], np.float32), (2, 2, *sides))
    got = layer.forward(x)
    assert_same_bits(got, defined(x, np.empty_like(got), size, stride, padding // 2), "output")
