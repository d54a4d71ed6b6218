"""Recurrent layers as ONNX nodes: one time step, with the state as further inputs and outputs of the graph."""

from __future__ import annotations

from ..layers import Layer
from .onnx_activations import activate
from .onnx_graph import Graph, Value, native_of
from .onnx_weighted import Source, connected, convolutional

__all__ = ["gru", "history", "lstm", "rnn"]


def _inner(g: Graph, layer: Layer, name: str, x: Value, source: Source) -> Value:
    """A layer inside, on x; its nodes and arrays are called `<index>_<type>/<name>/…`."""
    inside, prefix = layer.inner[name], g.prefix
    g.begin(f"{prefix}/{name}")
    convert = convolutional if inside.type == "convolutional" else connected
    y = convert(g, inside, Source(g.reshape(x, *inside.in_shape), (), source.batchnorm, ()))
    g.begin(prefix)
    return y


def _sum(g: Graph, *parts: Value) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = g.same("Add", total, part)
    return total


def rnn(g: Graph, layer: Layer, source: Source) -> Value:
    """The state is [state +] input layer + self layer, the output a third layer on it."""
    state = g.state("state", layer.states["state"])
    own = _inner(g, layer, "self_layer", state, source)
    taken = _inner(g, layer, "input_layer", source.x, source)
    following = _sum(g, *([state] if native_of(layer).shortcut else []), taken, own)
    g.next_state("state", following)
    return _inner(g, layer, "output_layer", following, source)


def gru(g: Graph, layer: Layer, source: Source) -> Value:
    """Gates z and r, a candidate h of state * r, and z * state + (1 - z) * h."""
    state = g.state("state", layer.states["state"])

    def both(w: str, u: str, read: Value) -> Value:
        return _sum(g, _inner(g, layer, w, read, source), _inner(g, layer, u, source.x, source))

    z, r = (g.same("Sigmoid", both(w, u, state)) for w, u in (("wz", "uz"), ("wr", "ur")))
    h = activate(g, both("wh", "uh", g.same("Mul", r, state)), native_of(layer).activation)
    rest = g.same("Mul", g.same("Add", g.same("Neg", z), g.scalar(1)), h)
    following = g.same("Add", g.same("Mul", z, state), rest)
    g.next_state("state", following)
    return following


def lstm(g: Graph, layer: Layer, source: Source) -> Value:
    """The cell f * cell + i * g, and the state o * tanh(cell); with peepholes the gates see the cell, o the new one."""
    state, cell = g.state("state", layer.states["state"]), g.state("cell", layer.states["cell"])

    def gate(kind: str, name: str, seen: Value) -> Value:
        parts = [_inner(g, layer, f"w{name}", state, source), _inner(g, layer, f"u{name}", source.x, source)]
        if f"v{name}" in layer.inner:
            parts.append(_inner(g, layer, f"v{name}", seen, source))
        return g.same(kind, _sum(g, *parts))

    f, i, candidate = gate("Sigmoid", "f", cell), gate("Sigmoid", "i", cell), gate("Tanh", "g", cell)
    following = g.same("Add", g.same("Mul", f, cell), g.same("Mul", i, candidate))
    output = g.same("Mul", gate("Sigmoid", "o", following), g.same("Tanh", following))
    limit = _limit(layer)
    g.next_state("cell", g.same("Clip", following, g.scalar(-limit), g.scalar(limit)) if limit else following)
    g.next_state("state", output)
    return output


def _limit(layer: Layer) -> float:
    """Of the cell of a [conv_lstm]: 0 none; below 0 it is 32 for each time step."""
    constrain = float(native_of(layer).state_constrain) if layer.type == "conv_lstm" else 0.0
    return 32.0 if constrain < 0 else constrain


def history(g: Graph, layer: Layer, source: Source) -> Value:
    """In a batch of one time step, the input and zeros for those before."""
    return g.pad(source.x, [0] * 4, [0, layer.out_shape.c - layer.in_shape.c, 0, 0])
