"""The CUDA library of the tests (see `emulating.py`) with its calls counted, and a small network for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.library import Device, Library

SMALL = cfg_of(
    "conv filters=4 size=3 pad=1 batch_normalize=1 activation=leaky",
    "maxpool size=2 stride=2",
    "conv filters=3 size=1 activation=linear",
)


class Watched:
    """The emulated library, whose calls are counted, and of which functions may be missing or fail.

    Args:
        real: what does the work.

    Attributes:
        calls: names and, of copies, bytes.
        missing: names of functions that an older library would not have.
        fails: name of a function that fails.
        count: of devices.
    """

    def __init__(self, real: Library) -> None:
        self.real, self.ffi, self.check = real, real.ffi, real.check
        self.calls: list[tuple[str, int]] = []
        self.missing: set[str] = set()
        self.fails, self.count = "", 1
        self.functions = self

    def devices(self) -> tuple[Device, ...]:
        return tuple(Device(number, f"number {number}", 1 << 30) for number in range(self.count))

    def copied(self, name: str) -> list[int]:
        """Bytes of the copies since the last question."""
        found = [nbytes for called, nbytes in self.calls if called == name]
        self.calls.clear()
        return found

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        real = getattr(self.real.functions, name)
        if not callable(real):
            return real

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments[2] if name in ("gpu_push_array", "gpu_pull_array") else 0))
            if name == self.fails:
                return self.real.functions.gpu_make_array(self.ffi.new("void **"), 7, 1)  # "choosing the device: …"
            return real(*arguments)

        return call


def there(library: Watched, array: np.ndarray) -> DeviceArray:
    return DeviceArray.from_numpy(library, array)  # type: ignore[arg-type]


def small(**options: Any) -> dn.Network:
    """A network of three layers whose batchnorm divides by no 0."""
    net = dn.load(SMALL, seed=1, **options)
    net.layers[0].rolling_variance[...] = 1
    return net
