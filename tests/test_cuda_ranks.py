"""Batch normalization over several devices: ranks take turns on one, and a gather of the test's own carries the numbers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
import pydarknetbn as dn
from emulating import emulated_library, on_real_device
from pydarknetbn.cuda import BatchNorm, DeviceArray
from pydarknetbn.cuda.library import Library
from pydarknetbn.dialect import profile_named

PATIENCE = 60.0
STATISTICS = ("mean", "variance", "rolling_mean", "rolling_variance")


def memory_of(array: DeviceArray) -> np.ndarray:
    """The memory of an array on the emulated device, which is the host's."""
    floats = np.frombuffer((ctypes.c_char * array.nbytes).from_address(array.pointer), np.float32)
    return floats.reshape(array.shape)


@dataclass
class Board:
    """One rank runs at a time; it gives its turn away where it waits for the others."""

    size: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size)

    def swap(self, rank: int, row: Any) -> list[Any]:
        self.rows[rank] = row
        self.turn.release()
        try:
            self.barrier.wait(PATIENCE)
            every = [self.rows[each] for each in range(self.size)]
            self.barrier.wait(PATIENCE)
        finally:
            self.turn.acquire()
        return every


@dataclass
class Rank:
    board: Board
    rank: int
    size: int
    merges_alone: bool = True

    def gathering(self, own: DeviceArray, rows: DeviceArray, /) -> Callable[[object], None]:
        def gather(stream: object) -> None:
            every = DeviceArray.from_numpy(own.library, np.stack(self.board.swap(self.rank, own.numpy())))
            pointers = [own.library.ffi.cast("void *", each.pointer) for each in (rows, every)]
            own.library.check(own.library.functions.gpu_copy_array(*pointers, rows.nbytes, own.library.ffi.NULL), "rows")

        return gather

    def tell(self, sentence: str, /) -> Sequence[str]:
        return self.board.swap(self.rank, sentence)


def on_ranks(size: int, work: Callable[[Rank], Any]) -> list[Any]:
    """What work gives each rank; the first error is raised."""
    board, results = Board(size), [None] * size

    def run(rank: int) -> None:
        with board.turn:
            try:
                results[rank] = work(Rank(board, rank, size))
            except Exception as error:
                results[rank] = error
                board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, threading.BrokenBarrierError):
            raise result
    return results


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


def numbers(shape: tuple[int, ...], seed: int, mean: float = 1, deviation: float = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, deviation, shape).astype(np.float32)


def parts_of(array: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(sizes)[:-1])


def trained(library: Library, x: np.ndarray, delta: np.ndarray, sizes: Sequence[int], profile: str, **options: Any) -> list[Any]:
    """One forward and backward on each rank's rows: outputs, deltas, and all arrays."""
    xs, deltas = parts_of(x, sizes), parts_of(delta, sizes)

    def work(comm: Rank) -> Any:
        layer = BatchNorm(x.shape[1], profile=profile, library=library)
        layer.push(scales=numbers((x.shape[1],), 1), biases=numbers((x.shape[1],), 2))
        layer.sync(comm, **options)
        output = layer.forward(DeviceArray.from_numpy(library, xs[comm.rank]), train=True).numpy()
        back = layer.backward(DeviceArray.from_numpy(library, deltas[comm.rank])).numpy()
        return output, back, layer.pull()

    return on_ranks(len(sizes), work)


def expected(x: np.ndarray, delta: np.ndarray, profile: str) -> tuple[oracle.Forward, oracle.Backward]:
    """One batch of all rows, in float64."""
    rule, c = profile_named(profile).rule("batchnorm"), x.shape[1]
    parameters = [numbers((c,), 1), numbers((c,), 2), np.zeros(c), np.zeros(c)]
    after = oracle.forward(rule, x.reshape(len(x), c, -1), oracle.Parameters(*map(oracle.doubles, parameters)), train=True)
    return after, oracle.backward(rule, after, delta.reshape(len(x), c, -1), train=True)


