"""One contender in a process of its own: `python -m benchmarks.worker SUITE CONTENDER SETTING` prints {case: result}."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

from .common import LeftOut, Setting

PREPARE = "prepare"
PATIENCE = 8
"""A case is called five times at least, but a slow one no longer than so many times the seconds asked for."""


def main(suite: str, contender: str, setting: Setting) -> None:
    """Times every case and prints medians in milliseconds."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        if suite == PREPARE:
            from .networks import prepare

            prepare(setting)
            return
        _set_threads(contender, setting.threads)
        print(json.dumps(measured(suite, contender, setting)), file=answer)
    except (ImportError, LeftOut) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        raise SystemExit(LeftOut.STATUS) from None


def measured(suite: str, contender: str, setting: Setting) -> dict[str, dict[str, float]]:
    """{case: {"ms": median, "work": multiplications and additions}}."""
    from .suites import SUITES

    clock = _cpu_seconds if setting.clock == "cpu" else time.perf_counter
    cases = SUITES[suite].cases(contender, setting)
    return {name: {"ms": _median(call, setting.seconds, clock), "work": work} for name, work, call in cases}


def _set_threads(contender: str, threads: int) -> None:
    if contender in ("torch", "both", "passive"):
        import torch

        torch.set_num_threads(threads)
    if contender in ("ours", "both", "passive", "system") or "thread" in contender:
        import pydarknetbn

        pydarknetbn.set_num_threads(threads)


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _median(call: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while True:
        start = clock()
        call()
        times.append(clock() - start)
        spent = time.perf_counter() - begin
        if spent > seconds and (len(times) >= 5 or spent > PATIENCE * seconds):
            return statistics.median(times) * 1e3


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Setting(**json.loads(sys.argv[3])))
