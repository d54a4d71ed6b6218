"""Denormal floats are kept; flush_denormals makes them 0 in this package's calls and nowhere else."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, noise, tiny_yolo
from pydarknetbn._native import Array, lib

SMALL = np.float32(1e-40)  # below 1.1754944e-38, the least float that is not denormal
pytestmark = pytest.mark.skipif(lib.set_flush_denormals(1) != 0, reason="the processor has no switch for denormals")
lib.set_flush_denormals(0)


def network() -> dn.Network:
    """One weight, denormal."""
    net = dn.load(cfg_of("convolutional filters=1 size=1 activation=linear", w=128, h=128, c=1))
    net.layers[0].weights[...] = SMALL
    return net


def output(net: dn.Network) -> Array:
    return net.forward(np.ones((4, 1, 128, 128), np.float32))[0]


def test_denormals_are_kept_and_flushed_in_a_block(threads):
    net = network()
    for _ in range(3):
        assert (output(net) == SMALL).all()
        with dn.flush_denormals(True):
            assert (output(net) == 0).all()
            with dn.flush_denormals(False):
                assert (output(net) == SMALL).all()
            assert (output(net) == 0).all()


def test_results_that_are_denormal_are_flushed_too(threads):
    net = network()
    net.layers[0].weights[...] = 1e-30
    x = np.full((4, 1, 128, 128), 1e-10, np.float32)
    assert 0 < net.forward(x)[0].max() < 1.2e-38
    with dn.flush_denormals(True):
        assert (net.forward(x)[0] == 0).all()


def test_a_batchnorm_flushes_in_forward_backward_and_update():
    def run(flush: bool) -> list[Array]:
        bn = dn.BatchNorm(1)
        bn.scales[...] = 1e-39
        x = np.arange(4, dtype=np.float32).reshape(4, 1)
        with dn.flush_denormals(flush):
            y = bn.forward(x, train=True)
            delta = bn.backward(x)
            bn.scale_updates[...] = 1e-39
            bn.update(learning_rate=1, momentum=1, decay=0, batch=1)
        return [y, delta, bn.scales.copy()]

    assert all(np.any(array) for array in run(False))
    assert not any(np.any(array) for array in run(True))


def test_arithmetic_of_others_in_the_block_is_as_it_was(threads):
    net = network()
    with dn.flush_denormals(True):
        output(net)
        assert (np.full(64, SMALL) * np.float32(0.5) > 0).all()
    assert (np.full(64, SMALL) * np.float32(0.5) > 0).all()


def test_an_error_ends_the_block():
    with pytest.raises(ZeroDivisionError), dn.flush_denormals(True):
        _ = 1 / 0
    assert (output(network()) == SMALL).all()
    net = tiny_yolo()
    with dn.flush_denormals(True), pytest.raises(dn.ShapeError):
        net.forward(noise(1, 3, 32, 31))
    assert (np.full(64, SMALL) * np.float32(0.5) > 0).all()


def test_other_threads_keep_their_denormals():
    net, found = network(), []

    def run() -> None:
        found.append(output(net))

    with dn.flush_denormals(True):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert (output(net) == 0).all()
    assert (found[0] == SMALL).all()


def test_without_denormals_both_ways_give_the_same_bits():
    net, x = tiny_yolo(), noise(2, 3, 32, 32)
    want = net.forward(x)
    with dn.flush_denormals(True):
        got = net.forward(x)
    for ours, theirs in zip(got, want, strict=True):
        assert_same_bits(ours, theirs, "a head")


def test_what_another_library_switched_on_does_not_count(threads):
    torch = pytest.importorskip("torch", reason="torch switches the processor's mode")
    net = network()
    assert torch.set_flush_denormal(True)
    try:
        assert (output(net) == SMALL).all()
        assert float(torch.tensor([1e-40]) * 0.5) == 0, "and still counts for the other"
    finally:
        torch.set_flush_denormal(False)
