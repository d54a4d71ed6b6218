"""What a fault is: a change of single operations, and where it may stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .graph import Graph, Node

Changes = Sequence[Node] | None
"""What stands instead of an operation: (), its input goes on; None, the fault does not apply there."""


@dataclass(frozen=True)
class Fault:
    """Of operations of one kind.

    Args:
        name: words.
        kinds: what the doctor calls it.
        op: kind of the operation.
        change: (graph, node) -> what stands there instead.
        values: to be recovered.
        everywhere: ports have it at all layers alike.
        apart: (graph, layers) -> graph, for a fault that is no change of single operations.
    """

    name: str
    kinds: Sequence[str]
    op: str
    change: Callable[[Graph, Node], Changes]
    values: Mapping[str, float | int | str] = field(default_factory=dict)
    everywhere: bool = True
    apart: Callable[[Graph, Sequence[int]], Graph] | None = None

    def places(self, graph: Graph) -> list[int]:
        """Layers where it changes something."""
        found = []
        for node in graph.where(self.op):
            changed = self.change(graph, node)
            if changed is not None and not _same(changed, node) and node.layer not in found:
                found.append(node.layer)
        return found

    def apply(self, graph: Graph, layers: Sequence[int]) -> Graph:
        """The graph with the fault in these layers."""
        if self.apart is not None:
            return self.apart(graph, layers)
        return replaced(graph, lambda node: self.change(graph, node) if node.op == self.op and node.layer in layers else None)


def replaced(graph: Graph, change: Callable[[Node], Changes]) -> Graph:
    """Each operation replaced by what `change` gives, or left where that is None."""
    made: list[Node] = []
    instead: dict[str, str] = {}

    def read(node: Node) -> Node:
        return replace(node, inputs=tuple(instead.get(name, name) for name in node.inputs))

    for node in graph.nodes:
        changed = change(node)
        if changed is not None and not changed:
            instead[node.name] = instead.get(node.inputs[0], node.inputs[0])
            continue
        made += [read(new) for new in ([node] if changed is None else changed)]
    return replace(graph, nodes=tuple(made), outputs=tuple(instead.get(name, name) for name in graph.outputs))


def one(change: Callable[[Node], Node | None]) -> Callable[[Graph, Node], Changes]:
    """A change that needs nothing of the graph and gives one operation."""

    def made(graph: Graph, node: Node) -> Changes:
        new = change(node)
        return None if new is None else (new,)

    return made


def layers_with(graph: Graph, op: str) -> set[int]:
    """Numbers of the layers that have such an operation."""
    return {node.layer for node in graph.where(op)}


def _same(changed: Sequence[Node], node: Node) -> bool:
    if len(changed) != 1:
        return False
    (new,) = changed
    if (new.op, new.inputs, dict(new.attributes), set(new.arrays)) != (
        node.op,
        node.inputs,
        dict(node.attributes),
        set(node.arrays),
    ):
        return False
    return all(array.shape == node.arrays[name].shape and (array == node.arrays[name]).all() for name, array in new.arrays.items())
