"""Builds, tests, sanitizes and measures the CUDA library on a machine with a GPU, and writes the figures to a JSON file.

    python -m benchmarks.gpu --out gpu.json

Each step is a process of its own with a limit on its time; one that fails leaves the others. The file is written after each, and
all together end within --budget seconds. The environment has to hold what `pip install -e '.[test]'` needs, and PyTorch, beside
which it is measured. --emulated runs the kernels on the CPU, tiny: that the script runs, and no figures.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .common import LeftOut

ROOT = Path(__file__).parent.parent
BUDGET = 470.0
FAULTS = 9  # with which a sanitizer ends that found one
SAID = 3000  # characters of what a step said at its end
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


@dataclass(frozen=True)
class Step:
    """A process.

    Args:
        name: in the file.
        seconds: that it may take.
        command: its last line of output is its figures in JSON, if it has any.
        environment: beside this process' own.
    """

    name: str
    seconds: float
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def capability() -> str | None:
    """Of the first device, such as "90", by the driver alone; None: no driver, or it has no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, value, parts = ctypes.c_int(), ctypes.c_int(), []
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for attribute in (_MAJOR, _MINOR):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        parts.append(str(value.value))
    return "".join(parts)


def tool(name: str) -> str:
    """A program of CUDA's, also where only the usual folder has it."""
    return shutil.which(name) or str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / name)


def steps(architecture: str | None) -> Iterator[Step]:
    """All, the most wanted first; architecture None: those of the emulation."""
    work = (sys.executable, "-m", "benchmarks.gpu_work")
    if architecture is None:
        for name in ("program", "batchnorm"):
            yield Step(name, 120, (*work, name, "--emulated"))
        return
    yield Step("build", 200, _build(architecture), {"CUDACXX": tool("nvcc")})
    yield Step("batchnorm", 100, (*work, "batchnorm"))
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", "-W", "default")
    for path in (path for kind in ("gpu", "cuda") for path in sorted(ROOT.glob(f"tests/test_{kind}_*.py"))):
        yield Step(path.name, 60, (*pytest, f"tests/{path.name}"), {"PYDARKNETBN_TEST_DEVICE": "cuda"})
    for check in ("memcheck", "racecheck"):
        sanitizer = (tool("compute-sanitizer"), "--tool", check, "--error-exitcode", str(FAULTS))
        yield Step(check, 60, (*sanitizer, *work, "program"))
    yield Step("networks", 100, (*work, "networks"))
    yield Step("ranks", 60, (*work, "ranks"))


def _build(architecture: str) -> Sequence[str]:
    there = all(importlib.util.find_spec(name) for name in ("scikit_build_core", "cffi"))
    isolation = ("--no-build-isolation",) if there else ()
    defines = ("PYDARKNETBN_CUDA=ON", f"CMAKE_CUDA_ARCHITECTURES={architecture}-real")
    settings = [part for define in defines for part in ("-C", f"cmake.define.{define}")]
    return (sys.executable, "-m", "pip", "install", "-q", *isolation, "-e", ".", *settings)


def run_step(step: Step, left: float) -> dict[str, Any]:
    """Its status (done, failed, timed out, left out), seconds, and its figures or what it said last."""
    if left <= 0:
        return {"status": "left out", "seconds": 0.0, "said": "no time was left"}
    start = time.monotonic()
    environment = os.environ | dict(step.environment)
    try:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as reason:
        return {"status": "failed", "seconds": 0.0, "said": str(reason)}
    try:
        said, _ = process.communicate(timeout=min(step.seconds, left))
        status = {0: "done", LeftOut.STATUS: "left out"}.get(process.returncode, "failed")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, status = process.communicate()[0], "timed out"
    result = {"status": status, "seconds": round(time.monotonic() - start, 1)}
    figures = _figures(said) if status == "done" else None
    return result | ({"said": said[-SAID:]} if figures is None else {"figures": figures})


def _figures(said: str) -> Any:
    lines = said.strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
    except json.JSONDecodeError:
        return None


def targets(done: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is to be reached on a data center's GPU: value, limit, and whether it is."""
    found = []
    figures = done.get("batchnorm", {}).get("figures", {})
    for case in figures.get("cases", ()):
        if case["dtype"] != "float32":
            continue
        share = 0.8 if case["pass"] == "inference" else 0.7
        name = f"{case['pass']} {tuple(case['shape'])}"
        found.append({"name": f"{name}: share of the copy's bytes/s", "value": case["share_of_copy"], "limit": share})
        if case["pass"] == "training" and case["torch_ms"]:
            found.append({"name": f"{name}: PyTorch's time over ours", "value": case["torch_ms"] / case["ms"], "limit": 1.0})
    for each in figures.get("strict", ()):
        found.append({"name": f"strict {each['profile']}: equal to the CPU's bits", "value": float(each["equal"]), "limit": 1.0})
    for each in done.get("networks", {}).get("figures", {}).get("cases", ()):
        if each["math"] == "exact":
            found.append(
                {"name": f"{each['network']}: equal to the CPU's bits", "value": float(each.get("equal", 0)), "limit": 1.0}
            )
    return [each | {"reached": each["value"] >= each["limit"]} for each in found]


def run(chosen: Sequence[Step], out: Path, *, budget: float, emulated: bool) -> dict[str, Any]:
    """Runs the steps and writes the file after each."""
    start = time.monotonic()
    record: dict[str, Any] = {"machine": {"system": platform.platform(), "python": platform.python_version()}}
    record |= {"emulated": emulated, "budget": budget, "steps": {}}
    for step in chosen:
        print(f"{step.name} …", file=sys.stderr, flush=True)
        result = record["steps"][step.name] = run_step(step, budget - (time.monotonic() - start))
        print(f"{step.name}: {result['status']}, {result['seconds']} s", file=sys.stderr, flush=True)
        if result["status"] in ("failed", "timed out"):
            print(result["said"], file=sys.stderr, flush=True)
        record |= {"seconds": round(time.monotonic() - start, 1), "targets": [] if emulated else targets(record["steps"])}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="file for the figures")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for everything")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="run these steps alone; may be repeated")
    parser.add_argument("--emulated", action="store_true", help="tiny, on the CPU, without a GPU")
    options = parser.parse_args()
    architecture = None if options.emulated else capability()
    if not options.emulated and architecture is None:
        sys.exit("no GPU: the CUDA driver is not installed or has no device; --emulated runs what needs none")
    every = list(steps(architecture))
    unknown = set(options.only) - {step.name for step in every}
    if unknown:
        parser.error(f"no step is named {min(unknown)}; there are {', '.join(step.name for step in every)}")
    if options.budget <= 0:
        parser.error("--budget is to be over 0")
    chosen = [step for step in every if not options.only or step.name in options.only]
    record = run(chosen, options.out, budget=options.budget, emulated=options.emulated)
    for each in record["targets"]:
        print(f"{'reached' if each['reached'] else 'SHORT  '} {each['value']:.2f} of {each['limit']:.2f}  {each['name']}")
    ends = {name: result["status"] for name, result in record["steps"].items()}
    print(f"{options.out}: {', '.join(f'{name} {status}' for name, status in ends.items())}")
    sys.exit(any(status in ("failed", "timed out") for status in ends.values()))


if __name__ == "__main__":
    main()
