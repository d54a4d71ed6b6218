"""Batch normalization of each framework and of ours behind the same three methods. A framework is imported on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import pydarknetbn as dn
from pydarknetbn.dialect import profile_named

__all__ = ["FRAMEWORKS", "Floats", "Layer", "Ours", "State"]

Floats = NDArray[np.float32]
State = tuple[Floats, Floats, Floats, Floats]
"""Scales, biases, rolling mean, rolling variance: (C) each."""


class Layer(Protocol):
    """A layer with scales and biases that stay, and rolling arrays. Momentum and epsilon are the framework's defaults."""

    def train(self, x: Floats, gradient: Floats) -> dict[str, Floats]:
        """A training forward of (N, C, H, W), and where there is a backward the gradients of sum(output * gradient)."""

    def infer(self, x: Floats) -> Floats:
        """An inference."""

    def rolling(self) -> tuple[Floats, Floats]:
        """Rolling mean and variance."""


def _step(output: Any, gradients: tuple[Any, Any, Any] | None = None) -> dict[str, Floats]:
    named = dict(zip(("input gradient", "scale gradient", "bias gradient"), gradients or (), strict=False))
    return {name: np.array(value, np.float32) for name, value in {"output": output, **named}.items()}


class Ours:
    """`pydarknetbn.BatchNorm`."""

    def __init__(self, state: State, profile: str) -> None:
        self._layer = dn.BatchNorm(len(state[0]), profile=profile)
        self._rule = profile_named(profile).rule("batchnorm")
        self._layer.scales, self._layer.biases, self._layer.rolling_mean, self._layer.rolling_variance = state

    def train(self, x: Floats, gradient: Floats) -> dict[str, Floats]:
        """As told, but for a gradient of the biases where the profile's layer computes none."""
        layer = self._layer
        output = layer.forward(x, train=True)
        found = _step(output, (layer.backward(gradient), layer.scale_updates, layer.bias_updates))
        layer.scale_updates[...] = layer.bias_updates[...] = 0  # a backward adds to them
        return found if self._rule.bias_gradient else {name: array for name, array in found.items() if name != "bias gradient"}

    def infer(self, x: Floats) -> Floats:
        """As told."""
        return self._layer.forward(x, train=False)

    def rolling(self) -> tuple[Floats, Floats]:
        """As told."""
        return self._layer.rolling_mean.copy(), self._layer.rolling_variance.copy()


class _OfTorch:
    """Of a module of PyTorch or of Keras over it: its scale and bias, and how it is called."""

    def __init__(self, call: Callable[[Any, bool], Any], parameters: tuple[Any, Any], rolling: tuple[Any, Any]) -> None:
        self._call, self._parameters, self._rolling = call, parameters, rolling

    def train(self, x: Floats, gradient: Floats) -> dict[str, Floats]:
        import torch

        tensor = torch.from_numpy(x).requires_grad_()
        output = self._call(tensor, True)
        return _step(output.detach(), torch.autograd.grad(output, (tensor, *self._parameters), torch.from_numpy(gradient)))

    def infer(self, x: Floats) -> Floats:
        import torch

        return np.array(self._call(torch.from_numpy(x), False).detach())

    def rolling(self) -> tuple[Floats, Floats]:
        mean, variance = (np.array(value.detach()) for value in self._rolling)
        return mean, variance


class _OfJax:
    """Of a function of (parameters, statistics, x, train) to (output, statistics)."""

    def __init__(self, call: Callable[..., tuple[Any, Any]], state: State) -> None:
        import jax

        arrays = [jax.numpy.asarray(value) for value in state]
        self._call, self._parameters, self._statistics = call, arrays[:2], arrays[2:]

    def train(self, x: Floats, gradient: Floats) -> dict[str, Floats]:
        import jax

        def forward(x: Any, scale: Any, bias: Any) -> tuple[Any, Any]:
            return self._call((scale, bias), self._statistics, x, True)

        output, backward, self._statistics = jax.vjp(forward, jax.numpy.asarray(x), *self._parameters, has_aux=True)
        return _step(output, backward(jax.numpy.asarray(gradient)))

    def infer(self, x: Floats) -> Floats:
        return np.array(self._call(self._parameters, self._statistics, x, False)[0])

    def rolling(self) -> tuple[Floats, Floats]:
        mean, variance = (np.array(value) for value in self._statistics)
        return mean, variance


