"""The CUDA library: a file beside the compiled core, opened where a device is asked for and never before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from .. import _native
from ..errors import DeviceError

__all__ = ["Device", "Library", "devices", "open_library"]

Pointer: TypeAlias = Any
_NAME = "libpydarknetbn_cuda.so"
_HOW = (
    "install the package where CUDA's compiler is found: with nvcc on PATH, or named by CUDACXX, "
    "`pip install . -C cmake.define.PYDARKNETBN_CUDA=ON`"
)


@dataclass(frozen=True, slots=True)
class Device:
    """One that the driver tells of.

    Args:
        number: counted from 0.
        name: its maker's.
        memory: bytes.
    """

    number: int
    name: str
    memory: int


class Library:
    """The functions of an opened library.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        from .._cuda_abi import ffi  # noqa: PLC0415  written by the build

        self.ffi = ffi
        self.path = path
        self.functions = ffi.dlopen(str(path))

    def check(self, status: int, where: str) -> None:
        """Raises what a call that failed left.

        Raises:
            DeviceError: with the library's sentence.
        """
        if status != self.functions.GPU_OK:
            raise DeviceError(f"{where}: {self.ffi.string(self.functions.gpu_message()).decode()}")

    def rule(self, record: Any) -> Pointer:
        """A `batchnorm_rule` from the frozen record of a profile."""
        made = _native.rule("batchnorm_rule", record)
        rule = self.ffi.new("batchnorm_rule *")
        self.ffi.memmove(rule, _native.ffi.buffer(made), self.ffi.sizeof("batchnorm_rule"))
        return rule

    def devices(self) -> tuple[Device, ...]:
        """Those that there are.

        Raises:
            DeviceError: none, with the driver's reason.
        """
        count = self.ffi.new("int *")
        self.check(self.functions.gpu_devices(count), "device='cuda'")
        return tuple(self._device(number) for number in range(count[0]))

    def _device(self, number: int) -> Device:
        name, memory = self.ffi.new("char[256]"), self.ffi.new("size_t *")
        self.check(self.functions.gpu_device(number, name, len(name), memory), f"device {number}")
        return Device(number, self.ffi.string(name).decode(errors="replace"), memory[0])


@cache
def open_library() -> Library:
    """The library of this installation.

    Raises:
        DeviceError: it was built without one, or it cannot be opened here; says what to do.
    """
    path = _native.core_file().with_name(_NAME)
    if not path.exists():
        raise DeviceError(f"device='cuda' needs {_NAME}, which this installation was built without; {_HOW}")
    try:
        return Library(path)
    except (ImportError, OSError) as reason:
        raise DeviceError(f"device='cuda' needs {path}, which cannot be opened: {reason}; {_HOW}") from reason


def devices() -> tuple[Device, ...]:
    """The CUDA devices that can be computed on.

    Raises:
        DeviceError: the installation has no CUDA library, or the machine no device.
    """
    return open_library().devices()
