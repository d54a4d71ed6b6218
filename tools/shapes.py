"""Draws pictures of circles, squares and triangles of any colour on noisy backgrounds, with their boxes.

python tools/shapes.py OUT.png draws the picture that ships with the package, and prints its boxes.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

__all__ = ["NAMES", "SIZE", "Scene", "draw_scene", "random_scene"]

NAMES = ("circle", "square", "triangle")
SIZE = 96
_SIDES = (96, 144, 192, 240)  # a network sees pictures of any size, brought to its own by Darknet's resize
_SMOOTH = 4  # shapes are drawn this much larger and reduced, so that their edges are smooth
_MAX_OVERLAP = 0.15
_SHIPPED = 107


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and its objects.

    Args:
        picture: RGB, a square.
        boxes: (n, 4) x, y, w, h: centre and size in pixels.
        classes: (n) indexes into NAMES.
    """

    picture: Image.Image
    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]


def draw_scene(generator: np.random.Generator, *, side: int = SIZE) -> Scene:
    """One picture with one to five shapes that hardly overlap; the same scene at any size but for its noise."""
    picture = _background(generator, side)
    boxes: list[tuple[float, float, float, float]] = []
    classes: list[int] = []
    for _ in range(int(generator.integers(1, 6))):
        kind = int(generator.integers(len(NAMES)))
        outline = _outline(kind, generator)
        box = _box_of(outline)
        if all(_overlap(box, other) <= _MAX_OVERLAP for other in boxes):
            picture = _paint(picture, outline, generator, side / SIZE)
            boxes.append(box)
            classes.append(kind)
    noise = generator.normal(0, generator.uniform(0, 14), (side, side, 3))
    pixels = np.clip(np.asarray(picture, np.float64) + noise, 0, 255).astype(np.uint8)
    placed = np.array(boxes, np.float32).reshape(-1, 4) * np.float32(side / SIZE)
    return Scene(Image.fromarray(pixels), placed, np.array(classes, np.int64))


def random_scene(generator: np.random.Generator) -> Scene:
    """A scene in a picture of one of several sizes."""
    return draw_scene(generator, side=int(generator.choice(_SIDES)))


def _background(generator: np.random.Generator, side: int) -> Image.Image:
    """Blotches of a few colours: a coarse random picture, enlarged."""
    cells = int(generator.integers(2, 9))
    base = generator.uniform(0, 255, 3)
    spread = generator.uniform(5, 60)
    coarse = np.clip(base + generator.normal(0, spread, (cells, cells, 3)), 0, 255).astype(np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def _outline(kind: int, generator: np.random.Generator) -> list[tuple[float, float]]:
    """Corners of a shape inside a picture of SIZE x SIZE."""
    radius = generator.uniform(6.5, 24)
    x, y = generator.uniform(radius + 1, SIZE - radius - 1, 2)
    corners = {0: 48, 1: 4, 2: 3}[kind]
    turn = generator.uniform(0, 2 * math.pi) if kind == 2 else math.pi / 4
    scale = radius * (math.sqrt(2) * 0.95 if kind == 1 else 1)
    angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
    return [(x + scale * math.cos(angle), y + scale * math.sin(angle)) for angle in angles]


def _box_of(outline: list[tuple[float, float]]) -> tuple[float, float, float, float]:
    xs, ys = zip(*outline, strict=True)
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    """The common part of two boxes, as a share of the smaller one."""
    sides = [min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2) - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2) for i in (0, 1)]
    return max(sides[0], 0) * max(sides[1], 0) / min(a[2] * a[3], b[2] * b[3])


def _paint(picture: Image.Image, outline: list[tuple[float, float]], generator: np.random.Generator, scale: float) -> Image.Image:
    """A filled shape whose colour differs from what it covers."""
    x, y, *_ = _box_of(outline)
    below = np.asarray(picture.getpixel((int(x * scale), int(y * scale))), np.float64)
    colour = generator.uniform(0, 255, 3)
    while np.abs(colour - below).sum() < 120:
        colour = generator.uniform(0, 255, 3)
    fine = scale * _SMOOTH
    mask = Image.new("L", (picture.width * _SMOOTH, picture.height * _SMOOTH), 0)
    ImageDraw.Draw(mask).polygon([(px * fine, py * fine) for px, py in outline], fill=255)
    mask = mask.resize(picture.size, Image.Resampling.BOX)
    return Image.composite(Image.new("RGB", picture.size, tuple(int(value) for value in colour)), picture, mask)


def main() -> None:
    """Writes the shipped picture."""
    scene = draw_scene(np.random.default_rng(_SHIPPED), side=4 * SIZE)
    scene.picture.save(sys.argv[1], optimize=True)
    for box, kind in zip(scene.boxes, scene.classes, strict=True):
        print(NAMES[kind], *(f"{side:.1f}" for side in box))


if __name__ == "__main__":
    main()
