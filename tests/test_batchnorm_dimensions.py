"""The public layer over vectors, rows, images and volumes; epsilon and factors of its own; without rolling arrays."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import pytest

from core import assert_same_bits
from pydarknetbn import BatchNorm
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import NumericsError, ShapeError, StateError

ARRAYS = ("scales", "biases", "rolling_mean", "rolling_variance", "mean", "variance", "x", "x_norm", "scale_updates", "delta")
RNG = np.random.default_rng(10)
X, X2, DELTA = RNG.normal(2, 3, (3, 4, 3, 2, 6)).astype(np.float32)
SHAPES = [(4, 3, 12), (4, 3, 2, 6), (4, 3, 2, 2, 3), (4, 3, 1, 12, 1), (4, 3, 12, 1, 1)]
ONES = {"torch", "keras", "flax", "burn", "onnx-9", "onnx-14"}


def digest(bn: BatchNorm) -> str:
    return hashlib.sha256(b"".join(getattr(bn, name).tobytes() for name in ARRAYS)).hexdigest()


# --- shapes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pixels_may_lie_in_a_row_an_image_or_a_volume(shape: tuple[int, ...], profile: str) -> None:
    want, bn = BatchNorm(3, profile=profile), BatchNorm(3, profile=profile)
    image, x, delta = X, X.reshape(shape), DELTA.reshape(shape)
    assert_same_bits(bn.forward(x, train=True), want.forward(image, train=True), "forward")
    assert bn.backward(delta).shape == shape
    assert_same_bits(bn.delta, want.backward(DELTA), "backward")
    assert bn.x.shape == bn.x_norm.shape == bn.output.shape == shape
    for name in ("rolling_mean", "rolling_variance", "scale_updates", "x_norm"):
        assert_same_bits(getattr(bn, name), getattr(want, name), name)
    assert_same_bits(bn.forward(x, train=False), want.forward(image, train=False), "inference")


def test_each_channel_of_a_volume_is_normalised_by_itself() -> None:
    x = RNG.normal(size=(2, 3, 2, 4, 5)).astype(np.float32)
    x *= np.array([1, 10, 100], np.float32).reshape(1, 3, 1, 1, 1)
    y = BatchNorm(3, profile="textbook").forward(x, train=True).astype(np.float64)
    assert np.abs(y.mean((0, 2, 3, 4))).max() < 1e-6
    assert np.abs(y.std((0, 2, 3, 4)) - 1).max() < 1e-4  # epsilon 1e-5 beside variances around 1 and more


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1, 1, 1, 1)], ids=str)
def test_other_numbers_of_axes_are_refused(shape: tuple[int, ...]) -> None:
    wanted = "expected x of shape (N, 3), (N, 3, L), (N, 3, H, W) or (N, 3, D, H, W), got "
    with pytest.raises(ShapeError, match=re.escape(wanted + str(shape))):
        BatchNorm(3).forward(np.ones(shape, np.float32), train=False)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((4, 5), "(N, 3)"), ((4, 5, 2), "(N, 3, L)"), ((4, 5, 2, 2), "(N, 3, H, W)"), ((4, 5, 2, 2, 2), "(N, 3, D, H, W)")],
)
def test_another_number_of_channels_is_refused(shape: tuple[int, ...], wanted: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(f"expected x of shape {wanted}, got {shape}")):
        BatchNorm(3).forward(np.ones(shape, np.float32), train=False)


def test_a_delta_of_the_same_pixels_in_another_shape_is_refused() -> None:
    bn = BatchNorm(3)
    bn.forward(X.reshape(4, 3, 12), train=True)
    with pytest.raises(StateError, match=re.escape("the last forward was of shape (4, 3, 12), delta is of (4, 3, 2, 6)")):
        bn.backward(DELTA)


@pytest.mark.parametrize("profile", ["torch", "cudnn", "caffe", "pjreddie-cpu"])
def test_one_value_leaves_no_variance_over_n_minus_1_in_the_rolling_array(profile: str) -> None:
    """PyTorch refuses it too. Where nothing is kept, the variance over n is 0."""
    x = np.array([[3, -4]], np.float32)
    bn = BatchNorm(2, profile=profile)
    before = bn.rolling_variance.tolist()
    with pytest.raises(NumericsError, match="one value in each channel has no variance over n-1 = 0"):
        bn.forward(x, train=True)
    assert (bn.rolling_variance.tolist(), bn.num_batches_tracked) == (before, 0)
    if PROFILES[profile].rule("batchnorm").normalize_variance == "n":
        bn.track_statistics = False
        for train in (True, False):
            assert bn.forward(x, train=train).tolist() == [[0, 0]]


# --- where the rolling arrays start, and their count ----------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(PROFILES))
def test_rolling_arrays_start_and_are_reset_to_what_the_profiles_program_has(profile: str) -> None:
    bn = BatchNorm(3, profile=profile)
    start = [0, 0, 0], [float(profile in ONES)] * 3
    assert (bn.rolling_mean.tolist(), bn.rolling_variance.tolist()) == start
    bn.forward(X, train=True)
    assert (bn.rolling_mean.tolist(), bn.rolling_variance.tolist()) != start
    bn.reset(statistics=False, parameters=True)
    assert (bn.num_batches_tracked, bn.rolling_mean.tolist() != start[0]) == (1, True)
    bn.reset()
    assert (bn.rolling_mean.tolist(), bn.rolling_variance.tolist(), bn.num_batches_tracked) == (*start, 0)


def test_batches_count_where_they_move_the_rolling_arrays() -> None:
    bn, counts = BatchNorm(3), []
    for change in (lambda: None, bn.freeze, lambda: bn.freeze(statistics=False), lambda: setattr(bn, "track_statistics", False)):
        change()
        bn.forward(X, train=True)
        bn.forward(X, train=False)
        counts.append(bn.num_batches_tracked)
    assert counts == [1, 1, 2, 2]


def test_a_snapshot_has_the_count_and_neither_moves_the_other() -> None:
    bn = BatchNorm(3, profile="torch", rolling="cumulative", epsilon=0.25)
    bn.forward(X, train=True)
    copy = bn.snapshot()
    assert repr(copy) == repr(bn)
    assert copy.num_batches_tracked == 1
    held = copy.rolling_mean.copy(), copy.rolling_variance.copy()
    bn.forward(X2, train=True)
    assert (bn.num_batches_tracked, copy.num_batches_tracked) == (2, 1)
    assert_same_bits(copy.rolling_mean, held[0], "rolling_mean")
    assert_same_bits(copy.rolling_variance, held[1], "rolling_variance")
    moved = bn.rolling_variance.copy()
    assert_same_bits(copy.forward(X2, train=True), bn.output, "the same epsilon")
    assert_same_bits(copy.rolling_variance, moved, "the second of two batches, in the copy too")
    copy.reset()
    assert_same_bits(bn.rolling_variance, moved, "rolling_variance")
    assert bn.num_batches_tracked == 2


# --- epsilon and factors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "gain"), [("pjreddie-cpu", 2 / 3), ("torch", 1 / np.sqrt(1.5))])
def test_an_epsilon_of_ones_own_stays_on_the_profiles_side(profile: str, gain: float) -> None:
    bn = BatchNorm(1, profile=profile, epsilon=0.5)
    bn.rolling_variance[...] = 1
    assert bn.forward(np.array([[1]], np.float32), train=False)[0, 0] == pytest.approx(gain, rel=1e-7)


def test_an_epsilon_of_ones_own_is_the_backwards_too() -> None:
    """Of variance 1 and 0 deviations' delta: delta / root, where mean and variance take up nothing."""
    bn = BatchNorm(1, profile="pjreddie-cpu", epsilon=3.0)
    bn.forward(np.array([[0], [0], [2], [2]], np.float32), train=True)
    variance = 4 / 3
    delta = np.array([[1], [-1], [1], [-1]], np.float32)
    assert bn.backward(delta).ravel().tolist() == pytest.approx((delta.ravel() / np.sqrt(variance + 3)).tolist(), rel=1e-6)


