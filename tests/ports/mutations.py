"""Faults that ports have, each as a change of a right port or of what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import pydarknetbn as dn

from . import bn_faults, conv_faults, inputs, other_faults
from .faults import Fault
from .graph import Floats, Graph


@dataclass(frozen=True)
class Mutation:
    """A fault at a place.

    Args:
        name: such as "epsilon 0.001 inside, everywhere".
        kinds: what it is called; any of them is right, they are arithmetically equal at the place where the fault shows.
        values: what a doctor should find out.
        change: what it makes of a right port; None changes nothing.
        feed: what the port is given of a picture and of our network's input; None the same input.
        harmless: is to be called no fault.
        layers: where it stands; () for the input or the whole.
    """

    name: str
    kinds: frozenset[str]
    values: Mapping[str, float | int | str] = field(default_factory=dict)
    change: Callable[[Graph], Graph] | None = None
    feed: Callable[[Floats, Floats], Floats] | None = None
    harmless: bool = False
    layers: tuple[int, ...] = ()

    def graph(self, graph: Graph) -> Graph:
        """The port with the fault."""
        return graph if self.change is None else self.change(graph)

    def given(self, picture: Floats, x: Floats) -> Floats:
        """What the port gets."""
        return x if self.feed is None else np.ascontiguousarray(self.feed(picture, x), np.float32)


def mutations(net: dn.Network, graph: Graph) -> tuple[Mutation, ...]:
    """All that apply to a network: each fault everywhere and at one layer in the middle."""
    found = [
        Mutation(name, frozenset({kind, *more}), {}, None, feed, harmless=kind == "input.decoder")
        for name, (kind, *more), feed in inputs.FEEDS
    ]
    for fault in (*bn_faults.faults(), *conv_faults.faults(), *other_faults.faults(net)):
        found += placed(fault, graph)
    found += [
        Mutation(f"{precision}", frozenset({"half.precision"}), {"precision": precision}, _precision(precision))
        for precision in ("float16", "bfloat16")
    ]
    return _merged(found, graph)


def placed(fault: Fault, graph: Graph) -> Iterator[Mutation]:
    """Everywhere first, where ports have it so, then at one layer in the middle."""
    places = fault.places(graph)
    if not places:
        return
    wanted: list[tuple[str, Sequence[int]]] = []
    if fault.everywhere and len(places) > 1:
        wanted.append(("everywhere", places))
    middle = places[len(places) // 2]
    wanted.append((f"layer {middle}", [middle]))
    for words, layers in wanted:
        yield Mutation(f"{fault.name}, {words}", frozenset(fault.kinds), fault.values, _at(fault, layers), layers=tuple(layers))


def _at(fault: Fault, layers: Sequence[int]) -> Callable[[Graph], Graph]:
    return lambda graph: fault.apply(graph, layers)


def _precision(name: str) -> Callable[[Graph], Graph]:
    return lambda graph: replace(graph, precision=name)


def _merged(found: Iterable[Mutation], graph: Graph) -> tuple[Mutation, ...]:
    """Those that make the same port become one, with the kinds of all."""
    made: dict[object, Mutation] = {}
    for mutation in found:
        key = mutation.name if mutation.change is None else fingerprint(mutation.graph(graph))
        if key in made:
            other = made[key]
            made[key] = replace(other, kinds=other.kinds | mutation.kinds, name=f"{other.name} = {mutation.name}")
        else:
            made[key] = mutation
    return tuple(made.values())


def fingerprint(graph: Graph) -> int:
    """Equal for ports that compute the same in the same way."""
    parts = [
        (
            node.op,
            node.name,
            node.inputs,
            repr(sorted(node.attributes.items())),
            tuple((name, array.shape, array.tobytes()) for name, array in sorted(node.arrays.items())),
        )
        for node in graph.nodes
    ]
    return hash((tuple(parts), graph.precision))
