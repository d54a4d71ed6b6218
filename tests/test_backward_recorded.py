"""Two training steps of whole networks, as the forks' programs computed them: see golden/README.md, "backward"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from core import SAMPLE
from hosts import assert_gradient
from pydarknetbn._native import Array
from pydarknetbn.training import Pass, backpropagate, update_parameters

FILES = sorted((SAMPLE / "backward").glob("*/*.npz"))
FILE_ORDER = ("biases", "scales", "rolling_mean", "rolling_variance", "weights")
GRADIENTS = ("weight_updates", "bias_updates", "scale_updates")
WITH_LIBM = {"shortcuts_libm": "mish", "normalization": "logistic"}  # exp, log, tanh, pow


def filled(path: Path, parameters: Array) -> dn.Network:
    net = dn.load(path.with_suffix(".cfg"), dialect=path.parent.name.removesuffix("-cpu"))
    at = 0
    for layer in net.layers:
        for name in FILE_ORDER:
            if name in layer.shapes:
                array = getattr(layer, name)
                array[...] = parameters[at : at + array.size].reshape(array.shape)
                at += array.size
    assert at == parameters.size
    return net


def gradients(net: dn.Network, x: Array, delta: Array, masks: dict[int, Array]) -> Array:
    """Forward and backward of that delta; deltas start as in the program. Returns the delta of the input."""
    rule = net.arithmetic.training
    for index, numbers in masks.items():
        layer = net.layers[index]
        layer.mask = (numbers >= layer.trainer.probability).reshape(len(x), *layer.out_shape)
    done = Pass(x, train=True, time_steps=1, cache=True)
    done = net.runner.run(done, keep_all=True, starts=lambda layer: rule.cleared if rule.trains(layer.type) else "kept")
    net.layers[-1].delta[...] = delta
    into = backpropagate(net.layers, done, rule, name="net", wants_input=True, workspace=net.runner.workspace)
    assert into is not None
    return into


def assert_recorded(net: dn.Network, names: tuple[str, ...], want: dict[str, Array], number: int, activation: str) -> int:
    """How many arrays were compared."""
    found = [(layer, name, f"{number}.{layer.index:03d}.{name}") for layer in net.layers for name in names]
    for layer, name, key in found:
        if key in want:
            assert_gradient(np.asarray(getattr(layer, name)).ravel(), want[key], activation, key)
    return sum(key in want for _, _, key in found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_two_steps_leave_the_recorded_gradients_and_parameters(path: Path) -> None:
    with np.load(path) as file:
        want = dict(file)
    net, compared, activation = filled(path, want["parameters"]), 0, WITH_LIBM.get(path.stem, "linear")
    for number in (1, 2):
        masks = {int(key.split(".")[1]): want[key] for key in want if key.startswith(f"{number}.") and key.endswith(".rand")}
        into = gradients(net, want[f"x{number}"], want[f"delta{number}"], masks)
        assert_gradient(into.ravel(), want[f"{number}.input.delta"], activation, f"{number}.input.delta")
        compared += assert_recorded(net, GRADIENTS, want, number, activation)
        update_parameters(net.layers, net.arithmetic.training, batch=2, learning_rate=0.01, momentum=0.9, decay=0.0005)
        compared += assert_recorded(net, FILE_ORDER, want, number, activation)
    assert compared == sum(key[1] == "." and not key.endswith((".rand", "input.delta")) for key in want)


def test_there_are_recorded_steps() -> None:
    assert len(FILES) == 10
