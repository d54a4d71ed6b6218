"""Where the time of a forward goes: `python -m benchmarks.layers CFG [--size N] [--threads N]`.

Prints the processor's time of each kind of layer, then the slowest layers, with what they reach. Weights are random.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pydarknetbn as dn
from pydarknetbn import running

from .networks import image_for, seeded

ROUNDS, SLOWEST = 7, 15


class Timed:
    """The core's functions, of which `forward_layer` notes how long each call takes."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def forward_layer(self, *arguments: Any) -> Any:
        """As the core's."""
        start = time.process_time()
        status = self._core.forward_layer(*arguments)
        self.seconds.append(time.process_time() - start)
        return status


def main(path: Path, size: int | None) -> None:
    """Runs a few rounds and prints medians."""
    net = seeded(path, size)
    image, rounds, core = image_for(net), [], running.lib
    for _ in range(ROUNDS):
        running.lib = timed = Timed(core)
        net.forward(image, keep="heads")
        rounds.append(timed.seconds)
    running.lib = core
    computed = [layer for layer in net.layers if layer.native is not None]
    times = {layer.index: 1e3 * statistics.median(each) for layer, each in zip(computed, zip(*rounds, strict=True), strict=True)}
    kinds: Counter[str] = Counter()
    for layer in computed:
        kinds[layer.type] += times[layer.index]
    whole = sum(times.values())
    print(f"{path.name}, {net.w} x {net.h}: {whole:.1f} ms")
    for kind, ms in kinds.most_common():
        print(f"  {kind:16}{ms:9.2f} ms {ms / whole:6.1%}")
    for layer in sorted(computed, key=lambda layer: -times[layer.index])[:SLOWEST]:
        ms = times[layer.index]
        reached = f"{layer.operations / ms / 1e6:6.1f} GFLOP/s" if layer.operations else ""
        print(f"{layer.index:4} {layer.type:14}{layer.in_shape!s:>17} to {layer.out_shape!s:17}{ms:8.2f} ms {reached}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("cfg", type=Path)
    parser.add_argument("--size", type=int, help="width and height of the input; those of the cfg where it is not given")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    try:
        with dn.num_threads(options.threads):
            main(options.cfg, options.size)
    except (dn.DarknetError, ValueError) as error:
        sys.exit(str(error))
