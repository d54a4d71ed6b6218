"""The boxes of a [yolo] layer as one table, for ports that show nothing else."""

from __future__ import annotations

import numpy as np

from .._native import Array
from ..layers import Layer

__all__ = ["boxes_of"]


def boxes_of(layer: Layer, output: Array, net_size: tuple[int, int]) -> Array:
    """Boxes out of what a [yolo] layer gives.

    Args:
        layer: the head.
        output: (batch, n * (5 + classes), h, w), what it gives.
        net_size: width and height of the network's input.

    Returns:
        Of the same shape: for each anchor x, y, w, h (centre and size, 1 the side of the input), objectness and the classes'
        probabilities, not multiplied.

    Source: AlexeyAB/darknet src/yolo_layer.c get_yolo_box.
    """
    head = layer.head
    assert head is not None
    batch, _, h, w = output.shape
    entries = output.reshape(batch, len(head.mask), -1, h, w).astype(np.float64)
    x, y = (entries[:, :, 0] + np.arange(w)) / w, (entries[:, :, 1] + np.arange(h)[:, None]) / h
    anchors = np.array([head.anchors[number] for number in head.mask], np.float64)[:, :, None, None]
    sides = entries[:, :, 2:4]
    with np.errstate(over="ignore", invalid="ignore"):
        spread = sides * sides * 4 if head.new_coords else np.exp(sides)
        width, height = (spread[:, :, axis] * anchors[:, axis] / net_size[axis] for axis in (0, 1))
        made = np.concatenate([np.stack([x, y, width, height], 2), entries[:, :, 4:]], 2)
        return made.reshape(output.shape).astype(np.float32)
