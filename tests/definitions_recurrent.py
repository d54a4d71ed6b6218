"""What recurrent layers compute over time steps from a state of zeros, in float64 on a tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from definitions import Section, activated, convolved, finished, multiplied
from tape import Value, joined

Inner = Callable[[Section, str, Value, str], Value]


def _matrix(s: Section, name: str, x: Value, activation: str) -> Value:
    inner = s.inside(name)
    return finished(multiplied(x, inner.arrays["weights"]), inner, "connected", activation)


def _convolution(s: Section, name: str, x: Value, activation: str) -> Value:
    inner = s.inside(name)
    return finished(convolved(x, inner.arrays["weights"], inner), inner, "convolutional", activation)


def _steps(s: Section) -> Iterator[Value]:
    """The rows of each time step: all sequences of the first, then of the next."""
    sequences = s.input.shape[0] // s.number("time_steps", 1)
    for row in range(0, s.input.shape[0], sequences):
        yield s.input[row : row + sequences]


def _zeros(s: Section, *shape: int) -> Value:
    return Value(np.zeros((s.input.shape[0] // s.number("time_steps", 1), *shape)))


def _recurrent(s: Section, inner: Inner, state: Value) -> Value:
    activation = s.options["activation"]
    own = {0: activation, 1: "logistic", 2: "loggy"}[s.number("logistic")]
    outputs = []
    for x in _steps(s):
        taken = inner(s, "input_layer", x, activation) + inner(s, "self_layer", state, own)
        state = state + taken if s.number("shortcut") else taken
        outputs.append(inner(s, "output_layer", state, activation))
    return joined(outputs, 0)


def rnn(s: Section) -> Value:
    return _recurrent(s, _matrix, _zeros(s, s.arrays["self_layer.weights"].shape[1], 1, 1))


def crnn(s: Section) -> Value:
    return _recurrent(s, _convolution, _zeros(s, s.arrays["self_layer.weights"].shape[1], *s.input.shape[2:]))


def gru(s: Section) -> Value:
    state = _zeros(s, s.arrays["wz.weights"].shape[0], 1, 1)
    outputs = []

    def part(name: str, x: Value) -> Value:
        return _matrix(s, name, x, "linear")

    for x in _steps(s):
        z = activated(part("wz", state) + part("uz", x), "logistic")
        r = activated(part("wr", state) + part("ur", x), "logistic")
        h = activated(part("wh", r * state) + part("uh", x), "tanh" if s.number("tanh") else "logistic")
        state = z * state + (1.0 - z) * h
        outputs.append(state)
    return joined(outputs, 0)


def _memory(s: Section, inner: Inner, activation: str, *shape: int) -> Value:
    state, cell = _zeros(s, *shape), _zeros(s, *shape)
    outputs = []

    def gate(name: str, x: Value, seen: Value, curve: str) -> Value:
        summed = inner(s, f"w{name}", state, activation) + inner(s, f"u{name}", x, activation)
        if s.number("peephole") and name != "g":
            summed = summed + inner(s, f"v{name}", seen, activation)
        return activated(summed, curve)

    for x in _steps(s):
        kept, taken, new = gate("f", x, cell, "logistic"), gate("i", x, cell, "logistic"), gate("g", x, cell, "tanh")
        cell = kept * cell + taken * new
        state = gate("o", x, cell, "logistic") * activated(cell, "tanh")
        outputs.append(state)
    return joined(outputs, 0)


def lstm(s: Section) -> Value:
    return _memory(s, _matrix, "linear", s.arrays["wf.weights"].shape[0], 1, 1)


def conv_lstm(s: Section) -> Value:
    return _memory(s, _convolution, s.options.get("activation", "linear"), s.arrays["wf.weights"].shape[0], *s.input.shape[2:])


def history(s: Section) -> Value:
    """The newest first, zeros before the first."""
    steps = list(_steps(s))
    size = s.number("history_size", 4)
    outputs = []
    for i in range(len(steps)):
        held = [steps[i - age] if i >= age else Value(np.zeros(steps[0].shape)) for age in range(size)]
        outputs.append(joined(held, 1))
    return joined(outputs, 0)


RECURRENT: dict[str, Callable[[Section], Value]] = {
    "conv_lstm": conv_lstm,
    "crnn": crnn,
    "gru": gru,
    "history": history,
    "lstm": lstm,
    "rnn": rnn,
}
