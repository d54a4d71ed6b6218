"""A port of a network as a list of operations, made from the text of the cfg and the arrays, as people write ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn

Floats = NDArray[np.float32]
INPUT = "input"


@dataclass(frozen=True)
class Node:
    """One operation; what it gives has its name.

    conv: weights (n, c / groups, h, w) and maybe bias; stride and padding as (rows, columns) and (top, bottom, left, right).
    batchnorm: scales, biases, mean, variance; epsilon within the root; statistics (keep, add, unbiased): keep times the rolling
        ones plus add times the batch's.
    activation: kind, slope.        maxpool: size, stride, padding, value.      upsample: factor, mode, scale.
    concat, identity, avgpool.      slice: begin, end of channels.              reorg: stride, order.
    sum: weights (inputs, c or 1) or none, at: first channel of the second input. dropout: probability, active.
    scale: gate (c, 1, 1), image.   head: anchors, classes, scale_x_y, logistic (of x and y, of the rest), softmax.
    boxes: anchors in pixels, size of the input, squares.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Floats] = field(default_factory=dict)
    layer: int = 0

    def having(self, **changes: Any) -> Node:
        """The same with other attributes, or arrays where one of that name is known or given."""
        arrays = {name: value for name, value in changes.items() if isinstance(value, np.ndarray)}
        attributes = {name: value for name, value in changes.items() if name not in arrays}
        return replace(self, attributes={**self.attributes, **attributes}, arrays={**self.arrays, **arrays})


@dataclass(frozen=True)
class Graph:
    """Operations in order; `shape` (c, h, w) of the input; `precision` of all arithmetic: float32, float16 or bfloat16."""

    nodes: tuple[Node, ...]
    shape: tuple[int, int, int]
    outputs: tuple[str, ...]
    precision: str = "float32"

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def where(self, op: str, layers: Sequence[int] | None = None) -> tuple[Node, ...]:
        """The operations of a kind, of these layers or of all."""
        return tuple(node for node in self.nodes if node.op == op and (layers is None or node.layer in layers))


def port_of(net: dn.Network, *, boxes: bool = True) -> Graph:
    """The port of a network; `boxes`: its outputs are tables of boxes, else what [yolo] gives."""
    sections = sections_of(net.origin.cfg.text)
    last: list[str] = []
    nodes: list[Node] = []
    outputs: list[str] = []
    shapes = [tuple(layer.out_shape) for layer in net.layers]
    for index, (kind, options) in enumerate(sections[1:]):
        before = last[-1] if last else INPUT
        place = _Place(index, options, before, last, shapes, net.layers[index].params, (net.w, net.h))
        made = list(_LAYERS[kind](place))
        nodes += made
        last.append(made[-1].name if made else before)
        if kind == "yolo":
            nodes.append(place.boxes(made[-1].name))
            outputs.append(nodes[-1].name if boxes else made[-1].name)
    return Graph(tuple(nodes), (net.c, net.h, net.w), tuple(outputs or last[-1:]))


def names_of(graph: Graph) -> dict[tuple[int, str], str]:
    """(layer, stage) of the network -> the value that should equal it."""
    found: dict[tuple[int, str], str] = {}
    stages = {"conv": "sums", "sum": "sums", "batchnorm": "normal"}
    last = {node.layer: node.name for node in graph.nodes if node.op != "boxes"}
    for node in graph.nodes:
        if node.op == "boxes":
            found[node.layer, "boxes"] = node.name
        elif node.name == last[node.layer]:
            found[node.layer, "post"] = node.name
        elif node.op in stages and "bias" not in node.arrays:
            found[node.layer, stages[node.op]] = node.name
    return found


def sections_of(text: str) -> list[tuple[str, dict[str, str]]]:
    """[name] and options, as every port reads them."""
    made: list[tuple[str, dict[str, str]]] = []
    for line in (line.split("#")[0].strip() for line in text.splitlines()):
        if line.startswith("["):
            made.append((line[1:-1], {}))
        elif line:
            key, _, value = line.partition("=")
            made[-1][1][key.strip()] = value.strip()
    return made


@dataclass(frozen=True)
class _Place:
    """One section, about to be read."""

    index: int
    options: Mapping[str, str]
    before: str
    last: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    arrays: Mapping[str, Floats]
    size: tuple[int, int]

    def integer(self, key: str, default: int = 0) -> int:
        return int(self.options.get(key, default))

    def numbers(self, key: str) -> list[float]:
        return [float(part) for part in self.options[key].split(",")]

    def layers(self, key: str) -> list[int]:
        """Absolute numbers of layers."""
        return [int(number) if number >= 0 else self.index + int(number) for number in self.numbers(key)]

    def node(
        self, op: str, part: str, inputs: Sequence[str], arrays: Mapping[str, Floats] | None = None, **attributes: Any
    ) -> Node:
        copies = {name: np.array(array, np.float32) for name, array in (arrays or {}).items()}
        return Node(op, f"module.{self.index}.{part}", tuple(inputs), attributes, copies, self.index)

    def activation(self, before: str, default: str = "linear") -> Iterator[Node]:
        kind = self.options.get("activation", default)
        if kind != "linear":
            yield self.node("activation", "act", [before], kind=kind, slope=0.1)

    @property
    def anchors(self) -> list[tuple[float, float]]:
        sides = self.numbers("anchors")
        return [(sides[2 * int(number)], sides[2 * int(number) + 1]) for number in self.numbers("mask")]

    @property
    def all_anchors(self) -> list[tuple[float, float]]:
        sides = self.numbers("anchors")
        return list(zip(sides[::2], sides[1::2], strict=True))

    def boxes(self, before: str) -> Node:
        squares = bool(self.integer("new_coords"))
        attributes = {"anchors": self.anchors, "all_anchors": self.all_anchors, "size": self.size, "squares": squares}
        return self.node("boxes", "boxes", [before], classes=self.integer("classes"), **attributes)


