"""What calibration does for pictures that a network was not trained on: the shipped one at a quarter of the brightness.

python tools/dark_shapes.py draw FOLDER          200 such pictures, to calibrate with
python tools/dark_shapes.py evaluate WEIGHTS     mean average precision at IoU .5 on 1,000 others; needs pycocotools

The scenes of `evaluate` are those of evaluate_shapes.py, darkened.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import pydarknetbn as dn
from shapes import Scene, random_scene

PICTURES, SEED, BRIGHTNESS = 200, 11, 0.25


def dark(scene: Scene) -> Scene:
    """The same at a quarter of the brightness."""
    return replace(scene, picture=scene.picture.point(lambda value: int(value * BRIGHTNESS)))


def draw(folder: Path) -> None:
    """Writes the pictures to calibrate with."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(SEED)
    for number in range(PICTURES):
        dark(random_scene(generator)).picture.save(folder / f"{number:03}.png")


def evaluate(weights: Path) -> float:
    """Mean average precision on dark pictures."""
    from evaluate_shapes import CFG, SCENES, by_package, mean_average_precision  # noqa: PLC0415 drawing needs no pycocotools
    from evaluate_shapes import SEED as HELD_OUT  # noqa: PLC0415

    generator = np.random.default_rng(HELD_OUT)
    scenes = [dark(random_scene(generator)) for _ in range(SCENES)]
    return mean_average_precision(scenes, by_package(dn.load(CFG, weights), scenes))


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw(Path(sys.argv[2]))
    else:
        print(f"mAP at IoU .5: {evaluate(Path(sys.argv[2])):.4f}")
