"""A batchnorm over several ranks: its gradient, its edges, and what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import oracle
import pydarknetbn as dn
from pydarknetbn import sync
from pydarknetbn._native import Array
from pydarknetbn.dialect import PROFILES
from ranks.checks import normal
from ranks.comms import Comm
from ranks.threads import in_threads, results_in_threads

C = 4


def batchnorm(comm: Any, profile: str = "textbook", **options: Any) -> dn.BatchNorm:
    bn = dn.BatchNorm(C, profile=profile)
    bn.scales = normal(7, C, mean=1)
    bn.sync(comm, **options)
    return bn


def exact_delta(x: Array, delta: Array, scales: Array, epsilon: float) -> Any:
    """The derivative of scale * (x - mean) / sqrt(variance over n + epsilon), in float64, by its Jacobian."""
    x, delta = np.moveaxis(x, 1, 0).reshape(C, -1).astype(np.float64), np.moveaxis(delta, 1, 0).reshape(C, -1).astype(np.float64)
    n = x.shape[1]
    found = np.empty_like(x)
    for channel in range(C):
        off = x[channel] - x[channel].mean()
        root = np.sqrt(np.mean(off**2) + epsilon)
        jacobian = (np.eye(n) - 1 / n) / root - np.outer(off, off) / (n * root**3)
        found[channel] = float(scales[channel]) * (delta[channel] @ jacobian)
    return found


def test_the_gradient_is_the_exact_one_of_the_joined_batch() -> None:
    x, delta = normal(1, 9, C, 3, 2, mean=2, deviation=3), normal(2, 9, C, 3, 2)
    cut = [2, 2, 7]  # 2, none, 5 and 2 rows

    def work(comm: Any) -> tuple[Array, Array, Array]:
        bn = batchnorm(comm)
        bn.forward(np.split(x, cut)[comm.rank], train=True)
        return bn.backward(np.split(delta, cut)[comm.rank]), bn.scale_updates, bn.bias_updates

    deltas, scale_updates, bias_updates = zip(*results_in_threads(sync.local(4), work), strict=True)
    got = np.concatenate(deltas)
    want = exact_delta(x, delta, normal(7, C, mean=1), 1e-5).reshape(C, 9, 3, 2)
    np.testing.assert_allclose(got, np.moveaxis(want, 0, 1), rtol=0, atol=3e-7)
    off = x.astype(np.float64) - x.astype(np.float64).mean(axis=(0, 2, 3), keepdims=True)
    x_norm = off / np.sqrt(np.mean(off**2, axis=(0, 2, 3), keepdims=True) + 1e-5)
    for rank in range(4):
        np.testing.assert_allclose(scale_updates[rank], (delta * x_norm).sum(axis=(0, 2, 3)), rtol=0, atol=3e-6)
        np.testing.assert_allclose(bias_updates[rank], delta.sum(axis=(0, 2, 3), dtype=np.float64), rtol=0, atol=3e-6)
    alone = dn.BatchNorm(C, profile="textbook")
    alone.scales = normal(7, C, mean=1)
    alone.forward(x[:2], train=True)
    assert np.abs(alone.backward(delta[:2]) - got[:2]).max() > 0.01


@pytest.mark.parametrize("profile", ["textbook", "torch", "pjreddie-cpu", "alexeyab-cpu"])
def test_epsilons_sides_and_denominators_are_the_profiles(profile: str) -> None:
    """Against its definition in float64 on the joined batch, with a variance near the epsilons."""
    x, rule = normal(1, 8, C, 1, 1, deviation=0.003), PROFILES[profile].rule("batchnorm")

    def work(comm: Any) -> tuple[Array, Array, Array]:
        bn = batchnorm(comm, profile)
        bn.rolling_variance = np.zeros(C, np.float32)
        return bn.forward(x[4 * comm.rank :][:4], train=True), bn.rolling_mean, bn.rolling_variance

    outputs, means, variances = zip(*results_in_threads(sync.local(2), work), strict=True)
    start = oracle.Parameters(oracle.doubles(normal(7, C, mean=1)), *np.zeros((3, C)))
    want = oracle.forward(rule, x[..., 0], start, train=True)
    np.testing.assert_allclose(np.concatenate(outputs)[..., 0], want.output, rtol=0, atol=2e-6)
    for mean, variance in zip(means, variances, strict=True):
        np.testing.assert_allclose(mean, want.parameters.rolling_mean, rtol=1e-6)
        np.testing.assert_allclose(variance, want.parameters.rolling_variance, rtol=1e-6)
    other = oracle.forward(replace(rule, forward=replace(rule.forward, value=1e-4)), x[..., 0], start, train=True)
    assert np.abs(other.output - want.output).max() > 0.1


# --- who exchanges what ---------------------------------------------------------------------------------------------------------


def test_a_single_rank_is_the_plain_layer_bit_by_bit_and_sends_nothing() -> None:
    comm, x = Comm(1), normal(1, 64, C, 5, 5, mean=100)
    plain, alone = batchnorm(None, "pjreddie-cpu"), batchnorm(comm, "pjreddie-cpu")
    assert np.array_equal(plain.forward(x, train=True), alone.forward(x, train=True))
    assert np.array_equal(plain.backward(x), alone.backward(x))
    assert comm.calls == 0
    merging = batchnorm(sync.local(1)[0], "pjreddie-cpu")
    merging.forward(x, train=True)
    assert not np.array_equal(merging.variance, plain.variance)  # summed in double, not one value after another in float


def test_inference_sends_nothing() -> None:
    comm, x = Comm(2), normal(1, 3, C, 2, 2)
    bn, plain = batchnorm(comm), batchnorm(None)
    assert np.array_equal(bn.forward(x, train=False), plain.forward(x, train=False))
    assert comm.calls == 0
    bn.forward(x, train=True)
    assert comm.calls == 2  # whether all are alike, and the moments


def test_without_a_communicator_it_is_the_plain_layer_again() -> None:
    comm, x = Comm(2, others=lambda values: values + 1), normal(1, 3, C, 2, 2)
    bn = batchnorm(comm)
    bn.sync(None)
    assert np.array_equal(bn.forward(x, train=True), batchnorm(None).forward(x, train=True))
    assert comm.calls == 0
    bn.sync(Comm(2))
    bn.forward(x, train=True)
    bn.sync(None)
    with pytest.raises(dn.StateError, match="one with an exchange of statistics, and backward is not"):
        bn.backward(x)


def test_frozen_rolling_arrays_stay_and_the_statistics_are_those_of_all() -> None:
    x = normal(1, 6, C, 2, 2, mean=5)

    def work(comm: Any) -> tuple[Array, Array]:
        bn = batchnorm(comm)
        bn.freeze(parameters=False, statistics=True)
        bn.forward(x[: 2 + 2 * comm.rank], train=True)
        return bn.mean, bn.rolling_mean

    joined = np.concatenate([x[:2], x[:4]]).mean(axis=(0, 2, 3))
    for mean, rolling in results_in_threads(sync.local(2), work):
        np.testing.assert_allclose(mean, joined, rtol=1e-6)
        assert not rolling.any()


@pytest.mark.parametrize(("asked", "summed"), [(None, True), (True, True), (False, False)])
def test_gradients_are_summed_as_asked(asked: bool | None, summed: bool) -> None:
    x, delta = normal(1, 6, C), normal(2, 6, C)

    def work(comm: Any) -> Array:
        bn = batchnorm(comm, reduce_params=asked)
        rows = slice(0, 2) if comm.rank == 0 else slice(2, 6)
        bn.forward(x[rows], train=True)
        bn.backward(delta[rows])
        return bn.bias_updates.copy()

    found = results_in_threads(sync.local(2), work)
    whole = delta.sum(axis=0)
    own = [delta[:2].sum(axis=0), delta[2:].sum(axis=0)]
    for got, want in zip(found, [whole, whole] if summed else own, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_a_communicator_says_whether_its_caller_sums_gradients() -> None:
    comm = Comm(2)
    comm.reduces_parameters = False  # type: ignore[attr-defined]
    sums, own = batchnorm(comm, reduce_params=True), batchnorm(comm)
    for bn in (sums, own):
        bn.forward(normal(1, 3, C), train=True)
        bn.backward(np.ones((3, C), np.float32))
    assert (sums.bias_updates[0], own.bias_updates[0]) == (6, 3)


def test_a_snapshot_has_no_ranks() -> None:
    comm = Comm(2)
    copy = batchnorm(comm).snapshot()
    copy.forward(normal(1, 3, C), train=True)
    assert comm.calls == 0


# --- edges and errors -----------------------------------------------------------------------------------------------------------


def test_a_rank_without_rows_gets_what_the_others_have() -> None:
    x = normal(1, 5, C, 2, 2)

    def work(comm: Any) -> tuple[dn.BatchNorm, Array, Array]:
        bn = batchnorm(comm)
        rows = x[5 * comm.rank :]
        return bn, bn.forward(rows, train=True), bn.backward(rows)

    (full, *_), (empty, output, delta) = results_in_threads(sync.local(2), work)
    assert output.shape == delta.shape == (0, C, 2, 2)
    for name in ("mean", "variance", "rolling_mean", "rolling_variance", "scale_updates", "bias_updates"):
        assert np.array_equal(getattr(full, name), getattr(empty, name)), name
    with pytest.raises(dn.StateError, match="has no x yet"):
        _ = empty.x


def test_a_batch_of_no_rows_is_for_training_over_ranks() -> None:
    with pytest.raises(dn.ShapeError, match=r"expected x of shape \(N, 4, H, W\), got \(0, 4, 2, 2\)"):
        batchnorm(None).forward(np.empty((0, C, 2, 2), np.float32), train=True)
    with pytest.raises(dn.ShapeError, match="a batch of 0 images has no output"):
        batchnorm(Comm(2)).forward(np.empty((0, C, 2, 2), np.float32), train=False)


@pytest.mark.parametrize(
    ("count", "said"), [(0, "no process has a value to normalize"), (1, "one value in each channel of all processes")]
)
def test_no_rows_at_all_and_one_value_over_n_minus_1_are_told_on_every_rank(count: int, said: str) -> None:
    def work(comm: Any) -> None:
        rows = np.ones((comm.rank * count, C), np.float32)
        batchnorm(comm, "pjreddie-cpu").forward(rows, train=True)

    for error in in_threads(sync.local(2), work):
        assert isinstance(error, dn.NumericsError)
        assert said in str(error)


def test_ranks_with_other_layers_are_told_both() -> None:
    def work(comm: Any) -> None:
        bn = dn.BatchNorm(C + comm.rank // 2, profile=("torch", "textbook", "torch")[comm.rank])
        bn.sync(comm)
        bn.forward(normal(1, 3, C + comm.rank // 2), train=True)

    for error in in_threads(sync.local(3), work):
        assert isinstance(error, dn.SyncError)
        assert str(error).endswith(
            "rank 0 has BatchNorm(4, profile='torch'), rank 1 has BatchNorm(4, profile='textbook'); every rank has to run the same"
        )


@pytest.mark.parametrize("fails_at", [0, 1])
def test_what_a_communicator_raises_comes_out_and_nothing_has_moved(fails_at: int) -> None:
    bn, x = batchnorm(Comm(2, fails_at=fails_at, error=lambda: dn.SyncError("the line is dead"))), normal(1, 3, C)
    with pytest.raises(dn.SyncError, match=r"BatchNorm\(4, profile='textbook'\) on an x of shape \(3, 4\): the line is dead"):
        bn.forward(x, train=True)
    assert not bn.rolling_mean.any()
    with pytest.raises(dn.StateError):
        bn.backward(x)
    bn.sync(Comm(2))
    bn.forward(x, train=True)
    assert bn.rolling_mean.all()


def test_a_backward_that_fails_adds_to_no_gradient_and_can_be_done_again() -> None:
    comm, x = Comm(2), normal(1, 3, C)
    bn = batchnorm(comm)
    bn.forward(x, train=True)
    comm.fails_at = 0
    with pytest.raises(RuntimeError):
        bn.backward(x)
    assert not bn.scale_updates.any()
    comm.fails_at = None
    bn.backward(x)
    assert bn.scale_updates.any()


def test_an_interrupt_in_an_exchange_comes_out_as_one() -> None:
    bn = batchnorm(Comm(2, fails_at=1, error=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        bn.forward(normal(1, 3, C), train=True)


def test_a_communicator_that_gives_another_shape_is_told() -> None:
    comm = Comm(2)
    comm.size = 3
    comm.allgather = lambda values: np.zeros((2, len(values)))  # type: ignore[method-assign]
    with pytest.raises(dn.SyncError, match=r"expected allgather to give an array of shape \(3, 2\), got \(2, 2\)"):
        batchnorm(comm).forward(normal(1, 3, C), train=True)


def test_a_rank_that_dies_leaves_the_others_with_a_sentence() -> None:
    def work(comm: Any) -> Any:
        bn = batchnorm(comm)
        bn.forward(normal(1, 3, C), train=True)
        if comm.rank == 1:
            raise MemoryError
        before = bn.rolling_mean.copy()
        with pytest.raises(dn.SyncError, match=r"BatchNorm.*: rank . of 3 waited for the others for 0.3 seconds"):
            bn.forward(normal(1, 3, C), train=True)
        return np.array_equal(before, bn.rolling_mean)

    found = in_threads(sync.local(3, timeout=0.3), work)
    assert [found[0], type(found[1]), found[2]] == [True, MemoryError, True]
