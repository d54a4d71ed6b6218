"""Clones compute what their network does, alone or at the same time; calls on one network wait for each other; forks are safe."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits, recorded_files
from nets import CFG, cfg_of, load_recorded, noise, tiny_yolo
from pydarknetbn._native import Array, lib

HERE = Path(__file__).parent


def assert_computes_the_same(net: dn.Network, clone: dn.Network) -> None:
    x = noise(2 * net.time_steps, net.c, net.h, net.w)
    net.reset_state()
    want = net.forward(x)
    for got, wanted in zip(clone.forward(x), want, strict=True):
        assert_same_bits(got, wanted, "a head")
    for ours, theirs in zip(clone.layers, net.layers, strict=True):
        if not ours.passes_input:
            assert_same_bits(ours.output, theirs.output, f"layer {ours.index}")


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("path", [*recorded_files("nets/*/*.weights"), *recorded_files("layers/*/*.weights")])
def test_a_clone_computes_the_same_bits_and_saves_the_same_bytes(path, share):
    net = load_recorded(path)
    assert_computes_the_same(net, net.clone(share=share))
    assert net.clone(share=share).to_bytes() == path.read_bytes()


def test_a_clone_is_told_to_be_the_same_network():
    net = tiny_yolo(dialect="pjreddie", profile="textbook")
    net.time_steps = 3
    clone = net.clone()
    for name in ("dialect", "profile", "header", "names", "why", "warnings", "origin", "folded", "time_steps", "default_resize"):
        assert getattr(clone, name) == getattr(net, name), name
    assert [layer.type for layer in clone.layers] == [layer.type for layer in net.layers]
    assert clone.detect(noise(3, 40, 40)).to_json() == net.detect(noise(3, 40, 40)).to_json()


def test_parameters_are_copies_or_the_same_arrays():
    net = tiny_yolo()
    apart, shared = net.clone(), net.clone(share=True)
    for layer, other, same in zip(net.layers, apart.layers, shared.layers, strict=True):
        for name, array in layer.params.items():
            assert_same_bits(other.params[name], array, name)
            assert not np.shares_memory(other.params[name], array)
            assert np.shares_memory(same.params[name], array)
    shared.layers[0].scales[...] = 5
    assert (net.layers[0].scales == 5).all()
    assert not (apart.layers[0].scales == 5).any()


def test_a_shared_clone_takes_no_parameters_and_keeps_them_alive():
    net, x = tiny_yolo(), noise(1, 3, 32, 32)
    want = net.forward(x)
    gc.collect()
    before = lib.arrays_held()
    clone = net.clone(share=True)
    assert lib.arrays_held() == before
    net.close()
    del net
    gc.collect()
    for got, wanted in zip(clone.forward(x), want, strict=True):
        assert_same_bits(got, wanted, "a head")
    clone.close()
    del clone
    gc.collect()
    assert lib.arrays_held() < before


def test_a_clone_starts_afresh():
    text = cfg_of("convolutional filters=2 size=1 batch_normalize=1", "crnn output_filters=2 hidden_filters=2 size=3 pad=1")
    net = dn.load(text, seed=1, dialect="alexeyab")
    x = noise(1, 3, 8, 8)
    first = net.forward(x)[0]
    second = net.forward(x)[0]
    assert not np.array_equal(first, second)
    clone = net.clone(share=True)
    with pytest.raises(dn.StateError, match="no output yet"):
        _ = clone.layers[0].output
    assert clone.state[1]["state"].shape[0] == 0
    assert_same_bits(clone.forward(x)[0], first, "from a fresh state")
    assert_same_bits(clone.layers[1].inner["self_layer"].weights, net.layers[1].inner["self_layer"].weights, "an inner layer's")


def test_layers_that_share_weights_share_those_of_the_clone():
    text = cfg_of("convolutional filters=3 size=1 batch_normalize=1", "convolutional filters=3 size=1 share_index=0")
    net = dn.load(text, seed=1, dialect="alexeyab")
    clone = net.clone()
    assert np.shares_memory(clone.layers[1].weights, clone.layers[0].weights)
    assert not np.shares_memory(clone.layers[1].weights, net.layers[0].weights)
    assert np.shares_memory(clone.layers[1].biases, clone.layers[0].biases)
    assert_computes_the_same(net, clone)


def test_training_a_copy_leaves_the_original():
    net = tiny_yolo()
    before = net.layers[0].rolling_mean.copy()
    clone = net.clone()
    clone.forward(noise(2, 3, 32, 32), train=True)
    assert_same_bits(net.layers[0].rolling_mean, before, "rolling_mean")
    assert not np.array_equal(clone.layers[0].rolling_mean, before)


def test_a_folded_network_and_one_that_is_closed():
    net = tiny_yolo()
    folded, _ = dn.fold(net)
    clone = folded.clone()
    assert_computes_the_same(folded, clone)
    with pytest.raises(dn.StateError, match="is folded"):
        clone.forward(noise(1, 3, 32, 32), train=True)
    net.close()
    with pytest.raises(dn.StateError, match="closed"):
        net.clone()


# --- threads --------------------------------------------------------------------------------------------------------------------


def on_threads(count: int, job: Callable[[int], None]) -> None:
    """Calls job(0) to job(count - 1), each on a thread of its own, started together."""
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait(60)
        job(number)

    with ThreadPoolExecutor(count) as executor:
        for done in [executor.submit(run, number) for number in range(count)]:
            done.result()


def of_batches(net: dn.Network, count: int) -> list[tuple[Array, list[Array]]]:
    batches = [noise(1 + number % 3, net.c, net.h, net.w, seed=number) for number in range(count)]
    return [(x, net.forward(x)) for x in batches]


def test_eight_clones_of_shared_parameters_give_the_bits_of_one_network():
    net = dn.load(CFG / "convolutional.cfg", seed=1)
    runs = of_batches(net, 8)
    clones = [net.clone(share=True) for _ in range(8)]

    def job(number: int) -> None:
        for turn in range(1000):
            x, want = runs[(number + turn) % 8]
            got = clones[number].forward(x, keep="all" if turn % 2 else "heads")
            assert all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(got, want, strict=True)), (number, turn)

    with dn.num_threads(2):
        on_threads(8, job)


def test_calls_on_one_network_wait_for_each_other():
    net = tiny_yolo()
    runs = of_batches(net, 8)
    picture = noise(3, 40, 40)
    found = net.detect(picture).to_json()

    def job(number: int) -> None:
        for turn in range(100):
            x, want = runs[(number + turn) % 8]
            got = net.forward(x, keep="all" if turn % 2 else "heads")
            assert all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(got, want, strict=True)), (number, turn)
            if turn % 10 == 0:
                assert net.detect(picture).to_json() == found

    on_threads(8, job)


def test_python_goes_on_while_a_network_computes():
    """One call of the core long enough to count in; with the interpreter's lock held nothing would be counted."""
    net = dn.load(cfg_of("convolutional filters=256 size=3 pad=1", w=96, h=96, c=64), seed=1)
    x, within = noise(4, 64, 96, 96), []

    def compute() -> None:
        within.append("begin")
        net.forward(x)
        within.append("end")

    with dn.num_threads(1):
        thread = threading.Thread(target=compute)
        thread.start()
        ticks = 0
        while "end" not in within:
            time.sleep(0.001)
            ticks += "begin" in within
        thread.join()
    assert ticks > 10


