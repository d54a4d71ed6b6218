"""Memory of one forward: `python -m benchmarks.memory CFG [--size N] [--keep all]`.

Prints parameters, input and output of the largest layer, and the peaks beside their sum. Arrays are the core's own count, workspace
included; resident is what the process's peak grew beyond Python, NumPy and the image.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

import numpy as np

import pydarknetbn as dn
from pydarknetbn._native import lib

from .networks import seeded

MB = 1e6


def peak() -> int:
    """Most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Bytes that it has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def largest(net: dn.Network) -> int:
    """Bytes of input, sources and output of the layer where they are most."""
    of_layers = []
    for layer in net.layers:
        read = [net.layers[index].out_shape for index in layer.sources]
        shapes = [*([] if layer.type == "route" else [layer.in_shape]), *read, layer.out_shape]
        of_layers.append(4 * sum(shape.floats for shape in shapes))
    return max(of_layers)


def main(path: Path, size: int | None, keep: str) -> None:
    """Loads a cfg with seeded weights and forwards one image of noise."""
    empty = resident()
    net = seeded(path, size)
    x = np.random.default_rng(0).random((1, net.c, net.h, net.w), np.float32)
    parameters = sum(array.nbytes for layer in net.layers if layer.stored for array in layer.params.values())
    lib.reset_arrays_peak()
    net.forward(x, keep=keep)
    resident_peak, arrays_peak = peak() - empty - x.nbytes, lib.arrays_peak()
    measure = parameters + largest(net)
    print(f"{path.name} at {net.w} x {net.h}, keep={keep!r}")
    for name, nbytes in {
        "Python and NumPy": empty,
        "parameters": parameters,
        "all outputs": 4 * sum(layer.out_shape.floats for layer in net.layers),
        "largest layer": largest(net),
        "peak of the arrays": arrays_peak,
        "resident peak": resident_peak,
    }.items():
        print(f"{name:20}{nbytes / MB:8.1f} MB")
    print(f"peak of the arrays {arrays_peak / measure:.2f}, resident {resident_peak / measure:.2f} x (parameters + largest layer)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("cfg", type=Path)
    parser.add_argument("--size", type=int, help="width and height of the input; those of the cfg where it is not given")
    parser.add_argument("--keep", choices=("heads", "all"), default="heads")
    options = parser.parse_args()
    try:
        main(options.cfg, options.size, options.keep)
    except dn.DarknetError as error:
        sys.exit(str(error))
