"""The processor: what it can do, which inner loops run on it, and whose exp, log and tanh they call."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ._native import ffi, lib
from .errors import UnsupportedError

__all__ = ["LIBM_VARIABLE", "VARIABLE", "CpuInfo", "container_processors", "cpu_info", "cpu_variant", "libm"]

VARIABLE = "PYDARKNETBN_CPU"
LIBM_VARIABLE = "PYDARKNETBN_LIBM"
_FEATURES = ("sse2", "avx", "avx2", "fma", "avx512f", "neon")


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """What the core found.

    Args:
        features: of the processor, those that matter here. FMA is named but not used: one rounding is not the forks' two.
        variants: inner loops that run here, of avx512, avx2, neon and portable, the widest first. All give the same bits.
        variant: the one in use.
        threads: how many a call uses.
        libm: whose exp, log and tanh are called in activations, softmaxes and boxes. "own": the package's, the same bits on every
            machine. "system": this machine's, with which the forks' programs give these bits here.
    """

    features: tuple[str, ...]
    variants: tuple[str, ...]
    variant: str
    threads: int
    libm: str


def cpu_info() -> CpuInfo:
    """Features of the processor, the inner loops in use and the number of threads.

    Environment variables, read at import: PYDARKNETBN_CPU chooses other inner loops than the widest, PYDARKNETBN_LIBM=system the
    machine's own functions.
    """
    return CpuInfo(
        features=tuple(name for name in _FEATURES if lib.cpu_has(name.encode())),
        variants=_variants(),
        variant=ffi.string(lib.cpu_variant()).decode(),
        threads=lib.get_num_threads(),
        libm=_libm(),
    )


@contextmanager
def cpu_variant(name: str) -> Iterator[None]:
    """Other inner loops for a block, while no forward runs elsewhere.

    Raises:
        UnsupportedError: none of that name run on this processor.
    """
    before = ffi.string(lib.cpu_variant()).decode()
    _set(name, "cpu_variant")
    try:
        yield
    finally:
        _set(before, "cpu_variant")


@contextmanager
def libm(name: str) -> Iterator[None]:
    """Other functions for a block, "own" or "system", while no forward runs elsewhere.

    Raises:
        UnsupportedError: none have that name.
    """
    before = _libm()
    _set_libm(name, "libm")
    try:
        yield
    finally:
        _set_libm(before, "libm")


def _libm() -> str:
    name: str = ffi.string(lib.libm_in_use()).decode()
    return name


def _set_libm(name: str, where: str) -> None:
    if lib.set_libm(name.encode()) != lib.STATUS_OK:
        raise UnsupportedError(f"{where}: expected own (the package's exp, log and tanh) or system (the machine's), got {name!r}")


def _variants() -> tuple[str, ...]:
    names: list[str] = []
    while (found := lib.cpu_variant_at(len(names))) != ffi.NULL:
        names.append(ffi.string(found).decode())
    return tuple(names)


def _set(name: str, where: str) -> None:
    if lib.set_cpu_variant(name.encode()) != lib.STATUS_OK:
        raise UnsupportedError(f"{where}: expected one of {', '.join(_variants())}, which run on this processor, got {name!r}")


def container_processors(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """How many processors a container's limit comes to, rounded up; None without one.

    More threads than that would be stopped for a part of each tenth of a second.

    Args:
        groups: where the kernel tells the limits.
        own: where it tells this process's group.
    """
    place = next((line[3:].strip("/") for line in _read(own).splitlines() if line.startswith("0::")), "")
    limits = [_read(groups / place / "cpu.max"), _read(groups / "cpu.max")]
    limits.append(" ".join(_read(groups / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")))
    found = [limit.split() for limit in limits if re.fullmatch(r"[0-9]+ [1-9][0-9]*\s*", limit)]
    return max(1, min(math.ceil(int(quota) / int(period)) for quota, period in found)) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


if (limit := container_processors()) is not None:
    lib.set_num_threads(min(lib.get_num_threads(), limit))
if os.environ.get(VARIABLE):
    _set(os.environ[VARIABLE], VARIABLE)
if os.environ.get(LIBM_VARIABLE):
    _set_libm(os.environ[LIBM_VARIABLE], LIBM_VARIABLE)