def _convolutional(place: _Place) -> Iterator[Node]:
    arrays, size, stride = place.arrays, place.integer("size", 1), place.integer("stride", 1)
    dilation = place.integer("dilation", 1) if size > 1 else 1
    border = (size // 2 if place.integer("pad") else place.integer("padding")) * dilation
    normalized = bool(place.integer("batch_normalize"))
    kernel = {"weights": arrays["weights"]} | ({} if normalized else {"bias": arrays["biases"]})
    options = {"stride": (stride, stride), "padding": (border,) * 4, "dilation": dilation, "groups": place.integer("groups", 1)}
    conv = place.node("conv", "conv", [place.before], kernel, **options)
    yield conv
    before = conv.name
    if normalized:
        names = {"scales": "scales", "biases": "biases", "mean": "rolling_mean", "variance": "rolling_variance"}
        pixels = place.shapes[place.index][1] * place.shapes[place.index][2]
        own = {name: arrays[darknet] for name, darknet in names.items()}
        yield place.node("batchnorm", "bn", [before], own, epsilon=1e-5, statistics=(1.0, 0.0, False), pixels=pixels)
        before = f"module.{place.index}.bn"
    yield from place.activation(before, "logistic")


def _maxpool(place: _Place) -> Iterator[Node]:
    stride = place.integer("stride", 1)
    size = place.integer("size", stride)
    spare = place.integer("padding", size - 1)
    _, h, w = place.shapes[place.index - 1]
    below, right = (
        (out - 1) * stride + size - spare // 2 - side for out, side in zip(place.shapes[place.index][1:], (h, w), strict=True)
    )
    padding = (spare // 2, max(0, below), spare // 2, max(0, right))
    yield place.node("maxpool", "pool", [place.before], size=size, stride=stride, padding=padding, value=-np.inf)


def _upsample(place: _Place) -> Iterator[Node]:
    scale = float(place.options.get("scale", 1))
    yield place.node("upsample", "up", [place.before], factor=place.integer("stride", 2), mode="nearest", scale=scale)


def _route(place: _Place) -> Iterator[Node]:
    layers, groups = place.layers("layers"), place.integer("groups", 1)
    names = [place.last[layer] for layer in layers]
    if groups > 1:
        parts = []
        for number, layer in enumerate(layers):
            part = place.shapes[layer][0] // groups
            begin = part * place.integer("group_id")
            name = f"part{number}" if len(layers) > 1 else "route"
            parts.append(place.node("slice", name, [names[number]], begin=begin, end=begin + part, parts=groups))
        yield from parts
        names = [node.name for node in parts]
    if len(names) > 1:
        yield place.node("concat", "route", names, sources=tuple(layers))
    elif groups == 1:
        yield place.node("identity", "route", names, sources=tuple(layers))


def _shortcut(place: _Place) -> Iterator[Node]:
    layers = place.layers("from")
    names = [place.before, *(place.last[layer] for layer in layers)]
    arrays = {}
    if "weights" in place.arrays:
        raw = place.arrays["weights"].reshape(len(names), -1).astype(np.float64)
        arrays = {"weights": shares(raw, place.options.get("weights_normalization", "none")).astype(np.float32), "raw": raw}
    yield place.node("sum", "add", names, arrays, at=0, sources=tuple(layers))
    yield from place.activation(f"module.{place.index}.add")


def shares(raw: NDArray[np.float64], normalization: str, extra: float = 1e-4) -> NDArray[np.float64]:
    """Weights of a [shortcut] (inputs, channels or 1) as they multiply."""
    if normalization == "none":
        return raw
    lifted = np.exp(raw - raw.max(0)) if normalization == "softmax" else np.maximum(raw, 0)
    return lifted / (lifted.sum(0) + extra)


def _reorg(place: _Place) -> Iterator[Node]:
    yield place.node("reorg", "reorg", [place.before], stride=place.integer("stride", 1), order="darknet")


def _dropout(place: _Place) -> Iterator[Node]:
    yield place.node("dropout", "drop", [place.before], probability=float(place.options["probability"]), active=False)


def _avgpool(place: _Place) -> Iterator[Node]:
    yield place.node("avgpool", "pool", [place.before])


def _scale_channels(place: _Place) -> Iterator[Node]:
    yield place.node("scale", "scale", [place.before, place.last[place.layers("from")[0]]])
    yield from place.activation(f"module.{place.index}.scale")


def _yolo(place: _Place) -> Iterator[Node]:
    logistic = not place.integer("new_coords")
    spread = float(place.options.get("scale_x_y", 1))
    options = {"classes": place.integer("classes"), "scale_x_y": spread, "logistic": (int(logistic),) * 2, "softmax": False}
    yield place.node("head", "yolo", [place.before], anchors=len(place.numbers("mask")), **options)


_LAYERS: Mapping[str, Callable[[_Place], Iterator[Node]]] = {
    "avgpool": _avgpool,
    "convolutional": _convolutional,
    "dropout": _dropout,
    "maxpool": _maxpool,
    "reorg": _reorg,
    "route": _route,
    "scale_channels": _scale_channels,
    "shortcut": _shortcut,
    "upsample": _upsample,
    "yolo": _yolo,
}
