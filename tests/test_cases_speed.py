"""Trouble with speed, memory and threads that users of other programs have reported; what grows over 2,000 calls: test_memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import TINY, cfg_of, noise, tiny_yolo
from pydarknetbn._native import Array, lib

FULL_HD = (1080, 1920)


def frame(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def steps(call: Callable[[], object]) -> int:
    """How many instructions of Python, in whatever function, a call runs."""
    count = 0

    def trace(where: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        where.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def most(call: Callable[[], object]) -> int:
    """Bytes that Python and NumPy held at most during a call, beyond those before it."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    call()
    return tracemalloc.get_traced_memory()[1] - before


# --- a picture of 1080p ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stretch", "letterbox"])
def test_large_picture_takes_as_many_steps_of_python_as_a_small_one(how):
    net = tiny_yolo()
    few, many = (frame(*size) for size in ((54, 96), FULL_HD))

    def run(picture: Array) -> None:
        net.forward(dn.image.fit(dn.image.from_array(picture), net.w, net.h, how=how)[np.newaxis])

    run(few)  # what is done once is done
    small = steps(lambda: run(few))
    assert 100 < small < 5000
    assert steps(lambda: run(many)) == small


def test_python_that_visits_each_value_is_seen():
    values = noise(1, 1, 8, 8).ravel()
    assert steps(lambda: [value + 1 for value in values]) > 64 * 2


@pytest.mark.usefixtures("traced")
def test_large_picture_takes_less_than_twice_its_floats():
    picture = frame(*FULL_HD)
    assert most(lambda: dn.resize(dn.image.from_array(picture), 416, 416)) < 2 * 4 * picture.size


@pytest.mark.usefixtures("traced")
def test_contiguous_planes_pass_without_a_copy():
    """Neither Python nor the core takes as much as the input has."""
    net, x = dn.load(cfg_of("max size=26 stride=26", w=416, h=416, c=3)), noise(1, 3, 416, 416)
    net.forward(x)
    lib.reset_arrays_peak()
    held = lib.arrays_held()
    assert most(lambda: net.forward(x)) < x.nbytes / 10
    assert lib.arrays_peak() - held < x.nbytes / 10


# --- threads and memory ---------------------------------------------------------------------------------------------------------


def test_four_inputs_on_four_threads_give_what_they_give_in_turn():
    net = tiny_yolo()
    inputs = [noise(1, net.c, net.h, net.w, seed=number) for number in range(4)]
    want = [[head.tobytes() for head in net.forward(x)] for x in inputs]

    def job(number: int) -> bool:
        return all([head.tobytes() for head in net.forward(inputs[number])] == want[number] for _ in range(200))

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(job, range(4))) == [True] * 4


def test_four_networks_of_the_same_bytes_on_four_threads():
    data, text, x = tiny_yolo().to_bytes(), TINY.read_bytes(), noise(1, 3, 32, 32)
    want = [head.tobytes() for head in dn.load(text, data).forward(x)]

    def job(_: int) -> bool:
        with dn.load(text, data) as net:
            return all([head.tobytes() for head in net.forward(x)] == want for _ in range(50))

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(job, range(4))) == [True] * 4


def test_output_outlives_its_network_and_closing_twice_is_harmless():
    net, x = tiny_yolo(), noise(1, 3, 32, 32)
    net.forward(x)
    output = net.layers[0].output
    want = output.copy()
    net.close()
    net.close()
    del net
    tiny_yolo().forward(x)  # comes into that memory, were it free
    assert np.array_equal(output, want)


def test_load_that_fails_half_way_holds_no_arrays():
    data, text = tiny_yolo().to_bytes(), TINY.read_bytes()
    held = lib.arrays_held()
    for end in (len(data) // 2, len(data) - 4):
        with pytest.raises(dn.WeightsError):
            dn.load(text, data[:end])
    assert lib.arrays_held() == held
