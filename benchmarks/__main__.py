"""Runs the suites and prints medians and ratios beside what is to be reached.

Each contender runs in a process of its own, since thread pools that share a process slow each other down; rounds are interleaved,
so that a busy moment of the machine meets all. On a machine that others use too, `--threads 1 --clock cpu` counts the processor's
time instead of the wall's. Peers come with `pip install 'pydarknetbn[bench]'`; whole networks need PYDARKNETBN_CFGS, a folder with
the forks' .cfg files (and PYDARKNETBN_MODELS, if their .weights are there: without these, weights are random).
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from rich.console import Console

from .common import Setting
from .report import ratios, show
from .running import machine, measured, processors
from .suites import SUITES


def main() -> None:
    """The command line."""
    parser = _parser()
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"no suite is named {unknown[0]}; there are {', '.join(SUITES)}")
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu adds up the time of all threads: use it with --threads 1")
    if not 1 <= options.threads <= processors():
        parser.error(f"--threads {options.threads}: expected 1 to {processors()}, the processors that this process may use")
    if min(options.rounds, options.seconds) <= 0:
        parser.error("--rounds and --seconds are to be over 0")
    names = options.suites or [name for name in SUITES if name != "original" or options.original]
    rounds, seconds = (1, min(options.seconds, 0.2)) if options.quick else (options.rounds, options.seconds)
    setting = Setting(options.threads, seconds, options.clock, options.quick, "", options.original)
    load = os.getloadavg()[0]
    errors = Console(stderr=True)
    with errors.status("") as status:
        suites = measured(names, rounds, setting, status.update)
    run = {"machine": machine(), "threads": options.threads, "clock": options.clock, "rounds": rounds, "seconds": seconds}
    run |= {"quick": options.quick, "load": load, "suites": suites}
    if options.json:
        found = [vars(ratio) | {"reached": ratio.reached} for ratio in ratios(suites)]
        print(json.dumps(run | {"ratios": found}, indent=1))
        return
    show(run, Console(width=None if sys.stdout.isatty() else 150))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all where none is named")
    parser.add_argument("--threads", type=int, default=processors())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case in each round")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: with one thread, where others compute too")
    parser.add_argument("--quick", action="store_true", help="one short round, and without the large networks: about two minutes")
    parser.add_argument("--original", metavar="DIR", default="", help="a Darknet that you have built, to run beside ours")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


if __name__ == "__main__":
    main()
