"""x_norm is made of x, mean and variance when it is asked for, and what it stands for never changes by that."""

from __future__ import annotations

import numpy as np
import pytest

from core import assert_same_bits
from pydarknetbn import BatchNorm
from pydarknetbn._native import lib
from pydarknetbn.errors import StateError

X, X2, DELTA = np.random.default_rng(8).normal(size=(3, 4, 3)).astype(np.float32)


def test_a_training_step_keeps_x_and_arrays_of_channels_alone() -> None:
    x = np.random.default_rng(9).normal(size=(4, 3, 64, 64)).astype(np.float32)
    bn = BatchNorm(3)
    before = lib.arrays_held()
    bn.forward(x, train=True)
    bn.backward(x)
    assert lib.arrays_held() - before == x.nbytes + 6 * bn.mean.nbytes
    asked = bn.x_norm
    assert lib.arrays_held() - before == 2 * x.nbytes + 6 * bn.mean.nbytes
    bn.forward(x, train=True)
    del asked
    assert lib.arrays_held() - before == x.nbytes + 6 * bn.mean.nbytes


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "torch"])
def test_asking_for_x_norm_changes_no_bit_of_what_follows(profile: str) -> None:
    got = {}
    for asks in (False, True):
        bn = BatchNorm(3, profile=profile)
        outputs = []
        for x in (X, X2):
            bn.forward(x, train=True)
            outputs += [bn.x_norm.copy()] if asks else []
            outputs.append(bn.backward(DELTA))
        outputs.append(bn.backward(DELTA, train=False))
        bn.forward(X, train=False, cache=True)
        outputs += [bn.backward(DELTA, train=False), bn.scale_updates.copy(), bn.x_norm.copy()]
        got[asks] = outputs[1:2] + outputs[3:] if asks else outputs
    for without, with_ in zip(got[False], got[True], strict=True):
        assert_same_bits(without, with_, profile)


def test_x_norm_is_of_the_last_training_forward_whatever_x_is() -> None:
    bn, other = BatchNorm(3), BatchNorm(3)
    for each in (bn, other):
        each.forward(X, train=True)
    want = other.x_norm
    bn.forward(X2, train=False)
    bn.forward(X2, train=False, cache=True)
    assert_same_bits(bn.x, X2, "x of the inference")
    assert_same_bits(bn.x_norm, want, "x_norm of the training")
    view = bn.x_norm
    bn.forward(X2, train=True)
    assert_same_bits(view, want, "a view stays what it was")
    assert not np.array_equal(bn.x_norm, want)


def test_a_training_forward_that_keeps_no_x_leaves_no_x_norm() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    bn.forward(X2, train=True, cache=False)
    with pytest.raises(StateError, match="has no x_norm yet"):
        _ = bn.x_norm


def test_backward_from_and_into_arrays_of_the_layer() -> None:
    """Each is read whole before a value of it changes."""
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    want = bn.backward(DELTA)
    for name in ("x", "x_norm"):
        bn = BatchNorm(3)
        bn.forward(X, train=True)
        out = getattr(bn, name)
        assert_same_bits(bn.backward(DELTA, out=out), want, f"into {name}")
        assert bn.delta is out
    bn, copy = BatchNorm(3), BatchNorm(3)
    for each in (bn, copy):
        each.forward(X, train=True)
    assert_same_bits(bn.backward(bn.x_norm), copy.backward(copy.x_norm.copy()), "delta is x_norm")
