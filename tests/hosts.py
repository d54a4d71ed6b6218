"""What a convolutional and a connected layer are compared with, in the same way: the steps that the recorder took."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from core import CoreLayer, assert_activated, assert_same_bits
from pydarknetbn._native import Array

Make = Callable[[str], CoreLayer]
STATISTICS = ("mean", "variance", "rolling_mean", "rolling_variance")
BACKWARD = ("delta", "bias_updates", "scale_updates", "mean_delta", "variance_delta")
SLOPE = {"linear": np.float32(1), "leaky": np.float32(0.1)}


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


def check_batchnorm_backward(layer: CoreLayer, activation: str, inputs: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """The part of the backward pass that is the batchnorm's, and its update."""
    layer.set(inputs)
    layer.forward(inputs["x1"], train=True, degenerate=True)
    output = layer.forward(inputs["x2"], train=True, degenerate=True)
    delta = inputs["delta"].reshape(output.shape)
    layer.backward(delta * np.where(output > 0, np.float32(1), SLOPE[activation]))
    for name in BACKWARD:
        assert_same_bits(layer.array(name), want[f"bwd.{name}"], f"bwd.{name}")
    layer.update(output.shape[0], 0.001, 0.9, 0.0005)
    for name in ("scales", "biases", "scale_updates", "bias_updates"):
        assert_same_bits(layer.array(name), want[f"upd.{name}"], f"upd.{name}")
