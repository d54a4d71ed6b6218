"""The public layer: what changes when, who owns which memory, and what is refused in which words."""

from __future__ import annotations

import gc
import hashlib
from typing import Any

import numpy as np
import pytest

from core import assert_same_bits
from pydarknetbn import BatchNorm
from pydarknetbn._native import Array
from pydarknetbn.errors import DtypeError, NumericsError, ShapeError, StateError

PARAMETERS = ("scales", "biases", "rolling_mean", "rolling_variance")
WORKING = ("x", "x_norm", "output", "delta", "mean", "variance", "scale_updates", "bias_updates", "mean_delta", "variance_delta")
X, X2, DELTA = np.random.default_rng(8).normal(size=(3, 4, 3)).astype(np.float32)


def trained(**options: Any) -> BatchNorm:
    bn = BatchNorm(3, **options)
    bn.forward(X, train=True)
    bn.backward(DELTA)
    return bn


def digest(bn: BatchNorm, names: tuple[str, ...] = PARAMETERS) -> str:
    return hashlib.sha256(b"".join(getattr(bn, name).tobytes() for name in names)).hexdigest()


# --- what changes -------------------------------------------------------------------------------------------------------


def test_inference_changes_nothing_but_output() -> None:
    bn = trained()
    names = (*PARAMETERS, *(name for name in WORKING if name != "output"))
    before = digest(bn, names)
    first = bn.forward(X2, train=False)
    assert_same_bits(bn.forward(X2, train=False), first, "second inference")
    assert digest(bn, names) == before


def test_training_moves_the_rolling_arrays_alone() -> None:
    bn = BatchNorm(3)
    before = digest(bn, ("scales", "biases")), digest(bn, ("rolling_mean", "rolling_variance"))
    bn.forward(X, train=True)
    assert digest(bn, ("scales", "biases")) == before[0]
    assert digest(bn, ("rolling_mean", "rolling_variance")) != before[1]


