"""By how much a fault moves what its layer gives, in multiples of that layer's rounding noise."""

from __future__ import annotations

import numpy as np

from .as_torch import Port, Tensor, as_torch, torch
from .graph import INPUT, Floats, Graph, names_of

_HALF_UNIT = 2.0**-24


class Right:
    """A right port's values on an input, and the rounding noise of each."""

    def __init__(self, graph: Graph, x: Floats) -> None:
        self.names = names_of(graph)
        with torch.no_grad():
            self.values = as_torch(graph).values(torch.from_numpy(x))
            self.noises = _noises(graph, self.values)


@torch.no_grad()
def moved(right: Right, wrong: Graph, given: Floats, *, first_only: bool) -> float:
    """The most over all layers; each layer gets the right values of those before it. first_only: of layer 0, for another input."""
    others = _by_layer(as_torch(wrong), right.values, right.names, torch.from_numpy(np.array(given)))
    theirs = names_of(wrong)
    largest = 0.0
    for key in right.names.keys() & theirs.keys():
        if key[0] == 0 or not first_only:
            name = right.names[key]
            largest = max(largest, _apart(others[theirs[key]].float(), right.values[name]) / right.noises[name])
    return largest


def _apart(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape or bool((a.isfinite() != b.isfinite()).any()):
        return float("inf")
    return float((a - b).abs().nan_to_num(0).max())


def _by_layer(port: Port, values: dict[str, Tensor], names: dict[tuple[int, str], str], given: Tensor) -> dict[str, Tensor]:
    """What each operation of a wrong port gives; only within a layer it goes on with its own values."""
    layers = {node.name: node.layer for node in port.graph.nodes}
    dtype = next(port.parameters()).dtype
    made: dict[str, Tensor] = {INPUT: given}
    for node in port.graph.nodes:
        inputs = []
        for name in node.inputs:
            own = name == INPUT or layers[name] == node.layer
            inputs.append((made[name] if own else values[names[layers[name], "post"]]).to(dtype))
        made[node.name] = port.step(node, inputs)
    return made


def _noises(graph: Graph, values: dict[str, Tensor]) -> dict[str, float]:
    """Of each operation: the largest difference to the same in double, half a unit of its largest value at least."""
    port = as_torch(graph).double()
    found = {}
    for node in graph.nodes:
        exact = port.step(node, [values[name].double() for name in node.inputs])
        value = values[node.name]
        found[node.name] = max(float((exact - value).abs().max()), _HALF_UNIT * float(value.abs().max()))
    return found