# --- forks ----------------------------------------------------------------------------------------------------------------------

FORKING = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np
import pydarknetbn as dn

signal.alarm(60)
dn.set_num_threads(2)
text = b"[net]\\nwidth=64\\nheight=64\\nchannels=8\\n" + b"[convolutional]\\nfilters=64\\nsize=3\\npad=1\\nbatch_normalize=1\\n" * 4
net = dn.load(text, seed=1)
x = np.random.default_rng(0).random((1, 8, 64, 64), np.float32)
want = net.forward(x, keep="heads")[0].tobytes()

def run(_=None):
    signal.alarm(30)  # a fork does not inherit it
    return all(net.forward(x, keep=keep)[0].tobytes() == want for keep in ("heads", "all", "heads"))

if sys.argv[1] == "pool":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(run, range(6)))
    sys.exit(0 if run() else 5)
busy = True

def work():
    while busy:
        net.forward(x)

thread = threading.Thread(target=work)
if sys.argv[1] == "busy":
    thread.start()
good = 0
for _ in range(5):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        os._exit(0 if run() and net.clone(share=True).forward(x)[0].tobytes() == want else 3)
    good += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
busy = False
if sys.argv[1] == "busy":
    thread.join()
print(good, run())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize(("how", "said"), [("idle", "5 True"), ("busy", "5 True"), ("pool", str([True] * 6))])
def test_forks_compute_what_their_parent_does(how, said):
    """Busy: another thread of the parent is within a forward, and so holds the network's lock, when the child is made."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr
