"""Boxes out of the heads' outputs, and non-maximum suppression, as ONNX nodes.

Rows (batch, rows, 5 + classes): x, y, w, h (centre and size, 1 the side of the network's input), objectness, and the probability of
each class, which is objectness times class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .. import _native
from .._native import Array
from ..errors import UnsupportedError
from ..layers import Layer, Shape
from .onnx_graph import Graph, Value, native_of
from .onnx_heads import region_is_planar

__all__ = ["check_boxes", "decoded", "selected"]

NMS_THRESH, THRESH = 0.45, 0.25
"""What `Network.detect` takes: overlap over which a box goes, and the lower limit of a probability."""

_PLAIN_NMS = ("default", "greedynms")


class _Rows(NamedTuple):
    """(batch, rows, 4), (batch, rows, 1) and (batch, rows, classes)."""

    boxes: Value
    objectness: Value
    probs: Value


def check_boxes(name: str, heads: Sequence[Layer], nms: bool) -> None:
    """Raises an UnsupportedError where ONNX nodes cannot take boxes from the heads as the core does."""
    if not heads:
        raise UnsupportedError(f"{name}: has no head, such as a [yolo] layer, to take boxes from; take boxes='raw'")
    if len({layer.head.classes for layer in heads if layer.head}) > 1:
        raise UnsupportedError(f"{name}: its heads have different numbers of classes, which make no one table; take boxes='raw'")
    for layer in heads:
        assert layer.head is not None
        place = f"{name}:{layer.line}: [{layer.type}], layer {layer.index},"
        if layer.head.tree:
            raise UnsupportedError(f"{place} has a tree of classes, along which ONNX finds no boxes; take boxes='raw'")
        if layer.type == "region" and (native_of(layer).background or native_of(layer).coords > 4):
            raise UnsupportedError(f"{place} has background= or coords= over 4, which are not decoded; take boxes='raw'")
        if nms and layer.head.nms_kind not in _PLAIN_NMS:
            message = f"{place} has nms_kind={layer.head.nms_kind}, but ONNX suppresses by plain overlap alone"
            raise UnsupportedError(f"{message}; take boxes='decoded'")


def decoded(g: Graph, net_shape: Shape, heads: Sequence[Layer], outputs: Sequence[Value]) -> Value:
    """The rows of all heads, one head after the other.

    Within one they go by anchor, row and column; in a flattened [region] or a [detection] by cell, then anchor.
    """
    tables = []
    for layer, output in zip(heads, outputs, strict=True):
        g.begin(f"{layer.index}_{layer.type}/boxes")
        tables.append(g.concat(list(DECODERS[layer.type](g, net_shape, layer, output)), 2))
    g.begin("boxes")
    return g.concat(tables, 1)


def selected(g: Graph, rows: Value) -> Value:
    """(selected, 3): image, class and row of each box that is left."""
    g.begin("nms")
    boxes, _, probs = g.split(rows, 2, 4, 1, int(rows.shape[2]) - 5)
    scores = g.transpose(probs, 2, 1)
    numbers = g.onnx.TensorProto
    if g.dtype != np.float32:
        boxes, scores = (g.op("Cast", value, shape=value.shape, dtype=numbers.FLOAT, to=numbers.FLOAT) for value in (boxes, scores))
    most = g.integers(int(rows.shape[1]))
    limits = [g.float32("iou_threshold", NMS_THRESH), g.float32("score_threshold", THRESH)]
    shape = ("selected", 3)
    return g.op("NonMaxSuppression", boxes, scores, most, *limits, shape=shape, dtype=numbers.INT64, center_point_box=1)


# --- one head -------------------------------------------------------------------------------------------------------------------


def _planar_rows(g: Graph, layer: Layer, output: Value) -> Value:
    """As (batch, anchors * h * w, entries)."""
    native = native_of(layer)
    width = native.coords + 1 + native.classes
    planes = g.reshape(output, native.n, width, native.h, native.w)
    return g.reshape(g.transpose(planes, 1, 3, 4, 2), native.n * native.h * native.w, width)


def _grid(columns: int, rows: int, anchors: int, cells_first: bool) -> Array:
    """(1, anchors * cells, 2): column and row of each row's cell."""
    cells = np.stack([np.tile(np.arange(columns), rows), np.repeat(np.arange(rows), columns)], 1)
    table = np.repeat(cells, anchors, axis=0) if cells_first else np.tile(cells, (anchors, 1))
    return table[np.newaxis].astype(np.float32)


def _centres(g: Graph, layer: Layer, xy: Value, cells_first: bool = False) -> Value:
    native = native_of(layer)
    grid = g.constant("cells", _grid(native.w, native.h, native.n, cells_first))
    return g.same("Div", g.same("Add", xy, grid), g.constant("size", np.asarray([native.w, native.h], np.float32)))


