"""Recurrent layers in float64 by their definitions, in training: each time step's batchnorms take that step's statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import oracle
from oracle import Doubles
from pydarknetbn.dialect import BatchNormRule

ACTIVATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "linear": lambda x: x,
    "leaky": lambda x: np.where(x > 0, x, x / 10),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}
logistic = ACTIVATIONS["logistic"]


@dataclass(frozen=True)
class Definition:
    """A recurrent layer: parameters are "wf.weights" and so on.

    Args:
        kind: "rnn", "gru", "lstm" or "history".
        rule: of its batchnorms.
        activation: of its inner layers.
        shortcut: an [rnn]'s.
        candidate: a [gru]'s activation.
        limit: of a [conv_lstm]'s cell; 0 none.
        held: inputs that a [history] holds.
    """

    kind: str
    rule: BatchNormRule
    activation: str = "linear"
    shortcut: bool = False
    candidate: str = "logistic"
    limit: float = 0.0
    held: int = 1

    def outputs(self, parameters: Mapping[str, Doubles], x: Doubles, start: Mapping[str, Doubles]) -> Doubles:
        """x (steps, sequences, c, h, w) to outputs of the same kind, from a start of "state" and "cell"."""
        state = dict(start)
        step = {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm, "history": self._history}[self.kind]
        return np.stack([step(parameters, each, state) for each in x])

    def _inner(self, parameters: Mapping[str, Doubles], name: str, x: Doubles) -> Doubles:
        weights = parameters[f"{name}.weights"]
        if weights.ndim == 4:
            z = oracle.convolution(x, weights, {"pad": weights.shape[2] // 2})
        else:
            z = (x.reshape(len(x), -1) @ weights.T)[:, :, None, None]
        biases, scales = parameters[f"{name}.biases"], parameters.get(f"{name}.scales")
        if scales is None:
            return ACTIVATIONS[self.activation](z + biases[:, None, None])
        given = oracle.Parameters(scales, biases, np.zeros_like(biases), np.zeros_like(biases))
        flat = oracle.forward(self.rule, z.reshape(*z.shape[:2], -1), given, train=True).output
        return ACTIVATIONS[self.activation](flat.reshape(z.shape))

    def _rnn(self, p: Mapping[str, Doubles], x: Doubles, state: dict[str, Doubles]) -> Doubles:
        before = state["state"]
        moved = self._inner(p, "input_layer", x) + self._inner(p, "self_layer", before)
        state["state"] = moved + before if self.shortcut else moved
        return self._inner(p, "output_layer", state["state"])

    def _gru(self, p: Mapping[str, Doubles], x: Doubles, state: dict[str, Doubles]) -> Doubles:
        before = state["state"]
        z = logistic(self._inner(p, "wz", before) + self._inner(p, "uz", x))
        r = logistic(self._inner(p, "wr", before) + self._inner(p, "ur", x))
        candidate = ACTIVATIONS[self.candidate](self._inner(p, "wh", r * before) + self._inner(p, "uh", x))
        state["state"] = z * before + (1 - z) * candidate
        return state["state"]

    def _lstm(self, p: Mapping[str, Doubles], x: Doubles, state: dict[str, Doubles]) -> Doubles:
        before, cell = state["state"], state["cell"]

        def gate(name: str, peeped: Doubles) -> Doubles:
            total = self._inner(p, f"w{name}", before) + self._inner(p, f"u{name}", x)
            return total + self._inner(p, f"v{name}", peeped) if f"v{name}.weights" in p else total

        f, i, g = logistic(gate("f", cell)), logistic(gate("i", cell)), np.tanh(gate("g", cell))
        new = f * cell + i * g
        state["state"] = logistic(gate("o", new)) * np.tanh(new)
        state["cell"] = np.clip(new, -self.limit, self.limit) if self.limit else new
        return state["state"]

    def _history(self, p: Mapping[str, Doubles], x: Doubles, state: dict[str, Doubles]) -> Doubles:
        state["state"] = np.concatenate([x, state["state"][:, : (self.held - 1) * x.shape[1]]], axis=1)
        return state["state"]


def slopes(loss: Callable[[], float], at: Doubles, asked: NDArray[np.bool_], step: float = 1e-6) -> Doubles:
    """Central differences of a loss by the values of an array that it reads; NaN where not asked for."""
    found = np.full_like(at, np.nan)
    for place in map(tuple, np.argwhere(asked)):
        kept = at[place]
        rise = 0.0
        for sign in (1, -1):
            at[place] = kept + sign * step
            rise += sign * loss()
        at[place] = kept
        found[place] = rise / (2 * step)
    return found
