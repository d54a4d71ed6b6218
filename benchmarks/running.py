"""Runs the contenders of suites in turn, each in a process of its own, and takes medians over the rounds."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .common import LeftOut, Setting
from .suites import SUITES
from .worker import PREPARE

PEERS = {
    "numpy": ("numpy",), "torch": ("torch",), "onnxruntime": ("onnxruntime",),
    "opencv": ("opencv-python-headless", "opencv-contrib-python-headless", "opencv-python", "opencv-contrib-python"),
}  # fmt: skip
"""Contenders that are packages, and under which names these are installed."""

COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that libraries read at their import."""

Measured = dict[str, Any]
"""{"cases": {case: {"work": operations, "ms": {contender: median}}}, "missing": {contender: why}}"""


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measured(names: Sequence[str], rounds: int, setting: Setting, told: Callable[[str], None]) -> dict[str, Measured]:
    """Each suite's medians; what cannot run is left out and says why.

    Args:
        names: of suites.
        rounds: how often each contender runs.
        setting: how.
        told: is given what runs now.
    """
    with tempfile.TemporaryDirectory() as folder:
        setting = replace(setting, folder=folder)
        if any(SUITES[name].networks for name in names):
            told("preparing networks")
            if (done := _run(PREPARE, "", setting)).returncode:
                raise SystemExit(f"the networks could not be prepared: {_why(done)}")
        return {name: _suite(name, rounds, setting, told) for name in names}


def _suite(name: str, rounds: int, setting: Setting, told: Callable[[str], None]) -> Measured:
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    work: dict[str, float] = {}
    missing: dict[str, str] = {}
    for number in range(rounds):
        for contender in SUITES[name].contenders:
            if contender == "2 threads" and (why := _single(setting)):
                missing[contender] = why
            if contender in missing:
                continue
            told(f"{name}: {contender}, round {number + 1} of {rounds}")
            done = _run(name, contender, setting)
            if done.returncode:
                missing[contender] = _why(done)
                continue
            for case, result in json.loads(done.stdout).items():
                times[case][contender].append(result["ms"])
                work[case] = result["work"]
    cases = {
        case: {"work": work[case], "ms": {who: statistics.median(all_) for who, all_ in of.items()}} for case, of in times.items()
    }
    return {"cases": cases, "missing": missing}


def _single(setting: Setting) -> str:
    if setting.clock == "cpu":
        return "--clock cpu adds up the time of all threads"
    return "" if processors() > 1 else "there is one processor"


def _run(suite: str, contender: str, setting: Setting) -> subprocess.CompletedProcess[str]:
    counted = re.match(r"(\d+) thread", contender)
    setting = replace(setting, threads=int(counted[1])) if counted else setting
    environment = dict.fromkeys(COUNTS, str(setting.threads)) | ({"OMP_WAIT_POLICY": "passive"} if contender == "passive" else {})
    command = [sys.executable, "-m", "benchmarks.worker", suite, contender, setting.to_json()]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """A failure, too, leaves out one contender and not the run."""
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return said if done.returncode == LeftOut.STATUS else f"it failed: {said}"


def machine() -> dict[str, Any]:
    """Processor, inner loops, and versions of the peers that are installed."""
    import pydarknetbn

    info = pydarknetbn.cpu_info()
    return {"processor": _processor(), "processors": processors(), "variant": info.variant, "versions": _versions()}


def _versions() -> dict[str, str]:
    found = {}
    for contender, packages in PEERS.items():
        for package in packages:
            try:
                found[contender] = version(package)
                break
            except PackageNotFoundError:
                continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
