"""Faults of the layers without a convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import pydarknetbn as dn

from .faults import Changes, Fault, layers_with, one, replaced
from .graph import Graph, Node, shares


def faults(net: dn.Network) -> Iterator[Fault]:
    """All of them."""
    yield _fault(
        "maxpool",
        "padded with zeros",
        "padding",
        one(lambda node: node.having(value=0.0) if any(node.attributes["padding"]) else None),
    )
    yield _fault("maxpool", "padded above and left", "side", one(_other_side))
    for mode, words in (("bilinear", "bilinear"), ("corners", "bilinear with aligned corners")):
        yield _fault("upsample", words, "mode", _having(mode=mode))
    yield _fault("upsample", "scale ignored", "scale", _having(scale=1.0))
    yield _fault("concat", "order reversed", "order", lambda graph, node: (replace(node, inputs=node.inputs[::-1]),))
    yield _fault("slice", "the other group", "group", one(_other_group))
    for op in ("concat", "identity", "sum"):
        for step in (-1, 1):
            yield _fault(op, f"one index {step:+}", "index", _index(net, op, step), everywhere=False)
    yield Fault("shortcut: activation ignored", ("shortcut.activation",), "activation", _active_shortcut("linear"))
    yield Fault("shortcut: relu", ("shortcut.activation",), "activation", _active_shortcut("relu"))
    for words, change in _WEIGHTS.items():
        yield _fault("sum", words, "weights", change)
    for words, share in (("last channels", 1.0), ("middle channels", 0.5)):
        yield _fault("sum", f"added to the {words}", "channels", _placed(net, share))
    for order in ("block first", "channel first", "columns first"):
        yield _fault("reorg", f"{order}", "order", _having(order=order))
    yield _fault("dropout", "active", "active", _having(active=True))
    yield from _heads()


_WORDS = {"concat": "route", "identity": "route", "slice": "route", "sum": "shortcut", "head": "yolo"}


def _fault(op: str, name: str, kind: str, change: Callable[[Graph, Node], Changes], **options: Any) -> Fault:
    word = _WORDS.get(op, op)
    return Fault(f"{word}: {name}", (f"{word}.{kind}",), op, change, **options)


def _having(**changes: object) -> Callable[[Graph, Node], Changes]:
    return one(lambda node: node.having(**changes))


def _other_side(node: Node) -> Node | None:
    """Windows begin that much earlier."""
    size, padding = node.attributes["size"], node.attributes["padding"]
    if size % 2:
        return None
    above, below = padding[0] + size - 1, max(0, padding[1] - size + 1)
    return node.having(padding=(above, below, above, below))


def _other_group(node: Node) -> Node:
    begin, end = node.attributes["begin"], node.attributes["end"]
    new = end % ((end - begin) * node.attributes["parts"])
    return node.having(begin=new, end=new + end - begin)


def _index(net: dn.Network, op: str, step: int) -> Callable[[Graph, Node], Changes]:
    """The last source's number read wrong, where the layer there has the same sizes and other values."""

    def change(graph: Graph, node: Node) -> Changes:
        source = node.attributes["sources"][-1]
        wrong = source + step
        if not 0 <= wrong < node.layer or net.layers[wrong].out_shape != net.layers[source].out_shape:
            return None
        if net.layers[max(wrong, source)].type in ("dropout", "identity") or wrong in node.attributes["sources"]:
            return None
        value = [other for other in graph.nodes if other.layer == wrong and other.op != "boxes"][-1].name
        if value == node.inputs[-1]:
            return None
        return (replace(node, inputs=(*node.inputs[:-1], value)),)

    return change


# --- shortcuts ------------------------------------------------------------------------------------------------------------------


def _active_shortcut(kind: str) -> Callable[[Graph, Node], Changes]:
    def change(graph: Graph, node: Node) -> Changes:
        return (node.having(kind=kind),) if node.layer in layers_with(graph, "sum") else None

    return change


