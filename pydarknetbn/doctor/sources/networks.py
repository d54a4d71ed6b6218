"""Another network of this package: other weights, profile or dialect."""

from __future__ import annotations

from ..._native import Array, input_array
from ...network import Network
from ..running import Runner
from ..steps import Step
from ..trace import Trace
from .collecting import Collector

__all__ = ["trace_of_network"]


def trace_of_network(net: Network, x: Array) -> Trace:
    """Every step of it, called `12 [convolutional] sums`.

    Raises:
        DtypeError, ShapeError: x is no input of it.
    """
    x = input_array(x, "x", ("batch", net.c, net.h, net.w))
    runner, collector = Runner(net), Collector(len(x))
    for step, value in runner.forward(x):
        collector.add(_name(runner, step), value, step.kind, copy=value is x)
    heads = {layer.index for layer in net.heads or net.layers[-1:]}
    outputs = tuple(_name(runner, step) for step in runner.steps if step.layer in heads and step.stage == "post")
    return collector.trace(f"{net.origin.cfg.name}, profile {net.profile}", "darknet", given=x, outputs=outputs)


def _name(runner: Runner, step: Step) -> str:
    layer = runner.layer_of(step)
    return f"{layer.index} [{layer.type}] {step.stage}"
