"""One rank of torch.distributed's gloo, over the emulated device: LIBRARY STORE RANKS RANK OUT."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pydarknetbn.cuda import BatchNorm, DeviceArray, from_torch
from pydarknetbn.cuda.library import Library
from test_cuda_ranks import memory_of, numbers


def on_host(array: DeviceArray) -> Any:
    """The same memory, which of the emulated device is the host's."""
    return torch.from_numpy(memory_of(array))


def main(library: Library, ranks: int, rank: int, out: Path) -> None:
    shape = (3 * ranks, 4, 5, 5)
    rows = slice(3 * rank, 3 * rank + 3)
    layer = BatchNorm(4, profile="torch", library=library)
    layer.push(scales=numbers((4,), 1), biases=numbers((4,), 2))
    layer.sync(replace(from_torch(), tensor_of=on_host))
    output = layer.forward(DeviceArray.from_numpy(library, numbers(shape, 3)[rows]), train=True).numpy()
    delta = layer.backward(DeviceArray.from_numpy(library, numbers(shape, 4, mean=0)[rows])).numpy()
    np.savez(out, output=output, delta=delta, **layer.pull())


if __name__ == "__main__":
    path, store, size, own, target = sys.argv[1:]
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=int(own), world_size=int(size))
    main(Library(Path(path)), int(size), int(own), Path(target))
    torch.distributed.destroy_process_group()