def _weighted(make: Callable[[Any], Any]) -> Callable[[Graph, Node], Changes]:
    def change(graph: Graph, node: Node) -> Changes:
        if "raw" not in node.arrays:
            return None
        return (node.having(weights=np.ascontiguousarray(make(node.arrays["raw"].astype(np.float64)), np.float32)),)

    return change


def _reversed(graph: Graph, node: Node) -> Changes:
    weights = node.arrays.get("weights")
    return None if weights is None else (node.having(weights=np.ascontiguousarray(weights[::-1])),)


_WEIGHTS: dict[str, Callable[[Graph, Node], Changes]] = {
    "weights ignored": _weighted(np.ones_like),
    "weights not normalized": _weighted(lambda raw: raw),
    "weights normalized by relu": _weighted(lambda raw: shares(raw, "relu")),
    "weights normalized by softmax": _weighted(lambda raw: shares(raw, "softmax")),
    "weights in reverse order": _reversed,
}


def _placed(net: dn.Network, share: float) -> Callable[[Graph, Node], Changes]:
    def change(graph: Graph, node: Node) -> Changes:
        own, other = (net.layers[layer].out_shape.c for layer in (node.layer, node.attributes["sources"][0]))
        return (node.having(at=int((own - other) * share)),) if own != other else None

    return change


# --- heads ----------------------------------------------------------------------------------------------------------------------


def _heads() -> Iterator[Fault]:
    yield _fault("head", "scale_x_y ignored", "scale_x_y", _having(scale_x_y=1.0))
    yield _fault("head", "scale_x_y 1.05 in each head", "scale_x_y", _having(scale_x_y=1.05))
    both = ("yolo.new_coords", "yolo.double_sigmoid")
    yield Fault("yolo: new_coords ignored", both, "head", one(_again), apart=_coordinates(1))
    yield Fault("yolo: new_coords assumed", ("yolo.new_coords",), "head", one(_with_logistic(0)), apart=_coordinates(0))
    for words, times in (("logistic twice of objectness and classes", (1, 2)), ("logistic twice", (2, 2))):
        yield _fault("head", words, "double_sigmoid", one(_twice(times)))
    yield Fault("yolo: logistic again", both, "head", one(_again))
    yield _fault("head", "softmax of classes", "class_softmax", one(lambda node: node.having(softmax=True) if _old(node) else None))
    for words, change in (("of the other head", _other_mask), ("width and height swapped", _swapped), ("in cells", _in_cells)):
        yield Fault(f"yolo: anchors {words}", ("yolo.anchors",), "boxes", one(change))


def _old(node: Node) -> bool:
    return node.attributes["logistic"] == (1, 1)


def _with_logistic(times: int) -> Callable[[Node], Node | None]:
    return lambda node: node.having(logistic=(times, times)) if _old(node) else None


def _twice(times: tuple[int, int]) -> Callable[[Node], Node | None]:
    return lambda node: node.having(logistic=times) if _old(node) else None


def _again(node: Node) -> Node | None:
    """The logistic of the convolution before it is not all."""
    return None if _old(node) else node.having(logistic=(1, 1))


def _coordinates(times: int) -> Callable[[Graph, Sequence[int]], Graph]:
    """Logistic and boxes of the other kind."""

    def apart(graph: Graph, layers: Sequence[int]) -> Graph:
        def change(node: Node) -> Changes:
            if node.layer not in layers or node.op not in ("head", "boxes"):
                return None
            return (node.having(logistic=(times, times)) if node.op == "head" else node.having(squares=not times),)

        return replaced(graph, change)

    return apart


def _other_mask(node: Node) -> Node:
    chosen = node.attributes["anchors"]
    return node.having(anchors=[pair for pair in node.attributes["all_anchors"] if pair not in chosen][: len(chosen)])


def _swapped(node: Node) -> Node:
    return node.having(anchors=[pair[::-1] for pair in node.attributes["anchors"]])


def _in_cells(node: Node) -> Node:
    """As [region] has them, though they are pixels."""
    return node.having(anchors=[(w / 8, h / 8) for w, h in node.attributes["anchors"]])
