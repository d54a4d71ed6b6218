"""Trains cfg/shapes.cfg from scratch with this package alone, as pjreddie's program computes it on a CPU, and tells its mAP.

python tools/fit_shapes.py [-o OUT.weights] [--steps N]

Pictures are drawn on the fly in a process of their own. Fixed seeds; a few minutes on two cores. Needs pycocotools for the mAP.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn
from evaluate_shapes import SCENES, SEED, by_package, mean_average_precision
from shapes import SIZE, random_scene

CFG = Path(__file__).parent.parent / "cfg" / "shapes.cfg"
PROFILE, SEEDS = "pjreddie-cpu", 2026
STEPS, BATCH, RATE = 800, 32, 0.01

Batch = tuple[NDArray[np.float32], list[NDArray[np.float32]]]


def draw_batch(seed: int) -> Batch:
    """Pictures in the network's size, and of each the rows class, x, y, w, h."""
    generator = np.random.default_rng([SEEDS, seed])
    scenes = [random_scene(generator) for _ in range(BATCH)]
    x = np.stack([dn.resize(scene.picture, SIZE, SIZE) for scene in scenes])
    labels = [np.column_stack([scene.classes, scene.boxes / scene.picture.width]).astype(np.float32) for scene in scenes]
    return x, labels


def batches(first: int) -> Iterator[Batch]:
    """Batches from that number on; one is drawn while the network trains with another."""
    with get_context("spawn").Pool(1) as pool:
        waiting = [pool.apply_async(draw_batch, (first + number,)) for number in range(4)]
        while True:
            first += 1
            waiting.append(pool.apply_async(draw_batch, (first + 3,)))
            yield waiting.pop(0).get()


def train(steps: int, checkpoint: Path) -> dn.Network:
    """The trained network."""
    net = dn.load(CFG, profile=PROFILE, seed=SEEDS)
    decays = {"steps": (steps * 6 // 10, steps * 8 // 10, steps * 9 // 10), "scales": (0.4, 0.25, 0.25)}
    rates = {"policy": "steps", "learning_rate": RATE, "burn_in": 200, "power": 2.0} | decays
    net.settings = replace(net.settings, batch=BATCH, decay=0.0005, **rates)
    print(net.fit(batches, steps=steps, checkpoint=checkpoint, every=500))
    return net


def main() -> None:
    """Trains, writes, evaluates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("shapes.weights"))
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    began, cpu = time.perf_counter(), time.process_time()
    net = train(given.steps, given.output.with_suffix(""))
    print(f"{given.output}: {time.perf_counter() - began:.0f} s, {time.process_time() - cpu:.0f} s of the processor")
    generator = np.random.default_rng(SEED)
    scenes = [random_scene(generator) for _ in range(SCENES)]
    found = mean_average_precision(scenes, by_package(net, scenes))
    print(f"mAP at IoU .5 over {SCENES} held-out pictures: {found:.4f}")


if __name__ == "__main__":
    main()
