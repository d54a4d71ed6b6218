"""The processor: what it can do, and which inner loops run on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ._native import ffi, lib
from .errors import UnsupportedError

__all__ = ["VARIABLE", "CpuInfo", "cpu_info", "cpu_variant"]

VARIABLE = "PYDARKNETBN_CPU"
_FEATURES = ("sse2", "avx", "avx2", "fma", "avx512f", "neon")


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """What the core found.

    Args:
        features: of the processor, those that matter here. FMA is named but not used: one rounding is not the forks' two.
        variants: inner loops that run here, the widest first. All give the same bits.
        variant: the one in use.
        threads: how many a call uses.
    """

    features: tuple[str, ...]
    variants: tuple[str, ...]
    variant: str
    threads: int


def cpu_info() -> CpuInfo:
    """Features of the processor, the inner loops in use and the number of threads.

    The environment variable PYDARKNETBN_CPU, read at import, chooses other inner loops than the widest.
    """
    return CpuInfo(
        features=tuple(name for name in _FEATURES if lib.cpu_has(name.encode())),
        variants=_variants(),
        variant=ffi.string(lib.cpu_variant()).decode(),
        threads=lib.get_num_threads(),
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


def _variants() -> tuple[str, ...]:
    names: list[str] = []
    while (found := lib.cpu_variant_at(len(names))) != ffi.NULL:
        names.append(ffi.string(found).decode())
    return tuple(names)


def _set(name: str, where: str) -> None:
    if lib.set_cpu_variant(name.encode()) != lib.STATUS_OK:
        raise UnsupportedError(f"{where}: expected one of {', '.join(_variants())}, which run on this processor, got {name!r}")


if os.environ.get(VARIABLE):
    _set(os.environ[VARIABLE], VARIABLE)
