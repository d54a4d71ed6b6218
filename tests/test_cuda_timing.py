"""Times of a device, here of the CPU that stands for it (see `emulating.py`)."""

from __future__ import annotations

import time

import pytest

from emulating import emulated_library
from pydarknetbn.cuda.timing import milliseconds
from pydarknetbn.errors import DeviceError


def test_the_median_of_the_times_after_the_first_call_is_taken() -> None:
    waits = iter([0.2, 0.4, 0.0, 0.05])  # the first does not count
    got = milliseconds(emulated_library(), lambda: time.sleep(next(waits)), repeats=3)
    assert 50 <= got < 400
    assert next(waits, None) is None


def test_a_mark_that_was_not_set_is_told() -> None:
    library = emulated_library()
    marks = library.ffi.new("void **"), library.ffi.new("void **")
    for mark in marks:
        library.check(library.functions.gpu_make_mark(mark, 0), "a mark")
    with pytest.raises(DeviceError, match="the time between two marks"):
        library.check(library.functions.gpu_time_between(marks[0][0], marks[1][0], library.ffi.new("float *")), "times")
    for mark in marks:
        library.functions.gpu_free_mark(mark[0])


def test_a_device_that_there_is_not_has_no_times() -> None:
    with pytest.raises(DeviceError, match="choosing the device"):
        milliseconds(emulated_library(), lambda: None, device=99)
