"""Faults of batch normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from .faults import Changes, Fault, one, replaced
from .graph import Floats, Graph, Node

ARRAYS = ("biases", "scales", "mean", "variance")  # in file order
EPSILONS = ((1e-3, "inside"), (1e-4, "inside"), (1e-6, "inside"), (1e-6, "outside"))


def faults() -> Iterator[Fault]:
    """All of them."""
    for value, side in EPSILONS:
        values = {"epsilon": value, "side": side}
        yield _bn(f"epsilon {value:g} {side}", "epsilon", one(_epsilon(value, side)), values)
        if side == "inside":
            yield Fault(
                f"folded with epsilon {value:g}", ("batchnorm.epsilon",), "batchnorm", _dropped, values, apart=_fold_all(value)
            )
    for words, statistics in (("n", (0.0, 1.0, False)), ("n - 1", (0.0, 1.0, True))):
        yield _bn(f"the batch's statistics (over {words})", "batch_statistics", _having(statistics=statistics))
    yield _bn("one update ahead", "stale", _having(statistics=(0.9, 0.1, True)), {"updates": 1})
    yield _bn("one update behind", "stale", _having(statistics=(1 / 0.9, -0.1 / 0.9, True)), {"updates": -1})
    yield _bn(
        "rolling arrays not loaded",
        "rolling_not_loaded",
        one(lambda node: node.having(mean=_like(node, 0), variance=_like(node, 1))),
    )
    yield _bn("variance over n, not n - 1", "bessel", one(_biased))
    yield _bn("scales not loaded", "scales_missing", one(lambda node: node.having(scales=_like(node, 1))))
    yield _bn("biases not loaded", "biases_missing", one(lambda node: node.having(biases=_like(node, 0))))
    yield _bn("forgotten", "forgotten", _dropped)
    yield _bn("twice", "twice", _twice)
    yield Fault("folded into the convolution and kept", ("batchnorm.twice",), "batchnorm", _dropped, apart=_fold_and_keep)
    yield _bn("of the convolution's input", "wrong_input", _wrong_input)
    yield Fault("biases in the convolution too", ("batchnorm.bias_kept",), "conv", _bias_kept)
    for order in list(permutations(ARRAYS))[1:]:
        words = ", ".join(order)
        yield _bn(f"file read as {words}", "permuted", one(_permuted(order)), {"order": words})
    for step in (-4, -2, -1, 1, 2, 4):
        values = {"shift": step}
        nothing = ("batchnorm.shifted",)
        yield Fault(f"arrays shifted by {step:+}", nothing, "batchnorm", _dropped, values, apart=_shifted(step, whole=False))
        yield Fault(f"file shifted by {step:+} from here", nothing, "batchnorm", _dropped, values, apart=_shifted(step, whole=True))


def _bn(
    name: str, kind: str, change: Callable[[Graph, Node], Changes], values: dict[str, float | int | str] | None = None
) -> Fault:
    return Fault(f"batchnorm: {name}", (f"batchnorm.{kind}",), "batchnorm", change, values or {})


def _having(**changes: object) -> Callable[[Graph, Node], Changes]:
    return one(lambda node: node.having(**changes))


def _like(node: Node, value: float) -> Floats:
    return np.full_like(node.arrays["mean"], value)


def _dropped(graph: Graph, node: Node) -> Changes:
    return ()


def _epsilon(value: float, side: str) -> Callable[[Node], Node]:
    """Outside: the variance whose root with epsilon 0 is that plus epsilon."""

    def change(node: Node) -> Node:
        if side == "inside":
            return node.having(epsilon=value)
        root = np.sqrt(node.arrays["variance"].astype(np.float64)) + value
        return node.having(epsilon=0.0, variance=(root**2).astype(np.float32))

    return change


def _biased(node: Node) -> Node:
    pixels = node.attributes["pixels"]
    return node.having(variance=(node.arrays["variance"] * ((pixels - 1) / pixels)).astype(np.float32))


def _twice(graph: Graph, node: Node) -> Changes:
    first = replace(node, name=f"{node.name}_first")
    return first, replace(node, inputs=(first.name,))


def _conv_of(graph: Graph, node: Node) -> Node:
    return next(conv for conv in graph.where("conv", [node.layer]))


def _wrong_input(graph: Graph, node: Node) -> Changes:
    conv = _conv_of(graph, node)
    n, depth = conv.arrays["weights"].shape[:2]
    if conv.attributes["stride"] != (1, 1) or depth * conv.attributes["groups"] != n:
        return None
    return (replace(node, inputs=conv.inputs),)


def _bias_kept(graph: Graph, node: Node) -> Changes:
    behind = graph.where("batchnorm", [node.layer])
    return (node.having(bias=behind[0].arrays["biases"]),) if behind else None


def _permuted(order: Sequence[str]) -> Callable[[Node], Node]:
    """The file's first array taken for that name, and so on."""
    return lambda node: node.having(**{name: node.arrays[stands] for name, stands in zip(order, ARRAYS, strict=True)})


