"""Memory of one forward: `python -m benchmarks.memory CFG` prints parameters, activations and workspace.

Parameters and activations are counted; the workspace is what the process's peak grew beyond them in the forward.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

import pydarknetbn as dn

MB = 1e6


def peak() -> int:
    """Most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Bytes that it has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main(path: str) -> None:
    """Loads a cfg with seeded weights and forwards one image of noise."""
    empty = resident()
    net = dn.load(path, seed=0)
    parameters = sum(array.nbytes for layer in net.layers for array in layer.params.values())
    x = np.random.default_rng(0).random((1, net.c, net.h, net.w), np.float32)
    net.forward(x)
    activations = sum(layer.output.nbytes for layer in net.layers)
    workspace = peak() - empty - parameters - activations - x.nbytes
    print(f"{Path(path).name} at {net.w} x {net.h}")
    for name, nbytes in {
        "Python and NumPy": empty,
        "parameters": parameters,
        "activations": activations,
        "workspace": workspace,
        "peak": peak(),
    }.items():
        print(f"{name:18}{nbytes / MB:8.1f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.memory CFG")
    try:
        main(sys.argv[1])
    except dn.DarknetError as error:
        sys.exit(str(error))