class _OfOnnx:
    """A model of one node under onnxruntime, which has no backward."""

    def __init__(self, opset: int, state: State) -> None:
        self._opset, self._state = opset, list(state)

    def _run(self, x: Floats, train: bool) -> list[Any]:
        import onnxruntime

        inputs = dict(zip(("x", "scale", "bias", "mean", "variance"), (x, *self._state), strict=True))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = _onnx_model(self._opset, {name: list(value.shape) for name, value in inputs.items()}, train)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return list(session.run(None, inputs))

    def train(self, x: Floats, gradient: Floats) -> dict[str, Floats]:  # noqa: ARG002
        output, mean, variance, *_ = self._run(x, True)
        self._state[2:] = mean, variance
        return _step(output)

    def infer(self, x: Floats) -> Floats:
        return np.array(self._run(x, False)[0])

    def rolling(self) -> tuple[Floats, Floats]:
        return self._state[2], self._state[3]


def _onnx_model(opset: int, shapes: Mapping[str, list[int]], train: bool) -> bytes:
    """Opset 9 is trained by asking for five outputs; later ones by `training_mode`."""
    from onnx import TensorProto, helper

    kept = ["kept mean", "kept variance"] + (["saved mean", "saved variance"] if opset < 14 else [])
    outputs = ["output", *(kept if train else [])]
    mode = {"training_mode": int(train)} if opset >= 14 else {}
    node = helper.make_node("BatchNormalization", list(shapes), outputs, **mode)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "batchnorm", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(model.SerializeToString())


def _torch(state: State) -> Layer:
    import torch

    module = torch.nn.BatchNorm2d(len(state[0]))
    arrays = (module.weight, module.bias, module.running_mean, module.running_var)
    with torch.no_grad():
        for array, value in zip(arrays, state, strict=True):
            array.copy_(torch.from_numpy(value))
    return _OfTorch(lambda x, train: module.train(train)(x), arrays[:2], arrays[2:])


def _keras(state: State) -> Layer:
    """Over the backend that the environment variable KERAS_BACKEND names."""
    import keras

    layer = keras.layers.BatchNormalization(axis=1)
    layer.build((None, len(state[0]), None, None))
    layer.set_weights(list(state))
    if keras.backend.backend() == "jax":
        return _OfJax(lambda weights, rolling, x, train: layer.stateless_call(weights, rolling, x, training=train), state)
    arrays = [weight.value for weight in layer.weights]
    return _OfTorch(lambda x, train: layer(x, training=train), (arrays[0], arrays[1]), (arrays[2], arrays[3]))


def _linen(state: State) -> Layer:
    from flax import linen

    def call(weights: Any, rolling: Any, x: Any, train: bool) -> tuple[Any, Any]:
        variables = {
            "params": dict(zip(("scale", "bias"), weights, strict=True)),
            "batch_stats": dict(zip(("mean", "var"), rolling, strict=True)),
        }
        layer = linen.BatchNorm(use_running_average=not train, axis=1)
        output, changed = layer.apply(variables, x, mutable=["batch_stats"])
        return output, [changed["batch_stats"][name] for name in ("mean", "var")]

    return _OfJax(call, state)


FRAMEWORKS: Mapping[str, Callable[[State], Layer]] = MappingProxyType(
    {
        "torch": _torch,
        "keras": _keras,
        "keras over torch": _keras,
        "flax": _linen,
        "onnx-9": partial(_OfOnnx, 9),
        "onnx-14": partial(_OfOnnx, 14),
        "onnx-15": partial(_OfOnnx, 15),
    }
)
"""A layer of each framework, with its defaults but for the state."""
