"""What a convolutional and a connected layer are compared with, in the same way: the steps that the recorder took."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

import libm
from core import LIBM, CoreLayer, assert_activated, assert_same_bits
from pydarknetbn._native import Array

Make = Callable[[str], CoreLayer]
STATISTICS = ("mean", "variance", "rolling_mean", "rolling_variance")
BACKWARD = ("delta", "weight_updates", "bias_updates")
UPDATED = ("weights", "biases", "weight_updates", "bias_updates")


def check_forwards(make: Make, activation: str, inputs: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """Two training forwards, then inference with the parameters that the fork's update left.

    `make` takes the activation. The linear twin gives each value before the activation, which sets libm's limit.
    """
    layer, before = make(activation), make("linear")
    for each in (layer, before):
        each.set(inputs)
    for step in ("fwd1", "fwd2"):
        x = inputs["x" + step[-1]]
        linear = before.forward(x, train=True, degenerate=True)
        output = layer.forward(x, train=True, degenerate=True)
        assert_activated(output, want[f"{step}.output"], linear, activation, f"{step}.output")
        if f"{step}.activation_input" in want and activation != "swish":  # there it is the logistic
            assert_same_bits(linear, want[f"{step}.activation_input"], f"{step}.activation_input")
        for name in STATISTICS if layer.native.batchnorm else ():
            assert_same_bits(layer.array(name), want[f"{step}.{name}"], f"{step}.{name}")
    for name in ("x", "x_norm") if layer.native.batchnorm else ():
        assert_same_bits(layer.array(name), want[f"fwd2.{name}"], f"fwd2.{name}")
    for each in (layer, before):
        each.set(want, "upd.")
    linear = before.forward(inputs["x_inf"])
    assert_activated(layer.forward(inputs["x_inf"]), want["inf.output"], linear, activation, "inf.output")


def check_backward(layer: CoreLayer, activation: str, inputs: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """Backward through all of the layer after two training forwards, and its update."""
    with_bn = bool(layer.native.batchnorm)
    layer.set(inputs)
    layer.forward(inputs["x1"], train=True, degenerate=True)
    layer.forward(inputs["x2"], train=True, degenerate=True)
    got = {"bwd.in_delta": layer.backward_whole(inputs["x2"], inputs["delta"], inputs["in_delta0"])}
    names = (*BACKWARD, *(("scale_updates", "mean_delta", "variance_delta") if with_bn else ()))
    got |= {f"bwd.{name}": layer.array(name).copy() for name in names}
    layer.update(inputs["x2"].shape[0], 0.001, 0.9, 0.0005)
    got |= {f"upd.{name}": layer.array(name) for name in (*UPDATED, *(("scales", "scale_updates") if with_bn else ()))}
    for name, array in got.items():
        assert_gradient(array, want[name], activation, name)


def assert_gradient(got: Array, want: Array, activation: str, name: str) -> None:
    """Bit-equal; but with another libm, whose last bits are in the output, to 1e-5 of the largest element."""
    if libm.is_the_recorders() or activation not in LIBM:
        assert_same_bits(got, want, name)
    else:
        off = np.abs(np.asarray(got, np.float64).reshape(want.shape) - want)
        assert np.all(off <= 1e-5 * np.max(np.abs(want))), f"{name}: off by {off.max()} of {np.max(np.abs(want))}"
