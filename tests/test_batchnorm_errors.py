"""The public layer: calls that need another call before them, and arguments that mean nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pydarknetbn import BatchNorm
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import StateError

X, DELTA = np.random.default_rng(9).normal(size=(2, 4, 3)).astype(np.float32)
IMAGES = np.ones((4, 3, 2, 2), np.float32)


def test_backward_before_any_forward() -> None:
    with pytest.raises(StateError, match="needs a training forward before it"):
        BatchNorm(3).backward(DELTA)


def test_backward_after_an_inference_forward() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    bn.forward(X, train=False)
    with pytest.raises(StateError, match="the last forward was one that kept no x; backward needs a training forward before it"):
        bn.backward(DELTA)
    bn.forward(X, train=True)
    bn.backward(DELTA)


def test_backward_in_training_after_an_inference_that_kept_x() -> None:
    """Its x is not the one that mean, variance and x_norm are of."""
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    bn.forward(2 * X, train=False, cache=True)
    with pytest.raises(StateError, match="training forward"):
        bn.backward(DELTA)
    assert bn.backward(DELTA, train=False).shape == (4, 3)


def test_backward_after_inference_alone() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=False, cache=True)
    for train in (True, False):
        with pytest.raises(StateError, match="needs a training forward before it"):
            bn.backward(DELTA, train=train)


def test_backward_after_a_training_forward_that_kept_nothing() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    bn.forward(X, train=True, cache=False)
    with pytest.raises(StateError, match="forward"):
        bn.backward(DELTA)


@pytest.mark.parametrize("delta", [DELTA[:2], IMAGES, np.ones((2, 3, 2, 1), np.float32)], ids=lambda d: str(d.shape))
def test_backward_of_another_shape(delta: Any) -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    said = f"the last forward was of shape (4, 3), delta is of {delta.shape}; call forward(x, train=True)"
    with pytest.raises(StateError, match=re.escape(said)):
        bn.backward(delta)
    bn.backward(DELTA)


def test_backward_after_the_image_changed_in_inference() -> None:
    bn = BatchNorm(3)
    bn.forward(IMAGES, train=True)
    bn.forward(X, train=False, cache=True)
    for delta in (IMAGES, DELTA):
        with pytest.raises(StateError):
            bn.backward(delta)


@pytest.mark.parametrize("name", ["output", "x", "x_norm", "mean", "variance", "delta", "scale_updates", "bias_updates"])
def test_an_array_that_is_not_there_yet(name: str) -> None:
    with pytest.raises(StateError, match=f"has no {name} yet"):
        getattr(BatchNorm(3), name)


def test_backward_arrays_do_not_come_with_the_forward() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    for name in ("delta", "mean_delta", "scale_updates"):
        with pytest.raises(StateError, match=f"has no {name} yet"):
            getattr(bn, name)


def test_variance_delta_does_not_come_with_the_forward() -> None:
    """The core uses its memory for another purpose in a training forward."""
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    with pytest.raises(StateError, match="has no variance_delta yet"):
        _ = bn.variance_delta


def test_update_before_backward() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    with pytest.raises(StateError, match="update needs a backward before it"):
        bn.update(learning_rate=0.1, momentum=0.9, decay=0.0, batch=4)


def test_a_state_error_is_a_runtime_error_and_names_the_layer() -> None:
    with pytest.raises(RuntimeError, match=re.escape("BatchNorm(3, profile='alexeyab-cpu')")):
        BatchNorm(3, profile="alexeyab-cpu").backward(DELTA)


def test_inference_keeps_no_training_memory() -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=False)
    assert bn.output.shape == (4, 3)
    for name in ("x", "x_norm", "mean", "variance", "delta"):
        with pytest.raises(StateError):
            getattr(bn, name)


@pytest.mark.parametrize("batch", [0, -1])
def test_an_update_of_no_images(batch: int) -> None:
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    bn.backward(DELTA)
    with pytest.raises(ValueError, match=f"batch of 1 or more, got {batch}"):
        bn.update(learning_rate=0.1, momentum=0.9, decay=0.0, batch=batch)
    assert bn.scales.tolist() == [1, 1, 1]


@pytest.mark.parametrize("profile", ["pjreddie", "torch-nightly", "", None])
def test_an_unknown_profile_names_those_there_are(profile: Any) -> None:
    with pytest.raises(ValueError, match="expected a profile") as caught:
        BatchNorm(3, profile=profile)
    for name in PROFILES:
        assert name in str(caught.value)


@pytest.mark.parametrize("channels", [0, -3, 2.0, "3", True, None])
def test_channels_that_are_no_number_of_channels(channels: Any) -> None:
    with pytest.raises(ValueError, match="channels of 1 or more"):
        BatchNorm(channels)


def test_more_channels_than_memory() -> None:
    with pytest.raises(MemoryError):
        BatchNorm(2**60)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no gamma"):
        _ = BatchNorm(3).gamma
    assert not hasattr(BatchNorm(3), "weights")


def test_numpy_integers_are_channels() -> None:
    assert BatchNorm(np.int64(3)).scales.shape == (3,)
