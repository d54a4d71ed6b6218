"""Moments of batches and their merge, and ranks that are threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pydarknetbn as dn
from pydarknetbn import sync
from pydarknetbn._native import Array
from ranks.threads import in_threads

# --- moments ----------------------------------------------------------------------------------------------------------------


def test_moments_of_1_2_3_4() -> None:
    found = sync.local_stats(np.array([1, 2, 3, 4], np.float32).reshape(4, 1))
    assert (found.n, found.mean.tolist(), found.m2.tolist()) == (4, [2.5], [5.0])
    assert found.variance(unbiased=False).tolist() == [1.25]
    assert found.variance(unbiased=True).tolist() == [pytest.approx(5 / 3, rel=1e-15)]


def test_channels_are_the_second_axis_of_any_shape() -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float32)
    for shape in ((8, 3), (2, 3, 4), (2, 3, 2, 2), (1, 3, 2, 2, 2)):
        found = sync.local_stats(x.reshape(shape))
        assert found.n == 8
        assert found.mean.shape == (3,)
    assert sync.local_stats(x.reshape(2, 3, 4)).mean.tolist() == [7.5, 11.5, 15.5]


def test_a_vector_has_no_channels() -> None:
    with pytest.raises(dn.ShapeError, match=r"expected x of shape \(batch, c, ...\), got \(4,\)"):
        sync.local_stats(np.zeros(4, np.float32))


def test_an_empty_batch_changes_nothing() -> None:
    some = sync.local_stats(np.array([[1.0], [5.0]], np.float32))
    empty = sync.local_stats(np.empty((0, 1, 3), np.float32))
    for parts in ([empty, some], [some, empty], [empty, some, empty]):
        merged = sync.merge(parts)
        assert (merged.n, merged.mean.tolist(), merged.m2.tolist()) == (2, [3.0], [8.0])
    assert sync.merge([empty, empty]).n == 0


@pytest.mark.parametrize(("n", "unbiased", "over"), [(1, True, "n-1 = 0"), (0, False, "n = 0")])
def test_too_few_values_have_no_variance(n: int, unbiased: bool, over: str) -> None:
    found = sync.local_stats(np.ones((n, 2), np.float32))
    with pytest.raises(dn.NumericsError, match=f"{n} values in each channel have no variance over {over}; give a larger batch"):
        found.variance(unbiased=unbiased)


def test_other_channels_do_not_merge() -> None:
    parts = [sync.local_stats(np.zeros((2, c), np.float32)) for c in (2, 3)]
    with pytest.raises(dn.ShapeError, match="expected moments of 2 channels, got those of 3"):
        sync.merge(parts)
    with pytest.raises(dn.ShapeError, match="expected moments to merge, got none"):
        sync.merge([])


RANKS = (4096, 1, 700, 2048)


@pytest.mark.parametrize(("mean", "deviation", "limit"), [(0, 1, 1e-15), (100, 1, 1e-14), (1e3, 0.1, 1e-12), (1e4, 0.1, 1e-11)])
def test_the_merged_variance_does_not_cancel(mean: float, deviation: float, limit: float) -> None:
    """Against all values at once in the double of the machine's longest float; sums of x and x^2 in float lose all of it."""
    rng = np.random.default_rng(1)
    parts = [rng.normal(mean, deviation, (n, 1)).astype(np.float32) for n in RANKS]
    whole = np.concatenate(parts).astype(np.longdouble)
    want = np.square(whole - whole.mean()).mean()
    got = sync.merge(map(sync.local_stats, parts)).variance(unbiased=False)[0]
    assert abs(got - want) <= limit * want
    if mean >= 1e3:
        sums = [part.sum(dtype=np.float32) for part in parts], [np.square(part).sum(dtype=np.float32) for part in parts]
        total, squares, n = np.float32(sum(sums[0])), np.float32(sum(sums[1])), np.float32(sum(RANKS))
        assert abs(squares / n - np.square(total / n) - want) > 0.5 * want


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_any_cut_of_a_batch_has_its_moments(sizes: list[int], seed: int) -> None:
    x = np.random.default_rng(seed).normal(3, 2, (sum(sizes) + 1, 4)).astype(np.float32)
    cuts = np.split(x, np.cumsum(sizes))
    got, want = sync.merge(map(sync.local_stats, cuts)), sync.local_stats(x)
    assert got.n == want.n
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(got.m2, want.m2, rtol=1e-13, atol=1e-13)


def test_a_message_is_the_moments() -> None:
    found = sync.local_stats(np.arange(12, dtype=np.float32).reshape(4, 3))
    back = sync.Moments.of_message(found.message())
    assert found.message().shape == (7,)
    assert (back.n, back.mean.tolist(), back.m2.tolist()) == (found.n, found.mean.tolist(), found.m2.tolist())


# --- ranks that are threads -------------------------------------------------------------------------------------------------


def test_each_rank_gets_all_rows_in_the_order_of_ranks() -> None:
    def work(comm: Any) -> Array:
        first = comm.allgather(np.array([comm.rank, 10.0]))
        return np.concatenate([first, comm.allgather(np.array([comm.rank, 20.0]))])

    for found in in_threads(sync.local(4), work):
        assert found.tolist() == [[0, 10], [1, 10], [2, 10], [3, 10], [0, 20], [1, 20], [2, 20], [3, 20]]


def test_ranks_of_unequal_messages_are_told() -> None:
    found = in_threads(sync.local(2), lambda comm: comm.allgather(np.zeros(3 + comm.rank)))
    assert all(isinstance(each, dn.ShapeError) for each in found)
    assert str(found[1]) == "rank 1 of 2 brings 4 values; other ranks bring [3, 4]"


def test_a_rank_that_never_comes_is_told() -> None:
    comm = sync.local(2, timeout=0.05)[0]
    with pytest.raises(dn.SyncError, match=r"rank 0 of 2 waited for the others for 0.05 seconds, or one of them failed"):
        comm.allgather(np.zeros(1))


def test_no_rank_is_no_communicator() -> None:
    with pytest.raises(ValueError, match="expected 1 rank or more, got 0"):
        sync.local(0)


def test_torch_without_a_group_is_told() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(dn.SyncError, match=r"call torch.distributed.init_process_group first"):
        sync.from_torch()
