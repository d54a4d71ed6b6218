"""The processor's own limit: a loop of multiplications and additions in registers, as two instructions or as one (FMA)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .common import Call, Cases, LeftOut, Setting

STEP = 2 * 12 * 8
"""Operations of one round of peak.c."""
WORK = 1e10
CONTRACT = {"apart": "off", "fma": "fast"}


def peak(contender: str, setting: Setting) -> Cases:
    """Contenders: apart (multiply, then add: what a sum without FMA can reach), fma."""
    yield "multiplications and additions in registers", WORK, loop(contender, setting.threads, WORK)


def loop(contender: str, threads: int, work: float) -> Call:
    """A call that does that work, shared out to so many threads."""
    run, executor = _compiled(CONTRACT[contender]), ThreadPoolExecutor(threads)
    rounds = int(work / STEP / threads)
    return lambda: list(executor.map(lambda _: run(rounds, 1.0), range(threads)))


def _compiled(contract: str) -> Any:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LeftOut("no C compiler (cc, gcc or clang) was found to build benchmarks/peak.c with")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "peak.so"
        source = str(Path(__file__).with_name("peak.c"))
        command = [compiler, "-O2", "-march=native", f"-ffp-contract={contract}", "-shared", "-fPIC", source, "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LeftOut(f"{compiler} cannot build benchmarks/peak.c: {done.stderr.strip().splitlines()[-1]}")
        run = ctypes.CDLL(str(library)).peak
    run.argtypes, run.restype = (ctypes.c_long, ctypes.c_float), ctypes.c_float
    return run
