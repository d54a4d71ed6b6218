"""Heads as ONNX nodes: their outputs as the core gives them."""

from __future__ import annotations

from .. import _native
from ..layers import Layer
from .onnx_graph import Graph, Value, native_of
from .onnx_moves import grouped_softmax

__all__ = ["detection", "gaussian_yolo", "iseg", "region", "region_is_planar", "yolo"]


def _sigmoid(g: Graph, x: Value) -> Value:
    return g.same("Sigmoid", x)


def _spread(g: Graph, x: Value, scale: float) -> Value:
    """A centre may leave its cell: x * scale - (scale - 1)/2."""
    if scale == 1:
        return x
    return g.same("Add", g.same("Mul", x, g.scalar(scale)), g.scalar(-0.5 * (scale - 1)))


def _entries(g: Graph, layer: Layer, x: Value) -> Value:
    """As (batch, anchors, entries, h, w)."""
    native = native_of(layer)
    return g.reshape(x, native.n, native.coords + 1 + native.classes, native.h, native.w)


def yolo(g: Graph, layer: Layer, x: Value) -> Value:
    """Logistics of x, y, objectness and classes, unless new_coords; x and y spread."""
    native = native_of(layer)
    if native.new_coords and native.scale_x_y == 1:
        return x
    xy, wh, rest = g.split(_entries(g, layer, x), 2, 2, 2, 1 + native.classes)
    if not native.new_coords:
        xy, rest = _sigmoid(g, xy), _sigmoid(g, rest)
    return g.reshape(g.concat([_spread(g, xy, native.scale_x_y), wh, rest], 2), *layer.out_shape)


def gaussian_yolo(g: Graph, layer: Layer, x: Value) -> Value:
    """Logistics of all but width and height; x and y spread."""
    native = native_of(layer)
    parts = g.split(_entries(g, layer, x), 2, *[1] * 7, 2 + native.classes)
    done = [part if number in (4, 6) else _sigmoid(g, part) for number, part in enumerate(parts)]
    for number in (0, 2):
        done[number] = _spread(g, done[number], native.scale_x_y)
    return g.reshape(g.concat(done, 2), *layer.out_shape)


def region_is_planar(layer: Layer) -> bool:
    """Whether the output keeps the planes of its input."""
    return bool(native_of(layer).layer_rule.region == _native.enum("region", "planar"))


def region(g: Graph, layer: Layer, x: Value, groups: tuple[int, ...]) -> Value:
    """In planes, or turned inside out: (cell, anchor, entry)."""
    return (_planar_region if region_is_planar(layer) else _flat_region)(g, layer, x, groups)


def _planar_region(g: Graph, layer: Layer, x: Value, groups: tuple[int, ...]) -> Value:
    native = native_of(layer)
    entries = _entries(g, layer, x)
    if native.background and native.softmax and not groups:
        xy, more, classes = g.split(entries, 2, 2, native.coords - 2, 1 + native.classes)
        parts = [_sigmoid(g, xy), more, g.same("Softmax", classes, axis=2)]
    else:
        xy, more, objectness, classes = g.split(entries, 2, 2, native.coords - 2, 1, native.classes)
        objectness = objectness if native.background else _sigmoid(g, objectness)
        soft = bool(groups or native.softmax)
        parts = [_sigmoid(g, xy), more, objectness, grouped_softmax(g, classes, 2, groups) if soft else _sigmoid(g, classes)]
    return g.reshape(g.concat(parts, 2), *layer.out_shape)


def _flat_region(g: Graph, layer: Layer, x: Value, groups: tuple[int, ...]) -> Value:
    native = native_of(layer)
    cells, width = native.h * native.w, native.coords + 1 + native.classes
    rows = g.reshape(g.transpose(g.reshape(x, native.n * width, cells), 2, 1), cells * native.n, width)
    extra = native.coords - 4  # behind the classes: an entry is taken to be 5 + classes long
    box, objectness, classes, *rest = g.split(rows, 2, 4, 1, native.classes, *([extra] if extra else []))
    if groups or native.softmax:
        classes = grouped_softmax(g, classes, 2, groups)
    return g.reshape(g.concat([box, _sigmoid(g, objectness), classes, *rest], 2), *layer.out_shape)


def detection(g: Graph, layer: Layer, x: Value) -> Value:
    """A softmax over the classes of each cell, where the section says so."""
    native = native_of(layer)
    if not native.softmax:
        return x
    cells = native.side**2
    classes, rest = g.split(g.reshape(x, native.inputs), 1, cells * native.classes, native.inputs - cells * native.classes)
    soft = g.same("Softmax", g.reshape(classes, cells, native.classes), axis=-1)
    return g.reshape(g.concat([g.reshape(soft, cells * native.classes), rest], 1), *layer.out_shape)


def iseg(g: Graph, layer: Layer, x: Value) -> Value:
    """Logistics of the classes' planes."""
    classes = native_of(layer).classes
    if classes in (0, layer.out_shape.c):
        return _sigmoid(g, x) if classes else x
    planes, embedding = g.split(x, 1, classes, layer.out_shape.c - classes)
    return g.concat([_sigmoid(g, planes), embedding], 1)
