"""dontload, dontloadscales, numload, dontsave and flipped: what of a layer a file holds."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import same_bits
from nets import cfg_of, numbered, ramp, refusal, weights_of
from pydarknetbn._native import Array

CONV = "conv filters=2 size=1 activation=linear"  # 2 biases, 6 weights of 3 channels
BN = f"{CONV} batch_normalize=1"


def body(net: dn.Network) -> Array:
    """The floats that a save writes."""
    return np.frombuffer(net.to_bytes()[net.header.nbytes :], "<f4")


def load(*sections: str, count: int, dialect: str = "pjreddie") -> dn.Network:
    net = dn.load(cfg_of(*sections), weights_of(numbered(count)), dialect=dialect)
    assert net.origin.nbytes == 20 + 4 * count
    return net


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_dontload_takes_nothing_from_the_file_and_keeps_the_start(dialect):
    net = load(CONV, f"{CONV} dontload=1", CONV.replace("2", "1"), count=8 + 3, dialect=dialect)
    first, second, third = net.layers
    assert first.weights.ravel().tolist() == [3, 4, 5, 6, 7, 8]
    fresh = dn.load(cfg_of(CONV, f"{CONV} dontload=1", CONV.replace("2", "1")), dialect=dialect)
    assert same_bits(second.weights, fresh.layers[1].weights)
    assert np.abs(second.weights).min() > 0
    assert (third.biases.item(), third.weights.ravel().tolist()) == (9, [10, 11])


def test_dontload_layer_is_written_all_the_same():
    """As the forks write it: what is loaded again with the same cfg would be too long."""
    net = load(CONV, f"{CONV} dontload=1", count=8)
    assert body(net).size == 8 + 6
    assert np.array_equal(body(net)[:8], numbered(8))
    with pytest.raises(dn.WeightsError, match=r"holds 14 floats .* takes 8"):
        dn.load(cfg_of(CONV, f"{CONV} dontload=1"), net.to_bytes(), dialect="pjreddie")
    assert np.array_equal(body(dn.load(cfg_of(CONV, CONV), net.to_bytes(), dialect="pjreddie")), body(net))


@pytest.mark.parametrize(
    ("section", "names"),
    [(BN, ["biases", "weights"]), ("connected output=2 batch_normalize=1 activation=linear", ["biases", "weights"])],
)
def test_dontloadscales_leaves_scales_and_rolling_arrays_at_their_start(section, names):
    weights = 2 * (3 if "conv" in section else 3 * 64)
    net = load(f"{section} dontloadscales=1", count=2 + weights)
    layer = net.layers[0]
    assert np.array_equal(np.concatenate([layer.params[name].ravel() for name in names]), numbered(2 + weights))
    assert (layer.scales.tolist(), layer.rolling_mean.tolist(), layer.rolling_variance.tolist()) == ([1, 1], [0, 0], [0, 0])
    assert body(net).size == 8 + weights


def test_dontloadscales_means_nothing_to_a_batchnorm_of_its_own():
    """The forks ask convolutional and connected layers alone."""
    assert load("batchnorm dontloadscales=1", count=9).layers[0].scales.tolist() == [1, 2, 3]


def test_numload_takes_the_first_filters_of_each_array():
    section = BN.replace("filters=2", "filters=4")
    net = load(f"{section} numload=2", count=2 * 4 + 2 * 3)
    layer = net.layers[0]
    assert layer.biases.tolist() == [1, 2, 0, 0]
    assert layer.scales.tolist() == [3, 4, 1, 1]
    assert layer.rolling_variance.tolist() == [7, 8, 0, 0]
    assert layer.weights[:2].ravel().tolist() == [9, 10, 11, 12, 13, 14]
    assert np.abs(layer.weights[2:]).min() > 0
    assert body(net).size == 4 * 4 + 4 * 3


def test_numload_of_more_filters_than_there_are_is_refused():
    assert "has numload=3, but only 2 filters" in refusal(dn.CfgError, cfg_of(f"{CONV} numload=3"), dialect="pjreddie")
    deconvolution = cfg_of("deconv filters=2 numload=1")
    assert "do not lie filter after filter" in refusal(dn.CfgError, deconvolution, dialect="pjreddie")


def test_dontsave_layer_is_not_written():
    net = load(f"{CONV} dontsave=1", CONV.replace("2", "1"), count=8 + 3)
    assert np.array_equal(body(net), numbered(11)[8:])


@pytest.mark.parametrize("key", ["numload=1", "dontsave=1"])
def test_fork_that_does_not_know_a_key_ignores_it_with_a_warning(key):
    net = load(f"{CONV} {key}", count=8, dialect="alexeyab")
    assert len(net.warnings) == 1
    assert f"has no option {key[:-2]} in dialect alexeyab" in net.warnings[0]
    assert np.array_equal(body(net), numbered(8))


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_flipped_weights_stand_by_filter_last_and_are_saved_as_they_stood(dialect):
    section = "conv filters=2 size=2 groups=1 activation=linear flipped=1"
    data = weights_of(numbered(2 + 2 * 12))
    net = dn.load(cfg_of(section), data, dialect=dialect)
    assert np.array_equal(net.layers[0].weights.reshape(2, 12), numbered(26)[2:].reshape(12, 2).T)
    assert net.to_bytes() == data


def test_flipped_weights_of_groups_have_the_channels_of_one():
    data = weights_of(numbered(3 + 3))
    net = dn.load(cfg_of("conv filters=3 groups=3 activation=linear flipped=1"), data, dialect="pjreddie")
    assert net.layers[0].weights.ravel().tolist() == [4, 5, 6]
    assert net.to_bytes() == data


def test_flipped_and_numload_together_take_a_matrix_of_the_first_filters():
    net = load("conv filters=3 activation=linear flipped=1 numload=2", count=2 + 6)
    assert net.layers[0].weights[:2].reshape(2, 3).tolist() == [[3, 5, 7], [4, 6, 8]]


def test_file_without_its_partial_layers_is_told_apart_in_messages():
    message = refusal(dn.WeightsError, cfg_of(CONV, f"{CONV} dontload=1"), weights_of(numbered(7)), dialect="pjreddie")
    assert "holds 7 floats" in message
    assert "takes 8" in message


def test_partial_layers_fold_like_others():
    net = load(f"{BN} dontloadscales=1", f"{CONV} dontsave=1", count=8 + 6)
    folded, report = dn.fold(net, check=ramp(3, 8, 8) / 192)
    assert [layer.index for layer in report.folded] == [0]
    assert body(folded).size == 8