def test_factors_of_ones_own_move_the_rolling_arrays() -> None:
    bn = BatchNorm(1, profile="torch", rolling=(0.75, 0.5))
    bn.forward(np.array([[1], [2], [3], [6]], np.float32), train=True)
    assert bn.rolling_mean.tolist() == [1.5]
    assert bn.rolling_variance[0] == pytest.approx(0.75 + 0.5 * 14 / 3, rel=1e-7)


def test_cumulative_rolling_arrays_are_the_mean_of_the_batches() -> None:
    bn = BatchNorm(1, profile="burn", rolling="cumulative")
    for values in ([0, 2], [4, 4], [5, 13]):
        bn.forward(np.array(values, np.float32).reshape(2, 1), train=True)
    assert bn.rolling_mean[0] == pytest.approx(14 / 3, rel=1e-6)  # means 1, 4, 9
    assert bn.rolling_variance[0] == pytest.approx(17 / 3, rel=1e-6)  # variances 1, 0, 16
    assert bn.num_batches_tracked == 3


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({}, "BatchNorm(3, profile='pjreddie-cpu')"),
        ({"profile": "torch", "epsilon": 1e-5, "rolling": (0.9, 0.1)}, "BatchNorm(3, profile='torch')"),
        ({"profile": "torch", "epsilon": 1e-3}, "BatchNorm(3, profile='torch', epsilon=0.001)"),
        ({"profile": "torch", "rolling": (0.5, np.float64(0.5))}, "BatchNorm(3, profile='torch', rolling=(0.5, 0.5))"),
        (
            {"profile": "keras", "rolling": "cumulative", "affine": False, "track_statistics": False, "allow_degenerate": True},
            "BatchNorm(3, profile='keras', rolling='cumulative', affine=False, allow_degenerate=True, track_statistics=False)",
        ),
        ({"epsilon": 1e-6}, "BatchNorm(3, profile='pjreddie-cpu', epsilon=1e-06)"),  # its backward has another
    ],
)
def test_what_differs_from_the_profile_is_written(options: dict[str, Any], written: str) -> None:
    assert repr(BatchNorm(3, **options)) == written
    assert repr(eval(written)) == written


