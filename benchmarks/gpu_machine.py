"""The device that `benchmarks.gpu_work` measures: arrays on it, and its clock."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .common import LeftOut

SHAPES = ((64, 256, 56, 56), (32, 512, 28, 28))
TINY = ((2, 3, 4, 4), (3, 2, 3, 3))
FLUSHED = 1 << 32  # bytes that are overwritten before each round: more than any cache, and longer than Python takes for a call


@dataclass(frozen=True)
class Machine:
    """Where it is measured.

    Args:
        library: the CUDA library, or its emulation.
        torch: None: it is not installed, and the processor's clock is read around the whole call.
        emulated: sizes are tiny, and times say nothing.
    """

    library: Any
    torch: Any
    emulated: bool

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Of the batches."""
        return TINY if self.emulated else SHAPES

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Normal values of mean 1 on the device."""
        if self.torch:
            device = f"cuda:{self.torch.cuda.current_device()}"
            generator = self.torch.Generator(device).manual_seed(seed)
            return self.torch.randn(shape, generator=generator, device=device).add_(1).to(getattr(self.torch, dtype))
        from pydarknetbn.cuda import DeviceArray

        values = np.random.default_rng(seed).normal(1, 1, shape).astype(np.float32)
        if dtype == "bfloat16":
            raise LeftOut("bfloat16 needs PyTorch")
        return DeviceArray.from_numpy(self.library, values.astype(dtype))

    def median_ms(self, call: Callable[[], object], rounds: int = 21) -> float:
        """Of one call, on a cold cache, after three to warm up."""
        for _ in range(3):
            call()
        return statistics.median(self._events(call, rounds) if self.torch else self._clock(call, rounds))

    def _events(self, call: Callable[[], object], rounds: int) -> Iterator[float]:
        cuda = self.torch.cuda
        flushed = self.torch.empty(min(FLUSHED, cuda.mem_get_info()[0] // 2), dtype=self.torch.uint8, device="cuda")
        for _ in range(rounds):
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            start.record()
            call()
            end.record()
            end.synchronize()
            yield start.elapsed_time(end)

    def _clock(self, call: Callable[[], object], rounds: int) -> Iterator[float]:
        functions, null = self.library.functions, self.library.ffi.NULL
        for _ in range(2 if self.emulated else rounds):
            start = time.perf_counter()
            call()
            functions.gpu_synchronize(null)
            yield (time.perf_counter() - start) * 1e3


def machine(*, emulated: bool) -> Machine:
    """This one."""
    if emulated:
        sys.path.append(str(Path(__file__).parent.parent / "tests"))
        from emulating import built_library

        return Machine(built_library(), None, True)
    from pydarknetbn.cuda.library import open_library

    library = open_library()
    library.devices()
    try:
        import torch
    except ImportError:
        torch = None
    return Machine(library, torch if torch and torch.cuda.is_available() else None, False)
