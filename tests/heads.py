"""Heads made by hand: C layers over an output that a test has written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pydarknetbn._native import ffi
from pydarknetbn._native import rule as rule_struct
from pydarknetbn.boxes import Detections, decode
from pydarknetbn.dialect import PROFILES, LayerRule

RULE = PROFILES["alexeyab-cpu"].layers


class Head(NamedTuple):
    """A C layer with everything that it points to."""

    layer: Any
    alive: tuple[Any, ...]

    def at(self, index: int, kind: str = "yolo") -> Any:
        return index, self.layer, kind


def make_head(output: np.ndarray, rule: LayerRule, *, anchors: list[float], mask: list[int] | None = None, **fields: int) -> Head:
    """`fields` are further ones of the C layer; classes is 1 by default."""
    output = np.ascontiguousarray(output, np.float32)
    layer = ffi.new("layer *")
    layer.batch, _, layer.h, layer.w = output.shape
    layer.outputs, layer.total = output[0].size, len(anchors) // 2
    for name, value in ({"classes": 1, "coords": 4} | fields).items():
        setattr(layer, name, value)
    alive = [ffi.from_buffer("float[]", output), ffi.new("float[]", anchors), ffi.new("int[]", mask or [0])]
    layer.output, layer.anchors, layer.mask = alive
    layer.n = len(mask) if mask else layer.total
    layer.layer_rule = rule_struct("layer_rule", rule)[0]
    return Head(layer, (*alive, output))


def yolo_output(h: int, w: int, anchors: int, classes: int = 1, batch: int = 1) -> np.ndarray:
    """Zeros (batch, anchors, 5 + classes, h, w), to be reshaped to (batch, c, h, w)."""
    return np.zeros((batch, anchors, 5 + classes, h, w), np.float32)


def read(head: Head, image: int = 0, *, kind: str = "yolo", size: tuple[int, int] = (416, 416), **options: Any) -> Detections:
    """The rows of one head as layer 0 of a network of 416 x 416."""
    settings: dict[str, Any] = {"net_size": (416, 416), "thresh": 0.25, "letter": False, "rule": RULE, "relative": True}
    return decode([head.at(0, kind)], image, picture_size=size, **(settings | options))
