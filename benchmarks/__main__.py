"""Runs the suites and prints medians and ratios.

Each contender runs in a process of its own, since thread pools that share a process slow each other down; rounds are interleaved,
so that a busy moment of the machine meets all. The ratio is the contender's time over ours: above 1 we are faster.
On a machine that others use too, `--threads 1 --clock cpu` counts the processor's time instead of the wall's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

from .cases import SUITES
from .worker import MISSING

Results = dict[str, dict[str, dict[str, float]]]
"""{case: {contender: {"ms": median, "work": multiplications and additions}}}"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all where none is named")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case in each round")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: with one thread, where others compute too")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"no suite is named {unknown[0]}; there are {', '.join(SUITES)}")
    results: Results = {}
    for name in options.suites or SUITES:
        results |= measured(name, options.rounds, (str(options.threads), str(options.seconds), options.clock))
    if options.json:
        print(json.dumps({"threads": options.threads, "clock": options.clock, "cpu": _cpu(), "results": results}, indent=1))
        return
    print(f"{_cpu()}, {options.threads} threads, {options.clock} clock; medians of {options.rounds} rounds")
    for case, contenders in results.items():
        print(f"{case:<44}" + "   ".join(_cell(name, contenders) for name in contenders))


def measured(suite: str, rounds: int, how: tuple[str, ...]) -> Results:
    """The medians over the rounds; a contender that is not installed is left out."""
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    work: dict[str, float] = {}
    missing: set[str] = set()
    for _ in range(rounds):
        for contender in SUITES[suite][1]:
            if contender in missing:
                continue
            found = _run(suite, contender, how)
            if found is None:
                missing.add(contender)
                continue
            for case, result in found.items():
                times[case][contender].append(result["ms"])
                work[case] = result["work"]
    return {
        case: {name: {"ms": statistics.median(all_), "work": work[case]} for name, all_ in contenders.items()}
        for case, contenders in times.items()
    }


def _run(suite: str, contender: str, how: tuple[str, ...]) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "benchmarks.worker", suite, contender, *how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == MISSING:
        print(f"{suite}: {contender} is left out: {done.stderr.strip()}", file=sys.stderr)
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def _cell(name: str, contenders: dict[str, dict[str, float]]) -> str:
    result = contenders[name]
    text = f"{name} {result['ms']:8.2f} ms"
    if result["work"]:
        text += f" {result['work'] / result['ms'] / 1e6:6.1f} GFLOP/s"
    if name == "both" and {"ours", "torch"} <= contenders.keys():
        text += f" ({result['ms'] / (contenders['ours']['ms'] + contenders['torch']['ms']):.3f} of the two apart)"
    elif "import" in contenders and name != "numpy":
        text += f" ({result['ms'] - contenders['numpy']['ms']:+.0f} ms)"
    elif name != "ours" and "ours" in contenders:
        text += f" ({result['ms'] / contenders['ours']['ms']:.2f}x)"
    return text


def _cpu() -> str:
    import pydarknetbn

    info = pydarknetbn.cpu_info()
    return f"{info.variant} of {' '.join(info.features)}"


if __name__ == "__main__":
    main()