@pytest.mark.parametrize("epsilon", [-1e-9, float("nan"), float("inf"), "1e-5", True])
def test_an_epsilon_that_is_none(epsilon: Any) -> None:
    with pytest.raises(ValueError, match="expected an epsilon of 0 or more, or None for the profile's, got"):
        BatchNorm(3, epsilon=epsilon)


@pytest.mark.parametrize("rolling", [0.9, (0.9,), (0.9, 0.1, 0.0), ("a", "b"), "mean", [0.9, 0.1], (0.9, float("nan"))])
def test_rolling_factors_that_are_none(rolling: Any) -> None:
    with pytest.raises(ValueError, match=r"expected rolling to be factors \(keep, add\).*or 'cumulative', got"):
        BatchNorm(3, rolling=rolling)


# --- without rolling arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(PROFILES))
def test_without_tracking_inference_normalises_with_the_batch(profile: str) -> None:
    bn, want = (BatchNorm(3, profile=profile, track_statistics=tracks) for tracks in (False, True))
    for each in (bn, want):
        each.scales[...], each.biases[...] = [2, 3, 4], [5, 6, 7]
    assert_same_bits(bn.forward(X2, train=False), want.forward(X2, train=True), "inference")
    assert_same_bits(bn.forward(X2, train=True), want.output, "training")
    assert bn.rolling_variance.tolist() == BatchNorm(3, profile=profile).rolling_variance.tolist()


@pytest.mark.parametrize("train", [True, False])
def test_without_tracking_inference_leaves_the_training_forward_to_its_backward(train: bool) -> None:
    bn, want = (BatchNorm(3, profile="alexeyab-cpu", track_statistics=False) for _ in range(2))
    for each in (bn, want):
        each.forward(X, train=True)
        each.backward(DELTA)
    before = digest(bn)
    out = bn.forward(np.ascontiguousarray(X2.reshape(6, 3, 2, 4)), train=False)
    assert digest(bn) == before
    assert bn.output is out
    assert_same_bits(bn.backward(DELTA, train=train), want.backward(DELTA), "backward")
    assert_same_bits(bn.scale_updates, want.scale_updates, "scale_updates")


def test_without_tracking_an_inference_that_keeps_x_has_a_backward_through_the_batch() -> None:
    bn, want = (BatchNorm(3, profile="torch", track_statistics=tracks) for tracks in (False, True))
    bn.forward(X, train=False, cache=True)
    want.forward(X, train=True)
    assert_same_bits(bn.backward(DELTA, train=False), want.backward(DELTA), "backward")


def test_tracking_switched_back_on_normalises_with_the_rolling_arrays_there_are() -> None:
    bn = BatchNorm(3, profile="torch", track_statistics=False)
    bn.forward(X, train=True)
    bn.track_statistics = True
    assert np.abs(bn.forward(X, train=False) - X).max() < 1e-4  # mean 0 and variance 1, with an epsilon of 1e-5 and values below 15
    bn.forward(X, train=True)
    bn.track_statistics = False
    assert bn.num_batches_tracked == 1


def test_frozen_statistics_still_normalise_an_inference() -> None:
    bn = BatchNorm(3, profile="torch")
    bn.forward(X, train=True)
    want = bn.forward(X2, train=False)
    bn.freeze()
    assert bn.track_statistics is True
    assert_same_bits(bn.forward(X2, train=False), want, "inference")
    assert_same_bits(bn.snapshot().forward(X2, train=False), want, "inference of a snapshot")
