"""What a layer is told and tells: shapes, how a head decodes, what of it is in a file, how it starts and trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..trees import Tree

__all__ = ["ORDINARY_TRAINING", "WHOLE_FILE", "FileOptions", "Head", "Initial", "Shape", "TrainOptions", "Truth"]


class Shape(NamedTuple):
    """Channels, height and width of one image between two layers."""

    c: int
    h: int
    w: int

    @property
    def floats(self) -> int:
        """How many values it has."""
        return math.prod(self)

    def __str__(self) -> str:
        return f"{self.w} x {self.h} x {self.c}"


@dataclass(frozen=True, slots=True)
class Head:
    """How the values of a layer become boxes, and what a detector does with these.

    Args:
        classes: their number.
        anchors: width and height of each, in pixels of the input ([yolo]) or in cells ([region]).
        mask: which anchors the head uses, in order.
        scale_x_y: how far a centre is spread beyond its cell.
        new_coords: boxes without exponentials.
        nms_kind, beta_nms: non-maximum suppression and its exponent.
        tree: whose nodes the classes are.
        map: nodes of the tree that another list of classes stands for, in its order.
    """

    classes: int
    anchors: tuple[tuple[float, float], ...]
    mask: tuple[int, ...]
    scale_x_y: float = 1.0
    new_coords: bool = False
    nms_kind: str = "default"
    beta_nms: float = 0.6
    tree: Tree | None = None
    map: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What of a layer is in a file of weights.

    Args:
        load: the file holds the layer's arrays when it is read (dontload=0).
        scales: it holds those of its batchnorm but the biases (dontloadscales=0).
        filters: it holds this many filters, the first ones (numload); None all.
        save: the arrays are written (dontsave=0).
        flipped: weights stand there with the filter as the last axis.
    """

    load: bool = True
    scales: bool = True
    filters: int | None = None
    save: bool = True
    flipped: bool = False

    @property
    def loads_all(self) -> bool:
        """Whether a load fills every array."""
        return self.load and self.scales and self.filters is None


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What a section says about its layer's training.

    Args:
        learning_rate: factor of the network's.
        only_forward: backward passes it over (onlyforward=1).
        stop: backward ends behind it (stopbackward=1).
        dont_update: up to this iteration its parameters stay.
        only_statistics: its parameters stay, and those of all layers before it; rolling arrays move (train_only_bn=1).
    """

    learning_rate: float = 1.0
    only_forward: bool = False
    stop: bool = False
    dont_update: int = 0
    only_statistics: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """What a layer with a loss compares an image with.

    Args:
        kind: *values*: one for each of its own; *boxes*: rows x, y, w, h and more; *cells*: of a grid, 0 or 1, the classes, a box;
            *instances*: rows of a class and a value for each pixel.
        floats: of one image.
        boxes, row, class_at: of boxes and instances, how many rows, their floats, and where in one the class stands.
        side, classes: of cells.
    """

    kind: Literal["values", "boxes", "cells", "instances"]
    floats: int
    boxes: int = 0
    row: int = 0
    class_at: int = 0
    side: int = 0
    classes: int = 0


class Initial(NamedTuple):
    """Weights before any training: mean + spread * (a normal number, or a uniform one from -1 to 1)."""

    spread: float
    mean: float = 0.0
    distribution: Literal["normal", "uniform"] = "uniform"


WHOLE_FILE = FileOptions()
ORDINARY_TRAINING = TrainOptions()
