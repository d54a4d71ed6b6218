"""Faults of convolutions and activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .faults import Changes, Fault, layers_with, one
from .graph import Floats, Graph, Node


def faults() -> Iterator[Fault]:
    """All of them."""
    yield from _padding()
    yield _conv("dilation ignored", "dilation", one(_undilated))
    for words, make in _GROUPS.items():
        yield _conv(f"groups: {words}", "groups", one(_grouped(make)))
    for words, axes in (("both ways", (2, 3)), ("in rows", (2,)), ("in columns", (3,))):
        yield _weights(f"kernel flipped {words}", "flipped", _flipping(axes))
    yield _weights("rows and columns of the kernel swapped", "axes", lambda w: w.transpose(0, 1, 3, 2))
    yield _weights("inputs and filters swapped", "axes", lambda w: _swapped(w) if w.shape[2] > 1 else None)
    yield _weights("inputs and filters of one pixel swapped", ("axes", "order"), lambda w: _swapped(w) if w.shape[2] == 1 else None)
    yield _weights("kernel read as HWIO", "order", _as_hwio)
    yield _weights("kernel read as OHWI", "order", lambda w: w.reshape(w.shape[0], *w.shape[2:], w.shape[1]).transpose(0, 3, 1, 2))
    yield from _activations()


def _conv(name: str, kind: str, change: Callable[[Graph, Node], Changes], **options: Any) -> Fault:
    return Fault(f"convolution: {name}", (f"convolution.{kind}",), "conv", change, **options)


def _weights(name: str, kinds: str | Sequence[str], change: Callable[[Floats], Floats | None]) -> Fault:
    def changed(node: Node) -> Node | None:
        new = change(node.arrays["weights"])
        return None if new is None else node.having(weights=np.ascontiguousarray(new))

    words = (kinds,) if isinstance(kinds, str) else kinds
    return Fault(f"convolution: {name}", [f"convolution.{word}" for word in words], "conv", one(changed))


# --- where the kernel stands ----------------------------------------------------------------------------------------------------


def _padding() -> Iterator[Fault]:
    class_of_two = ("convolution.padding", "convolution.stride")
    sides = {"below and right": (0, 1, 0, 1), "above and left": (1, 0, 1, 0)}
    for words, side in sides.items():
        yield _conv(f"padding {words}", "padding", one(_sided(side, 1)))
        change = one(_sided(side, 2))
        yield Fault(f"convolution: of stride 2, padding {words}", class_of_two, "conv", change)
    yield _conv("no padding", "padding", _resized(lambda size, old: 0), everywhere=False)
    yield _conv(
        "padding for a kernel of one pixel", "padding", _resized(lambda size, old: 1 if size == 1 else old), everywhere=False
    )


def _sided(side: Sequence[int], stride: int) -> Callable[[Node], Node | None]:
    """All padding on one side; with a stride of 2 as much as is needed there."""

    def change(node: Node) -> Node | None:
        border, size = node.attributes["padding"][0], node.arrays["weights"].shape[2]
        if node.attributes["stride"] != (stride, stride) or not border:
            return None
        spare = 2 * border
        if stride == 2 and side[1] and size == 3:
            spare = 1  # what "same" of TensorFlow gives for even sizes
        return node.having(padding=tuple(spare * part for part in side))

    return change


def _resized(amount: Callable[[int, int], int]) -> Callable[[Graph, Node], Changes]:
    """Where nothing behind it needs the size, down to a head."""

    def change(graph: Graph, node: Node) -> Changes:
        border = amount(node.arrays["weights"].shape[2], node.attributes["padding"][0])
        if not _only_heads_behind(graph, node.name):
            return None
        return (node.having(padding=(border,) * 4),)

    return change


def _only_heads_behind(graph: Graph, name: str) -> bool:
    takers = [node for node in graph.nodes if name in node.inputs]
    meets = {"concat", "sum", "scale", "reorg", "maxpool", "upsample", "avgpool"}
    if any(node.op in meets for node in takers):
        return False
    return all(_only_heads_behind(graph, node.name) for node in takers)


def _undilated(node: Node) -> Node | None:
    dilation = node.attributes["dilation"]
    if dilation == 1:
        return None
    return node.having(dilation=1, padding=tuple(side // dilation for side in node.attributes["padding"]))


# --- weights --------------------------------------------------------------------------------------------------------------------


def _flipping(axes: Sequence[int]) -> Callable[[Floats], Floats]:
    return lambda weights: np.flip(weights, tuple(axes))


def _swapped(weights: Floats) -> Floats | None:
    return weights.transpose(1, 0, 2, 3) if weights.shape[0] == weights.shape[1] else None


def _as_hwio(weights: Floats) -> Floats | None:
    """Not where that only swaps inputs and filters."""
    if weights.shape[2] == 1 and weights.shape[0] == weights.shape[1]:
        return None
    return weights.reshape(*weights.shape[2:], *weights.shape[1::-1]).transpose(3, 2, 0, 1)


def _dense(weights: Floats, groups: int, channels: Callable[[int, int], Sequence[int]]) -> Floats:
    """As one group: channels(group, depth) are those that a group's filters take."""
    n, depth, *size = weights.shape
    made = np.zeros((n, depth * groups, *size), np.float32)
    for filter_ in range(n):
        made[filter_, list(channels(filter_ // (n // groups), depth))] = weights[filter_]
    return made


def _filters_dealt(weights: Floats, groups: int) -> Floats:
    n = len(weights)
    made = _dense(weights, groups, lambda group, depth: range(group * depth, (group + 1) * depth))
    order = np.arange(n).reshape(groups, n // groups).T.ravel()
    right = np.empty_like(made)
    for filter_ in range(n):
        donor = made[order[filter_]]
        right[filter_] = 0
        taken = np.nonzero(donor.any((1, 2)))[0]
        right[filter_, taken] = weights[filter_]
    return right


_GROUPS: Mapping[str, Callable[[Floats, int], Floats]] = {
    "channels dealt out in turn": lambda w, g: _dense(w, g, lambda group, depth: range(group, depth * g, g)),
    "filters dealt out in turn": _filters_dealt,
    "all take the first one's channels": lambda w, g: _dense(w, g, lambda group, depth: range(depth)),
    "ignored, kernels repeated": lambda w, g: np.tile(w, (1, g, 1, 1)),
}


def _grouped(make: Callable[[Floats, int], Floats]) -> Callable[[Node], Node | None]:
    def change(node: Node) -> Node | None:
        groups, weights = node.attributes["groups"], node.arrays["weights"]
        if groups == 1:
            return None
        right = _dense(weights, groups, lambda group, depth: range(group * depth, (group + 1) * depth))
        new = make(weights, groups)
        return None if np.array_equal(new, right) else node.having(weights=new, groups=1)

    return change


# --- activations ----------------------------------------------------------------------------------------------------------------

_OTHERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "leaky": {"linear": ("kind", "slope"), "relu": ("kind", "slope"), "elu": ("kind",), "mish": ("kind", "mish")},
    "mish": {
        "linear": ("kind",),
        "relu": ("kind",),
        "swish": ("kind", "mish"),
        "hard mish": ("kind", "mish"),
        "tanhexp": ("kind", "mish"),
    },
    "swish": {"linear": ("kind",), "relu": ("kind",), "mish": ("kind", "mish"), "hard swish": ("kind",)},
    "logistic": {"linear": ("kind",), "tanh": ("kind",)},
}


def _activations() -> Iterator[Fault]:
    for slope in (0.01, 0.2, 0.3):
        yield _active(f"slope {slope}", ("activation.slope",), "leaky", {"slope": slope}, slope=slope)
    for right, wrong in _OTHERS.items():
        for kind, kinds in wrong.items():
            yield _active(f"{kind} instead of {right}", [f"activation.{name}" for name in kinds], right, {}, kind=kind)


def _active(name: str, kinds: Sequence[str], right: str, values: Mapping[str, float | int | str], **changes: Any) -> Fault:
    def change(graph: Graph, node: Node) -> Changes:
        if node.attributes["kind"] != right or node.layer not in layers_with(graph, "conv"):
            return None
        return (node.having(**changes),)

    return Fault(f"activation: {name}", kinds, "activation", change, values)
