"""Runs single steps of a network on values that come from anywhere, to the bit of the network's own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from .. import _native
from .._native import Array, CData, ffi, lib
from ..dialect import BatchNormRule, Host, Profile, profile_named
from ..layers import Layer
from ..network import Network
from ..recurrence import fresh_state
from .arithmetic import Padding, activate, convolve
from .boxes import boxes_of
from .on_device import DeviceOutputs
from .steps import Step, activation_name, steps_of

__all__ = ["Runner"]

_HOSTS: dict[str, Host] = {"connected": "connected", "batchnorm": "batchnorm"}
_OF_CHANNELS = "normalize_channels"


class Runner:
    """A network, step by step.

    Attributes:
        net: whose working arrays are overwritten.
        steps: of it.
        profile: that computes.
        there: what the last `forward` took from a device.

    Args:
        net: the network; one on a device gives its layers' outputs in `forward`.
        on_device: the network that does, where that is another one.
    """

    def __init__(self, net: Network, *, on_device: Network | None = None) -> None:
        self.net, self._on_device = net, on_device or net
        self.there: DeviceOutputs | None = None
        self.steps = steps_of(net)
        self.profile: Profile = profile_named(net.profile)

    def layer_of(self, step: Step) -> Layer:
        """The step's layer."""
        return self.net.layers[step.layer]

    def rule_of(self, step: Step) -> BatchNormRule:
        """How a batchnorm behind the step's layer computes."""
        return self.profile.rule(_HOSTS.get(self.layer_of(step).type, "convolutional"))

    def run(self, step: Step, inputs: Sequence[Array]) -> Array:
        """What the step gives, (batch, c, h, w), for values of the steps that `step.inputs` names, each (batch, c, h, w)."""
        if step.kind == "input":
            return inputs[0]
        layer = self.layer_of(step)
        if step.kind == "convolution":
            return self._sums(layer, inputs[0])
        if step.kind == "connected" and step.stage == "sums":
            return self._products(layer, inputs[0])
        if step.kind == "batchnorm" and layer.type != "batchnorm":
            return self._normal(step, inputs[0])
        if step.kind == "biases":
            return np.asarray(inputs[0] + layer.biases[:, None, None])
        if step.kind == "activation" and layer.type != "activation":
            return self._active(layer, inputs[0])
        if step.kind == "boxes":
            return boxes_of(layer, inputs[0], (self.net.w, self.net.h))
        if layer.native is None:
            return inputs[0]
        with _without_activation(layer, step.stage == "sums"), fresh_state([layer]):
            return self._whole(step, layer, inputs)

    def forward(self, x: Array) -> Iterator[tuple[Step, Array]]:
        """All steps on a batch, one after another; a value is let go when no later step takes it."""
        last_use = {number: step.number for step in self.steps for number in step.inputs}
        values: dict[int, Array] = {-1: x}
        there = self.there = None if self._on_device.device == "cpu" else DeviceOutputs.of(self._on_device, x)
        for step in self.steps:
            ours = self.run(step, [values[number] for number in step.inputs])
            values[step.number] = there.instead_of(step, ours) if there else ours
            yield step, values[step.number]
            for number in {*step.inputs, step.number}:
                if last_use.get(number, -1) <= step.number:
                    values.pop(number, None)

    def _sums(self, layer: Layer, x: Array) -> Array:
        native = layer.native
        assert native is not None
        border = native.pad * native.dilation
        stride = (native.stride_y, native.stride_x)
        padding = Padding(border, border, border, border)
        sums = convolve(x, layer.weights, stride=stride, padding=padding, dilation=native.dilation, groups=native.groups)
        assert sums is not None
        return sums

    def _products(self, layer: Layer, x: Array) -> Array:
        weights = layer.weights.reshape(*layer.weights.shape[:2], 1, 1)
        products = convolve(np.ascontiguousarray(x.reshape(len(x), -1, 1, 1)), weights)
        assert products is not None
        return products

    def _normal(self, step: Step, x: Array) -> Array:
        layer = self.layer_of(step)
        output = np.empty_like(x)
        p = ffi.new("batchnorm_pass *")
        rule = _native.rule("batchnorm_rule", self.rule_of(step))
        arrays = (layer.scales, layer.biases, layer.rolling_mean, layer.rolling_variance)
        p.batch, p.c, p.spatial, p.rule = x.shape[0], x.shape[1], x.shape[2] * x.shape[3], rule
        p.scales, p.biases, p.mean, p.variance = (_native.floats(array) for array in arrays)
        p.input, p.output = _native.floats(x), _native.floats(output)
        lib.batchnorm_infer(p)
        return output

    def _active(self, layer: Layer, x: Array) -> Array:
        name = activation_name(layer)
        if not name.startswith(_OF_CHANNELS):
            host = layer.type != "connected"
            return activate(x, name, self.profile.layers.arithmetic, host=host)
        assert layer.native is not None
        rule = _native.rule("layer_rule", self.profile.layers)
        return _forward(_native.make("activation", *x.shape[1:], layer.native.activation, rule), x, [], "activation")

    def _whole(self, step: Step, layer: Layer, inputs: Sequence[Array]) -> Array:
        sources = list(inputs) if len(inputs) == len(layer.sources) else list(inputs[1:])
        first = inputs[0] if inputs else np.zeros((1, *layer.in_shape), np.float32)
        output = _forward(layer.native, first, sources, f"layer {layer.index} [{layer.type}]")
        return output.reshape(len(output), *step.shape)


def _forward(native: CData, x: Array, sources: Sequence[Array], where: str) -> Array:
    """What a layer of the core gives, in a new array."""
    state = ffi.new("network_state *")
    pointers = ffi.new("float *[]", [_native.floats(array) for array in sources])
    state.batch, state.steps, state.input, state.sources = x.shape[0], 1, _native.floats(x), pointers
    _native.check(lib.forward_layer(native, state), where)
    return np.array(_native.view(native.output, (x.shape[0], native.out_c, native.out_h, native.out_w)))


@contextmanager
def _without_activation(layer: Layer, without: bool) -> Iterator[None]:
    """For a block, a layer of the core whose activation is linear."""
    assert layer.native is not None
    kept = layer.native.activation
    if without:
        layer.native.activation = _native.enum("activation", "linear")
    try:
        yield
    finally:
        layer.native.activation = kept
