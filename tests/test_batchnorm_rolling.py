"""The batches that the rolling arrays hold: their count, and rolling arrays that are the mean of all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pydarknetbn as dn
from core import CoreLayer, assert_same_bits, batchnorm
from pydarknetbn import _native
from pydarknetbn._native import Array, lib
from pydarknetbn.dialect import PROFILES

CUMULATIVE = replace(PROFILES["torch"].rule("batchnorm"), rolling="cumulative")
BATCHES = np.random.default_rng(33).uniform(-2, 2, (7, 4, 3, 2, 2)).astype(np.float32) + np.arange(7, dtype=np.float32).reshape(
    7, 1, 1, 1, 1
)


def train(layer: CoreLayer, batches: Array) -> CoreLayer:
    for x in batches:
        layer.forward(x, train=True)
    return layer


def test_cumulative_rolling_arrays_are_the_mean_of_all_batches():
    layer = train(batchnorm(CUMULATIVE, 3, 2, 2), BATCHES)
    doubles = BATCHES.astype(np.float64)
    # Seven moves of values below 8, each off by at most three units of 2^-22.
    limit = 7 * 3 * 2.0**-22
    assert np.abs(layer.array("rolling_mean") - doubles.mean((1, 3, 4)).mean(0)).max() <= limit
    assert np.abs(layer.array("rolling_variance") - doubles.var((1, 3, 4), ddof=1).mean(0)).max() <= limit


def test_the_first_batch_is_taken_whole_and_the_second_halves_it():
    layer = batchnorm(CUMULATIVE, 1)
    layer.array("rolling_mean")[...] = 100
    got = []
    for value in (8, 4, 3):
        train(layer, np.full((1, 2, 1, 1, 1), value, np.float32))
        got.append(float(layer.array("rolling_mean")[0]))
    assert got == [8, 6, 5]


@pytest.mark.parametrize("profile", list(PROFILES))
def test_every_training_forward_that_moves_the_rolling_arrays_counts(profile):
    layer = batchnorm(PROFILES[profile].rule("batchnorm"), 3, 2, 2)
    counts = [train(layer, BATCHES[:2]).native.num_batches_tracked]
    layer.forward(BATCHES[0])
    layer.native.freeze_statistics = True
    counts.append(train(layer, BATCHES[:1]).native.num_batches_tracked)
    layer.native.freeze_statistics = False
    counts.append(train(layer, BATCHES[:1]).native.num_batches_tracked)
    assert counts == [2, 2, 3]


def test_a_failed_forward_does_not_count():
    layer = batchnorm(PROFILES["pjreddie-cpu"].rule("batchnorm"), 3)
    with pytest.raises(dn.NumericsError):
        layer.forward(BATCHES[0][:1, :, :1, :1].copy(), train=True)
    assert layer.native.num_batches_tracked == 0


@pytest.mark.parametrize("share", [False, True])
def test_a_clone_goes_on_counting_where_its_layer_was(share):
    layer = train(batchnorm(CUMULATIVE, 3, 2, 2), BATCHES[:3])
    clone = CoreLayer(_native.clone(layer.native, share=share))
    assert train(clone, BATCHES[3:4]).native.num_batches_tracked == 4
    assert layer.native.num_batches_tracked == 3
    if not share:
        assert_same_bits(clone.array("rolling_mean"), train(layer, BATCHES[3:4]).array("rolling_mean"), "rolling_mean")


def test_reset_starts_the_count_again_and_parameters_leave_it():
    layer = train(batchnorm(CUMULATIVE, 3, 2, 2), BATCHES[:3])
    _native.check(lib.reset_batchnorm_layer(layer.native, False, True))
    assert layer.native.num_batches_tracked == 3
    _native.check(lib.reset_batchnorm_layer(layer.native, True, False))
    fresh = batchnorm(CUMULATIVE, 3, 2, 2)
    assert layer.native.num_batches_tracked == fresh.native.num_batches_tracked == 0
    assert_same_bits(
        train(layer, BATCHES[:2]).array("rolling_variance"), train(fresh, BATCHES[:2]).array("rolling_variance"), "rolling_variance"
    )
