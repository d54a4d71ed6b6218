"""[dropout] in training: what it drops, from which numbers, and what comes back."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, refusal
from pydarknetbn._native import Array

TANH = "activation activation=tanh"
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 1, 2, 3)
KEPT = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0]).reshape(X.shape)


def loaded(*sections: str, profile: str = "pjreddie-cpu", seed: int | None = None) -> dn.Network:
    return dn.load(cfg_of(*sections, c=1, h=2, w=3), dialect="pjreddie", profile=profile, seed=seed)


def test_a_kept_value_is_divided_by_the_probability_to_be_kept_and_others_are_zero() -> None:
    net = loaded("activation activation=linear", "dropout probability=.75", TANH)
    net.layers[1].mask = KEPT
    out = net.forward(X, train=True)[0]
    assert_same_bits(net.layers[0].output, np.where(KEPT, 4 * X, np.float32(0)), "in place")
    assert np.allclose(out, np.tanh(4 * X * KEPT), rtol=1e-6)


def test_inference_drops_nothing() -> None:
    net = loaded(TANH, "dropout")
    assert np.allclose(net.forward(X)[0], np.tanh(X), rtol=1e-6)
    assert net.layers[1].output is not None


def test_deltas_are_dropped_and_scaled_alike() -> None:
    net = loaded("activation activation=linear", "dropout probability=.5", "activation activation=linear")
    net.layers[1].mask = KEPT
    net.forward(X, train=True)
    assert_same_bits(net.backward(X), np.where(KEPT, 2 * X, np.float32(0)), "delta")


@pytest.mark.parametrize(("profile", "factor"), [("pjreddie-cpu", 2.0), ("textbook", 1.0)])
def test_the_layer_before_takes_its_derivative_from_what_the_dropout_left_it(profile: str, factor: float) -> None:
    """The fork has scaled the tanh y in place, and 1 - y^2 is of the scaled one; the derivative is of the one before."""
    net = loaded(TANH, "dropout probability=.5", "activation activation=linear", profile=profile)
    net.layers[1].mask = np.ones(X.shape)
    net.forward(X, train=True)
    y = factor * np.tanh(X.astype(np.float64))
    assert np.allclose(net.backward(np.ones_like(X)), 2 * (1 - y * y), rtol=1e-5, atol=1e-6)


def test_whoever_reads_the_layer_before_sees_what_was_dropped() -> None:
    """Also a route to it: the output is one array."""
    net = loaded("activation activation=linear", "dropout probability=.5", "route layers=0,1")
    net.layers[1].mask = KEPT
    out = net.forward(X, train=True)[0]
    assert_same_bits(out, np.repeat(np.where(KEPT, 2 * X, np.float32(0)), 2, axis=1), "both")
    assert_same_bits(net.backward(np.ones_like(out)), np.where(KEPT, np.float32(4), np.float32(0)), "delta")


def test_a_first_layer_leaves_the_callers_array_as_it_is() -> None:
    net = loaded("dropout probability=.5", "connected output=1 activation=linear")
    net.layers[0].mask = KEPT
    net.layers[1].weights[...] = 1
    given = X.copy()
    out = net.forward(given, train=True)[0]
    assert_same_bits(given, X, "x")
    dropped = np.where(KEPT, 2 * X, np.float32(0)).reshape(2, -1)
    assert np.allclose(out.ravel(), dropped.sum(axis=1), atol=1e-6)
    net.backward(np.array([1, 0], np.float32).reshape(2, 1, 1, 1))
    assert_same_bits(net.layers[1].weight_updates.ravel(), dropped[0], "the gradient is of the dropped input")


def test_numbers_come_from_the_networks_generator() -> None:
    """The same seed gives the same masks, another seed others; a second forward goes on; `probability` are dropped."""
    x = np.ones((1, 1, 200, 200), np.float32)

    def dropped(seed: int) -> list[Array]:
        net = dn.load(cfg_of("activation activation=linear", "dropout probability=.3", c=1, h=200, w=200), seed=seed)
        return [net.forward(x, train=True)[0] == 0 for _ in range(2)]

    first, again, other = dropped(1), dropped(1), dropped(2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])
    assert abs(first[0].mean() - 0.3) < 0.015  # 6 standard deviations of 40,000 draws


def test_a_generators_state_repeats_a_forward() -> None:
    net = loaded("activation activation=linear", "dropout")
    state = net.generator.bit_generator.state
    first = net.forward(X, train=True)[0]
    net.generator.bit_generator.state = state
    assert_same_bits(net.forward(X, train=True)[0], first, "repeated")


def test_a_mask_counts_until_it_is_taken_away() -> None:
    net = loaded("activation activation=linear", "dropout probability=.5")
    net.layers[1].mask = np.zeros(X.shape)
    for _ in range(2):
        assert not net.forward(X, train=True)[0].any()
    net.layers[1].mask = None
    assert any(net.forward(X, train=True)[0].any() for _ in range(20))


def test_wrong_masks_and_probabilities_are_refused() -> None:
    net = loaded(TANH, "dropout")
    net.layers[1].mask = np.ones((1, 1, 2, 3))
    with pytest.raises(
        dn.ShapeError, match=r"expected the mask of layer 1 \[dropout\] of shape \(2, 1, 2, 3\), got \(1, 1, 2, 3\)"
    ):
        net.forward(X, train=True)
    message = refusal(dn.CfgError, cfg_of("dropout probability=1.5"))
    assert "a dropout needs a probability from 0 to 1, got 1.5" in message


def test_dropblock_in_training_is_refused_by_name() -> None:
    net = dn.load(cfg_of(TANH, "dropout dropblock=1 dropblock_size_abs=3"), dialect="alexeyab")
    x = np.ones((1, 3, 8, 8), np.float32)
    net.forward(x)
    with pytest.raises(dn.UnsupportedError, match=r"\[dropout\] with dropblock=1 in training is not computed"):
        net.forward(x, train=True)


def test_backward_after_an_inference_forward_passes_a_dropout_over() -> None:
    net = loaded("activation activation=linear", "dropout probability=.5")
    net.forward(X, train=True)
    net.forward(X, cache=True)
    assert_same_bits(net.backward(X), X, "delta")