@pytest.mark.parametrize("parameters", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_freeze_has_two_switches(parameters: bool, statistics: bool) -> None:
    bn = trained()
    bn.freeze(parameters=parameters, statistics=statistics)
    held = {name: getattr(bn, name).copy() for name in PARAMETERS}
    for x in (X, X2):
        bn.forward(x, train=True)
        bn.backward(DELTA)
        bn.update(learning_rate=0.1, momentum=0.9, decay=0.0, batch=4)
    for name in ("scales", "biases"):
        assert np.array_equal(getattr(bn, name), held[name]) == parameters, name
    for name in ("rolling_mean", "rolling_variance"):
        assert np.array_equal(getattr(bn, name), held[name]) == statistics, name


def test_freezing_parameters_alone_lets_the_statistics_drift() -> None:
    bn = trained()
    bn.freeze(statistics=False)
    before = digest(bn, ("rolling_mean", "rolling_variance"))
    bn.forward(X2, train=True)
    assert digest(bn, ("rolling_mean", "rolling_variance")) != before


def test_track_statistics_may_be_switched_at_any_time() -> None:
    bn = BatchNorm(3, track_statistics=False)
    bn.forward(X, train=True)
    assert not bn.rolling_mean.any()
    bn.track_statistics = True
    bn.forward(X, train=True)
    assert bn.rolling_mean.all()
    moved = bn.rolling_mean.copy()
    bn.track_statistics = False
    bn.forward(X, train=True)
    assert_same_bits(bn.rolling_mean, moved, "rolling_mean")
    assert bn.track_statistics is False


def test_without_affine_update_changes_neither_even_when_thawed() -> None:
    bn = trained(affine=False)
    bn.freeze(parameters=False, statistics=False)
    bn.update(learning_rate=1.0, momentum=0.9, decay=0.0, batch=1)
    assert bn.scales.tolist() == [1, 1, 1]
    assert bn.biases.tolist() == [0, 0, 0]


def test_snapshot_is_equal_and_independent() -> None:
    bn = trained(profile="alexeyab-cpu", track_statistics=False, affine=False, allow_degenerate=True)
    bn.scales[...] = [2, 3, 4]
    copy = bn.snapshot()
    assert (copy.profile, copy.track_statistics) == ("alexeyab-cpu", False)
    assert np.isnan(copy.forward(X[:1], train=True)).all(), "allow_degenerate is carried over"
    assert digest(copy) == digest(bn)
    bn.scales[...] = 7
    assert copy.scales.tolist() == [2, 3, 4]
    copy.biases[...] = 9
    assert bn.biases.tolist() == [0, 0, 0]


def test_snapshot_of_a_frozen_layer_is_frozen() -> None:
    bn = trained()
    bn.freeze()
    copy = bn.snapshot()
    before = digest(copy)
    copy.forward(X, train=True)
    copy.backward(DELTA)
    copy.update(learning_rate=1.0, momentum=0.9, decay=0.0, batch=1)
    assert digest(copy) == before


def test_reset_statistics_or_parameters() -> None:
    bn = trained()
    bn.scales[...], bn.biases[...] = 5, 6
    bn.reset()
    assert not bn.rolling_mean.any()
    assert not bn.rolling_variance.any()
    assert bn.scales.tolist() == [5, 5, 5]
    bn.rolling_mean[...] = 1
    bn.reset(statistics=False, parameters=True)
    assert (bn.scales.tolist(), bn.biases.tolist()) == ([1, 1, 1], [0, 0, 0])
    assert bn.rolling_mean.tolist() == [1, 1, 1]


# --- memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PARAMETERS, *WORKING])
def test_a_view_outlives_its_layer(name: str) -> None:
    bn = trained()
    view = getattr(bn, name)
    before = view.copy()
    del bn
    gc.collect()
    others = [trained() for _ in range(50)]
    assert_same_bits(view, before, name)
    view += 1
    assert len(others) == 50


@pytest.mark.parametrize("name", WORKING)
def test_a_view_outlives_a_larger_forward(name: str) -> None:
    bn = trained()
    view = getattr(bn, name)
    shape = view.shape
    large = np.zeros((500, 3, 3, 3), np.float32)
    bn.forward(large, train=True)
    bn.backward(large)
    view.sum()
    assert view.shape == shape


@pytest.mark.parametrize("name", ["x", "x_norm", "delta"])
def test_a_view_is_never_larger_than_what_the_array_holds(name: str) -> None:
    bn = trained()
    held = getattr(bn, name).size
    bn.forward(np.ones((5000, 3, 8, 8), np.float32), train=False)
    try:
        size = getattr(bn, name).size  # the view itself must not reach a message: it could be of foreign memory
    except StateError:
        return
    assert size <= held


def test_views_are_the_layers_memory() -> None:
    bn = BatchNorm(2)
    bn.scales[1] = 3
    assert bn.scales.tolist() == [1, 3]
    bn.biases = np.array([4, 5], np.float32)
    view = bn.biases
    bn.biases = np.array([6, 7], np.float32)
    assert view.tolist() == [6, 7], "assigning copies into the same memory"


def test_out_is_written_and_returned() -> None:
    bn, other = BatchNorm(3), BatchNorm(3)
    out = np.empty_like(X)
    assert bn.forward(X, train=True, out=out) is out
    assert_same_bits(out, other.forward(X, train=True), "out")
    assert bn.backward(DELTA, out=out) is out
    assert_same_bits(out, other.backward(DELTA), "out")


def test_in_place_and_from_its_own_output() -> None:
    want = BatchNorm(3).forward(X, train=True)
    same = X.copy()
    bn = BatchNorm(3)
    bn.forward(same, train=True, out=same)
    assert_same_bits(same, want, "in place")
    again = BatchNorm(3).forward(want, train=True)
    first = bn.x
    bn.forward(X, train=True, out=first)
    assert_same_bits(first, want, "into the layer's own x")
    bn = BatchNorm(3)
    bn.forward(X, train=True)
    assert_same_bits(bn.forward(bn.output, train=True), again, "its own output")


# --- refused ------------------------------------------------------------------------------------------------------------

BAD_ARRAYS = [
    (X.astype(np.float64), DtypeError, r"expected x of float32, got float64; use x\.astype\(numpy\.float32\)"),
    (X.astype(np.int32), DtypeError, "got int32"),
    (X.astype(">f4"), DtypeError, "float32"),
    (X.tolist(), DtypeError, "expected x to be a NumPy array of float32, got list"),
    (None, DtypeError, "got NoneType"),
    (X.reshape(2, 2, 3), ShapeError, r"\(N, 3, L\), got \(2, 2, 3\)"),
    (np.zeros((4, 5), np.float32), ShapeError, r"\(N, 3\), got \(4, 5\)"),
    (np.zeros((4, 5, 2, 2), np.float32), ShapeError, r"\(N, 3, H, W\), got \(4, 5, 2, 2\)"),
    (np.zeros((0, 3), np.float32), ShapeError, r"got \(0, 3\)"),
    (np.zeros((2, 3, 0, 4), np.float32), ShapeError, r"got \(2, 3, 0, 4\)"),
    (np.zeros((3, 4), np.float32).T, ShapeError, "C-contiguous"),
    (np.zeros((8, 3), np.float32)[::2], ShapeError, "C-contiguous"),
    (np.broadcast_to(np.float32(1), (4, 3)), ShapeError, "C-contiguous|read-only"),
]


@pytest.mark.parametrize(("x", "error", "said"), BAD_ARRAYS, ids=range(len(BAD_ARRAYS)))
def test_a_bad_array_is_refused_and_leaves_the_layer_as_it_was(x: Any, error: type[Exception], said: str) -> None:
    bn = trained()
    before = digest(bn, (*PARAMETERS, *WORKING))
    with pytest.raises(error, match=said):
        bn.forward(x, train=True)
    with pytest.raises(error):
        bn.backward(x)
    assert digest(bn, (*PARAMETERS, *WORKING)) == before
    bn.backward(DELTA)


def test_read_only_is_refused() -> None:
    x = X.copy()
    x.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        BatchNorm(3).forward(x, train=True)


def test_a_batch_that_cannot_be_normalised_leaves_the_layer_as_it_was() -> None:
    bn = trained()
    before = digest(bn, (*PARAMETERS, *WORKING))
    with pytest.raises(NumericsError):
        bn.forward(X[:1], train=True)
    assert digest(bn, (*PARAMETERS, *WORKING)) == before
    assert bn.output.shape == X.shape
    again = trained()
    assert_same_bits(bn.backward(X2), again.backward(X2), "backward of the last forward that succeeded")


def test_a_wrong_out_is_refused_before_anything_moves() -> None:
    bn = BatchNorm(3)
    before = digest(bn)
    with pytest.raises(ShapeError, match=r"out of shape \(4, 3\), got \(3, 4\)"):
        bn.forward(X, train=True, out=np.empty((3, 4), np.float32))
    with pytest.raises(DtypeError, match="out"):
        bn.forward(X, train=True, out=np.empty((4, 3)))
    assert digest(bn) == before


@pytest.mark.parametrize("name", PARAMETERS)
def test_assigning_a_parameter_of_another_shape_is_refused(name: str) -> None:
    bn = trained()
    before: Array = getattr(bn, name).copy()
    with pytest.raises(ShapeError, match=rf"{name} of shape \(3\), got \(4,\)"):
        setattr(bn, name, np.ones(4, np.float32))
    with pytest.raises(DtypeError):
        setattr(bn, name, [1, 2, 3])
    assert_same_bits(getattr(bn, name), before, name)
