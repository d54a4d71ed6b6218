"""No bit depends on the number of threads, on what else runs, or on a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn
from core import assert_same_bits, connected, convolutional
from pydarknetbn import BatchNorm, _native, num_threads, set_num_threads
from pydarknetbn._native import Array, lib
from pydarknetbn.dialect import PROFILES

Arrays = dict[str, Array]


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def run_batchnorm() -> Arrays:
    bn = BatchNorm(13, profile="alexeyab-cpu")
    x = normal(3, 13, 41, 37)
    got = {"output": bn.forward(x, train=True), "delta": bn.backward(x)}
    for name in ("mean", "variance", "rolling_variance", "x_norm", "scale_updates", "mean_delta", "variance_delta"):
        got[name] = getattr(bn, name).copy()
    return got | {"inference": bn.forward(x, train=False)}


def run_convolutional() -> Arrays:
    layer = convolutional("pjreddie-cpu", "mish", c=7, h=29, w=31, n=11, size=3, pad=1, batch_normalize=1)
    layer.array("weights")[...] = normal(*layer.array("weights").shape)
    return {"output": layer.forward(normal(3, 7, 29, 31), train=True), "mean": layer.array("mean").copy()}


def run_grouped() -> Arrays:
    layer = convolutional("pjreddie-cpu", "leaky", c=23, h=33, w=35, n=23, groups=23, size=3, pad=1)
    layer.array("weights")[...] = normal(*layer.array("weights").shape)
    return {"output": layer.forward(normal(2, 23, 33, 35))}


def run_connected() -> Arrays:
    layer = connected("alexeyab-cpu", "tanh", 501, 91, batch_normalize=True)
    layer.array("weights")[...] = normal(*layer.array("weights").shape)
    return {"output": layer.forward(normal(5, 501), train=True), "rolling_mean": layer.array("rolling_mean").copy()}


def run_activation() -> Arrays:
    x = normal(100_003)
    rule = _native.rule("arithmetic_rule", PROFILES["pjreddie-cpu"].layers.arithmetic)
    lib.activate_array(_native.floats(x), x.size, _native.enum("activation", "gelu"), rule, 0)
    return {"x": x}


RUNS = [run_batchnorm, run_convolutional, run_grouped, run_connected, run_activation]


def assert_equal(got: Arrays, want: Arrays) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert_same_bits(got[name], array, name)


@pytest.mark.parametrize("run", RUNS)
def test_any_number_of_threads_gives_the_same_bits(run: Callable[[], Arrays]) -> None:
    with num_threads(1):
        want = run()
    for n in (2, 3, 7, 64, 5, 2, 1):
        with num_threads(n):
            assert_equal(run(), want)


def test_calls_from_four_threads_at_once_equal_serial_ones() -> None:
    with num_threads(1):
        want = [run() for run in RUNS]
    with num_threads(3), ThreadPoolExecutor(4) as executor:
        jobs = [(i % len(RUNS), executor.submit(RUNS[i % len(RUNS)])) for i in range(60)]
        for index, job in jobs:
            assert_equal(job.result(), want[index])


def test_the_message_of_an_error_is_its_threads_own() -> None:
    def fail(groups: int) -> str:
        with pytest.raises(pydarknetbn.ShapeError) as caught:
            convolutional("pjreddie-cpu", c=groups + 1, groups=groups)
        return str(caught.value)

    with ThreadPoolExecutor(4) as executor:
        for groups, said in enumerate(executor.map(fail, range(2, 200)), start=2):
            assert f"{groups + 1} channels" in said
            assert f"into {groups} groups" in said


# The child of a fork has none of its parent's threads. In processes of their own: one that hangs is ended by its alarm.
FORKING = """
import os, signal, sys
import numpy as np
import pydarknetbn as dn

def run():
    x = np.random.default_rng(0).normal(size=(3, 13, 41, 37)).astype(np.float32)
    return dn.BatchNorm(13).forward(x, train=True).tobytes()

signal.alarm(60)
dn.set_num_threads(2)
want = run() if sys.argv[1] == "after" else None
child = os.fork()
if child == 0:
    signal.alarm(30)  # a fork does not inherit it
    dn.set_num_threads(2)
    first, second = run(), run()
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(15)
        os._exit(0 if run() == first else 4)
    grand = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    os._exit(grand or (0 if first == second and want in (None, first) else 3))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert want is None or run() == want
print("child", status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forked_child_computes_with_its_own_threads(when: str) -> None:
    """Before or after the parent's pool has started."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, when]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    assert (done.returncode, done.stdout) == (0, "child 0\n"), done.stderr


# One thread changes the number while another is within a convolution, whose workspace is cut by it.
CHANGING = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
from core import convolutional
from pydarknetbn._native import lib

running = True

def change():
    while running:
        lib.set_num_threads(1)
        lib.set_num_threads(64)

layer = convolutional("pjreddie-cpu", c=64, h=16, w=16, n=2, size=3, pad=1)
layer.array("weights")[...] = 1
x = np.ones((4, 64, 16, 16), np.float32)
want = layer.forward(x)
changer = threading.Thread(target=change)
changer.start()
same = all(np.array_equal(layer.forward(x), want) for _ in range(1000))
running = False
changer.join()
print("same" if same else "different")
"""


def test_the_number_may_change_while_another_thread_computes() -> None:
    command = [sys.executable, "-c", CHANGING, str(Path(__file__).parent)]
    apart = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc: a write past the workspace meets another mapping
    done = subprocess.run(command, env=apart, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr[-500:]


@pytest.mark.parametrize("n", [0, -1, True, False, 1.0, "2", None, 2.5, 257, 2**70])
def test_a_number_of_threads_that_is_none(n: Any) -> None:
    before = lib.get_num_threads()
    with pytest.raises(ValueError, match="number of threads from 1 to 256"):
        set_num_threads(n)
    with pytest.raises(ValueError, match="number of threads from 1 to 256"), num_threads(n):
        pass
    assert lib.get_num_threads() == before


def test_a_block_restores_the_number_also_after_an_error() -> None:
    before = lib.get_num_threads()
    with num_threads(before + 3):
        assert lib.get_num_threads() == before + 3
    assert lib.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), num_threads(before + 3):
        _ = 1 / 0
    assert lib.get_num_threads() == before


def test_more_threads_than_work() -> None:
    with num_threads(1):
        want = run_batchnorm()
    with num_threads(lib.MAX_THREADS):
        assert_equal(run_batchnorm(), want)