def _sides(g: Graph, layer: Layer, wh: Value, unit: tuple[int, int], cells_first: bool = False) -> Value:
    """exp(t) * anchor / unit, or with new_coords t*t * 4 * anchor / unit."""
    native, head = native_of(layer), layer.head
    assert head is not None
    chosen = np.asarray([head.anchors[number] for number in head.mask]) / np.asarray(unit)
    cells = native.h * native.w
    table = np.tile(chosen, (cells, 1)) if cells_first else np.repeat(chosen, cells, axis=0)
    growth = g.same("Mul", wh, wh) if head.new_coords else g.same("Exp", wh)
    anchors = (table[np.newaxis] * (4 if head.new_coords else 1)).astype(np.float32)
    return g.same("Mul", growth, g.constant("anchors", anchors))


def _yolo(g: Graph, net: Shape, layer: Layer, output: Value) -> _Rows:
    xy, wh, objectness, classes = g.split(_planar_rows(g, layer, output), 2, 2, 2, 1, native_of(layer).classes)
    boxes = g.concat([_centres(g, layer, xy), _sides(g, layer, wh, (net.w, net.h))], 2)
    return _Rows(boxes, objectness, g.same("Mul", classes, objectness))


def _gaussian_yolo(g: Graph, net: Shape, layer: Layer, output: Value) -> _Rows:
    """The more certain the four sides are, the more probable."""
    native = native_of(layer)
    entries = g.split(_planar_rows(g, layer, output), 2, *[1] * 9, native.classes)
    objectness, classes = entries[8:]
    centres = _centres(g, layer, g.concat([entries[0], entries[2]], 2))
    sides = _sides(g, layer, g.concat([entries[4], entries[6]], 2), (net.w, net.h))
    point = native.yolo_point
    if point != _native.enum("yolo_point", "center"):
        half = g.same("Mul", sides, g.scalar(0.5))
        centres = g.same("Add" if point == _native.enum("yolo_point", "left_top") else "Sub", centres, half)
    uncertain = g.concat([entries[number] for number in (1, 3, 5, 7)], 2)
    mean = g.op("ReduceMean", uncertain, shape=objectness.shape, axes=[2], keepdims=1)
    certain = g.same("Mul", objectness, g.same("Sub", _ones(g, mean), mean))
    return _Rows(g.concat([centres, sides], 2), objectness, g.same("Mul", classes, certain))


def _ones(g: Graph, like: Value) -> Value:
    return g.constant("ones", np.ones((1, *(int(size) for size in like.shape[1:])), np.float32))


def _region(g: Graph, _: Shape, layer: Layer, output: Value) -> _Rows:
    native = native_of(layer)
    planar, width = region_is_planar(layer), 5 + native.classes
    count = native.n * native.h * native.w
    rows = _planar_rows(g, layer, output) if planar else g.reshape(output, count, width)
    xy, wh, objectness, classes = g.split(rows, 2, 2, 2, 1, native.classes)
    xy = xy if planar else g.same("Sigmoid", xy)
    boxes = g.concat([_centres(g, layer, xy, not planar), _sides(g, layer, wh, (native.w, native.h), cells_first=not planar)], 2)
    factor = objectness
    if not planar and native.classfix == -1:
        over = g.op("Less", objectness, g.scalar(0.5), shape=objectness.shape, dtype=g.onnx.TensorProto.BOOL)
        factor = g.op("Where", over, g.scalar(0), objectness, shape=objectness.shape)
    return _Rows(boxes, objectness, g.same("Mul", classes, factor))


def _detection(g: Graph, _: Shape, layer: Layer, output: Value) -> _Rows:
    """Classes of each cell, objectness of each box, then the boxes."""
    native = native_of(layer)
    cells, n = native.side**2, native.n
    flat = g.reshape(output, native.inputs)
    classes, objectness, boxes = g.split(flat, 1, cells * native.classes, cells * n, cells * n * native.coords)
    xy, wh = g.split(g.reshape(boxes, cells * n, native.coords), 2, 2, 2)
    grid = g.constant("cells", _grid(native.side, native.side, n, cells_first=True))
    xy = g.same("Div", g.same("Add", xy, grid), g.scalar(native.side))
    wh = g.same("Mul", wh, wh) if native.sqrt else wh
    shape = (g.batch, cells, n, native.classes)
    product = g.op("Mul", g.reshape(classes, cells, 1, native.classes), g.reshape(objectness, cells, n, 1), shape=shape)
    probs = g.reshape(product, cells * n, native.classes)
    return _Rows(g.concat([xy, wh], 2), g.reshape(objectness, cells * n, 1), probs)


DECODERS: Mapping[str, Callable[[Graph, Shape, Layer, Value], _Rows]] = MappingProxyType(
    {"Gaussian_yolo": _gaussian_yolo, "detection": _detection, "region": _region, "yolo": _yolo}
)
