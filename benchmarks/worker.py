"""One contender in a process of its own.

`python -m benchmarks.worker SUITE CONTENDER THREADS SECONDS CLOCK` prints {case: result}.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

MISSING = 3
"""Exit status where the contender is not installed."""


def main(suite: str, contender: str, threads: int, seconds: float, clock: str) -> None:
    """Times every case for that long and prints medians in milliseconds."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    from .cases import SUITES

    try:
        _set_threads(contender, threads)
        results = {}
        for name, work, call in SUITES[suite][0](contender):
            results[name] = {"ms": _median(call, seconds, _cpu_seconds if clock == "cpu" else time.perf_counter), "work": work}
    except ImportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(MISSING) from None
    print(json.dumps(results))


def _set_threads(contender: str, threads: int) -> None:
    if contender in ("torch", "both"):
        import torch

        torch.set_num_threads(threads)
    if contender in ("ours", "both", "system"):
        import pydarknetbn

        pydarknetbn.set_num_threads(threads)


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _median(call: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
