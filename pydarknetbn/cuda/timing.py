"""How long a device is at work, by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from .arrays import pointer_of_stream
from .library import Library

__all__ = ["milliseconds"]


def milliseconds(
    library: Library, work: Callable[[], object], *, device: int = 0, stream: object = None, repeats: int = 1
) -> float:
    """The median of the times that a device takes for what `work` puts on a stream.

    The call is made once before, so that what is made on the first use does not count; what the host takes to put the work there
    counts as far as the device waits for it.

    Args:
        library: whose device it is.
        work: is called repeats + 1 times.
        device: its number.
        stream: that the work is put on; None: the default one.
        repeats: how many times are taken.

    Raises:
        DeviceError: the work failed.
    """
    queue = pointer_of_stream(library, stream)
    first, last = _mark(library, device), _mark(library, device)
    work()
    return median(_between(library, work, first, last, queue) for _ in range(repeats))


def _mark(library: Library, device: int) -> Any:
    made = library.ffi.new("void **")
    library.check(library.functions.gpu_make_mark(made, device), "timing")
    return library.ffi.gc(made[0], library.functions.gpu_free_mark)


def _between(library: Library, work: Callable[[], object], first: Any, last: Any, queue: Any) -> float:
    passed = library.ffi.new("float *")
    library.check(library.functions.gpu_set_mark(first, queue), "timing")
    work()
    library.check(library.functions.gpu_set_mark(last, queue), "timing")
    library.check(library.functions.gpu_time_between(first, last, passed), "timing")
    return float(passed[0])
