"""cuBLAS, found and opened where products of matrices are to be fast."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import DeviceError
from .library import Library

__all__ = ["candidates", "open_blas"]

_VERSIONS = (13, 12, 11)
_HOW = (
    "install it with `pip install nvidia-cublas` (nvidia-cublas-cu12 for a driver of CUDA 12), or put its folder on LD_LIBRARY_PATH"
)


def candidates() -> Iterator[str]:
    """Where cuBLAS may be: files of installed packages, the newest version first, then names that the system's loader knows."""
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    for version in _VERSIONS:
        name = f"libcublas.so.{version}"
        yield from (str(path) for folder in folders for path in sorted(folder.glob(f"*/lib/{name}")))
        yield name


def open_blas(library: Library, device: int, paths: Sequence[str] | None = None, matrix: int = 1 << 24) -> Any:
    """A `gpu_blas` for one device, which closes with its last reference; for one thread at a time.

    Args:
        library: that computes with it.
        device: number of the device.
        paths: to try in turn; None: `candidates()`.
        matrix: floats that the matrix of a convolution has at a time; 2^24, 64 MiB, are about what a device's cache holds.

    Raises:
        DeviceError: there is none that begins; says what to install, and why the last one that is there did not.
    """
    made, reason = library.ffi.new("gpu_blas **"), ""
    for path in candidates() if paths is None else paths:
        _open_beside(path)
        if library.functions.gpu_open_blas(made, device, path.encode(), matrix) == library.functions.GPU_OK:
            return library.ffi.gc(made[0], library.functions.gpu_close_blas)
        said = library.ffi.string(library.functions.gpu_message()).decode(errors="replace")
        if not said.startswith(f"{path}: cannot open shared object file: No such file"):
            reason = f" ({said})"
    raise DeviceError(f"math='fast' needs cuBLAS, and none could be opened{reason}; {_HOW}")


def _open_beside(path: str) -> None:
    """The second library that cuBLAS needs, which lies beside it and not where the loader looks."""
    other = Path(path.replace("libcublas.so", "libcublasLt.so"))
    if other.is_absolute() and other.exists():
        with suppress(OSError):  # then opening cuBLAS tells why it cannot be
            ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