# --- folding --------------------------------------------------------------------------------------------------------------------


def folded(graph: Graph, *, epsilon: float | None = None, layers: Sequence[int] | None = None) -> Graph:
    """The batchnorms of these layers, or all, in the convolutions before them."""

    def change(node: Node) -> Changes:
        if layers is not None and node.layer not in layers:
            return None
        if node.op == "batchnorm":
            return ()
        behind = graph.where("batchnorm", [node.layer]) if node.op == "conv" else ()
        return (_folded(node, behind[0], epsilon),) if behind else None

    return replaced(graph, change)


def _folded(conv: Node, bn: Node, epsilon: float | None) -> Node:
    scales, biases, mean, variance = (bn.arrays[name].astype(np.float64) for name in ("scales", "biases", "mean", "variance"))
    factor = scales / np.sqrt(variance + (bn.attributes["epsilon"] if epsilon is None else epsilon))
    weights = (conv.arrays["weights"] * factor[:, None, None, None]).astype(np.float32)
    return conv.having(weights=weights, bias=(biases - mean * factor).astype(np.float32))


def _fold_all(epsilon: float) -> Callable[[Graph, Sequence[int]], Graph]:
    """Everything is folded, these layers with another epsilon."""
    return lambda graph, layers: folded(folded(graph, epsilon=epsilon, layers=layers))


def _fold_and_keep(graph: Graph, layers: Sequence[int]) -> Graph:
    return replaced(
        graph,
        lambda node: (
            (folded(graph)[node.name],)
            if node.op == "conv" and node.layer in layers and graph.where("batchnorm", [node.layer])
            else None
        ),
    )


# --- files ----------------------------------------------------------------------------------------------------------------------


def _shifted(step: int, *, whole: bool) -> Callable[[Graph, Sequence[int]], Graph]:
    """Arrays read `step` floats too late; whole: weights too, and all layers from the first one of these on."""

    def apart(graph: Graph, layers: Sequence[int]) -> Graph:
        floats, places = _file(graph)
        read: dict[tuple[str, str], Floats] = {}
        for (name, array), (begin, shape) in places.items():
            node = graph[name]
            if (node.layer >= min(layers)) if whole else (node.layer in layers and node.op == "batchnorm"):
                start = begin + step
                read[name, array] = floats[start : start + int(np.prod(shape))].reshape(shape)

        def change(node: Node) -> Changes:
            new = {array: values for (name, array), values in read.items() if name == node.name}
            return (node.having(**new),) if new else None

        return replaced(graph, change)

    return apart


def _file(graph: Graph) -> tuple[Floats, dict[tuple[str, str], tuple[int, tuple[int, ...]]]]:
    """The .weights file as floats, its header among them, and where each array of a node stands."""
    parts = [np.array([0, 2, 5, 6400, 0], np.int32).view(np.float32)]
    places: dict[tuple[str, str], tuple[int, tuple[int, ...]]] = {}
    at = 5
    for conv in graph.nodes:
        arrays: list[tuple[Node, str]] = []
        if conv.op == "conv":
            behind = graph.where("batchnorm", [conv.layer])
            arrays = [(behind[0], name) for name in ARRAYS] if behind else [(conv, "bias")]
            arrays.append((conv, "weights"))
        elif "raw" in conv.arrays:
            arrays = [(conv, "raw")]
        for node, name in arrays:
            places[node.name, name] = at, node.arrays[name].shape
            parts.append(node.arrays[name].ravel())
            at += node.arrays[name].size
    return np.concatenate([*parts, np.zeros(8, np.float32)]), places