def assert_near(got: np.ndarray, wanted: np.ndarray, *, terms: int = 1) -> None:
    """Up to the rounding of float32; a sum has that of its terms, which grows with the root of their number."""
    size = max(np.abs(wanted).max(), np.sqrt(terms))
    np.testing.assert_allclose(got, wanted.reshape(got.shape), rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize("profile", ["torch", "pjreddie-cuda", "alexeyab-cpu"])
@pytest.mark.parametrize("shape", [(7, 3, 6, 6), (7, 5, 3, 3), (7, 2), (40, 1, 32, 32)])
def test_ranks_compute_the_batch_of_all_rows(library: Library, profile: str, shape: tuple[int, ...]) -> None:
    x, delta = numbers(shape, 3), numbers(shape, 4, mean=0)
    sizes = [3, 0, shape[0] - 4, 1]
    results = trained(library, x, delta, sizes, profile, reduce_params=True)
    after, back = expected(x, delta, profile)
    assert_near(np.concatenate([output for output, _, _ in results]), after.output)
    assert_near(np.concatenate([carried for _, carried, _ in results]), back.delta)
    for _, _, pulled in results:
        for name in ("mean", "variance"):
            np.testing.assert_array_max_ulp(pulled[name], getattr(after, name).astype(np.float32), 1)
        for name in ("scale_updates", "bias_updates", "mean_delta", "variance_delta"):
            assert_near(pulled[name], getattr(back, name), terms=x.size // x.shape[1])


def test_every_rank_has_the_same_bits(library: Library) -> None:
    x, delta = numbers((9, 4, 5, 5), 3), numbers((9, 4, 5, 5), 4)
    first, *others = (pulled for _, _, pulled in trained(library, x, delta, [2, 4, 3], "torch", reduce_params=True))
    for pulled in others:
        for name, array in first.items():
            np.testing.assert_array_equal(pulled[name], array, err_msg=name)


def test_gradients_of_parameters_are_the_ranks_own_unless_asked(library: Library) -> None:
    x, delta = numbers((6, 3, 4, 4), 3), numbers((6, 3, 4, 4), 4)
    own = [pulled for _, _, pulled in trained(library, x, delta, [2, 4], "torch")]
    every = trained(library, x, delta, [2, 4], "torch", reduce_params=True)[0][2]
    np.testing.assert_allclose(own[0]["bias_updates"], delta[:2].sum(axis=(0, 2, 3)), rtol=1e-5)
    for name in ("scale_updates", "bias_updates"):
        np.testing.assert_allclose(own[0][name] + own[1][name], every[name], rtol=1e-5, atol=1e-5)


def test_a_large_mean_costs_no_digit_of_the_variance(library: Library) -> None:
    x = numbers((8, 2, 16, 16), 3, mean=10_000, deviation=0.1)
    results = trained(library, x, x, [1, 5, 2], "textbook")
    wanted = x.astype(np.float64).var(axis=(0, 2, 3)).astype(np.float32)
    np.testing.assert_array_max_ulp(results[1][2]["variance"], wanted, 1)


def test_rolling_arrays_move_once_by_what_all_have(library: Library) -> None:
    x = numbers((6, 2, 4, 4), 3)
    pulled = trained(library, x, x, [1, 5], "torch")[0][2]
    np.testing.assert_allclose(pulled["rolling_mean"], 0.1 * x.mean(axis=(0, 2, 3), dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(pulled["rolling_variance"], 0.1 * x.astype(np.float64).var(axis=(0, 2, 3), ddof=1), rtol=1e-6)


@pytest.mark.parametrize(("profile", "moved"), [("torch", 0), ("textbook", 1)])
def test_one_value_of_all_ranks_moves_only_what_it_has(library: Library, profile: str, moved: int) -> None:
    x = np.full((1, 2), 3, np.float32)
    pulled = trained(library, x, x, [0, 1], profile)[0][2]
    np.testing.assert_array_equal(pulled["mean"], [3, 3])
    assert (pulled["rolling_mean"] != 0).sum() == 2 * moved
    assert np.isfinite(pulled["rolling_variance"]).all()


def test_a_single_rank_computes_as_if_it_had_none(library: Library) -> None:
    x = DeviceArray.from_numpy(library, numbers((3, 2, 5, 5), 3))
    alone, synced = (BatchNorm(2, profile="torch", library=library) for _ in range(2))
    synced.sync(Rank(Board(1), 0, 1, merges_alone=False))
    np.testing.assert_array_equal(synced.forward(x, train=True).numpy(), alone.forward(x, train=True).numpy())
    with pytest.raises(dn.ShapeError, match="expected x of shape"):
        synced.forward(DeviceArray(library, (0, 2, 5, 5)), train=True)


def test_ranks_with_other_layers_are_told_before_anything_is_computed(library: Library) -> None:
    def work(comm: Rank) -> None:
        layer = BatchNorm(2 + comm.rank, profile="torch", library=library)
        layer.sync(comm)
        layer.forward(DeviceArray.from_numpy(library, numbers((2, 2 + comm.rank, 3, 3), 1)), train=True)

    with pytest.raises(
        dn.SyncError, match=r"rank 0 has cuda.BatchNorm\(2, .*, rank 1 has cuda.BatchNorm\(3, .* has to run the same"
    ):
        on_ranks(2, work)


def test_strict_kernels_have_no_ranks(library: Library) -> None:
    layer = BatchNorm(2, profile="pjreddie-cuda", kernels="strict", library=library)
    with pytest.raises(dn.DeviceError, match="several ranks are those of the fast kernels"):
        layer.sync(Rank(Board(1), 0, 1))


def test_without_a_process_group_the_way_to_one_is_told() -> None:
    pytest.importorskip("torch")
    with pytest.raises(dn.SyncError, match="init_process_group first"):
        dn.cuda.from_torch()


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_torch_distributed_carries_the_messages(library: Library, tmp_path: Path, ranks: int) -> None:
    pytest.importorskip("torch")
    if on_real_device():
        pytest.skip("gloo reads the emulated device, whose memory is the host's")
    script = Path(__file__).with_name("torch_ranks.py")
    command = [sys.executable, str(script), str(library.path), str(tmp_path / "store"), str(ranks)]
    running = [
        subprocess.Popen([*command, str(rank), str(tmp_path / f"{rank}.npz")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=120)[0].decode() for process in running]
    assert [process.returncode for process in running] == [0] * ranks, said
    x, delta = numbers((3 * ranks, 4, 5, 5), 3), numbers((3 * ranks, 4, 5, 5), 4, mean=0)
    after, back = expected(x, delta, "torch")
    results = [np.load(tmp_path / f"{rank}.npz") for rank in range(ranks)]
    assert_near(np.concatenate([each["output"] for each in results]), after.output)
    assert_near(np.concatenate([each["delta"] for each in results]), back.delta)
    for each in results[1:]:
        np.testing.assert_array_equal(each["rolling_variance"], results[0]["rolling_variance"])
