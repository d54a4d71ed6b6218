"""A network as steps: what can be seen between two operations of a port, layer by layer.

A convolution with batchnorm is three steps, `sums` (before the batchnorm), `normal` (after it) and `post` (after the activation);
the last step of a layer is always `post`, the layer's output. A [yolo] has another one behind it, `boxes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import _native
from .._native import ffi
from ..layers import Layer, Shape
from ..network import Network

__all__ = ["INPUT", "Stage", "Step", "activation_name", "input_step", "is_plain", "steps_of"]

Stage = Literal["input", "sums", "normal", "post", "boxes"]
INPUT = -1
"""The number of the network's input among the inputs of a step."""

_SUMS = frozenset({"convolutional", "connected"})
_WITHOUT_INPUT = frozenset({"implicit", "route"})


@dataclass(frozen=True, slots=True)
class Step:
    """One operation.

    Args:
        number: 0-based, in the order of computing.
        layer: number of its layer.
        kind: "convolution", "connected" (sums alone), "batchnorm", "biases", "activation", "shortcut" (the sum alone), "boxes",
            "input" for what the network is given, or for a layer of one step its type.
        stage: which value of its layer it gives.
        inputs: numbers of the steps whose values it takes, INPUT for the network's input: that of the layer before, then those of
            the layers that from= and layers= name. A [route] takes these alone.
        shape: (c, h, w) of one image of what it gives.
    """

    number: int
    layer: int
    kind: str
    stage: Stage
    inputs: tuple[int, ...]
    shape: Shape


def activation_name(layer: Layer) -> str:
    """The activation of a layer, as a cfg writes it."""
    assert layer.native is not None
    names = {number: name for name, number in _native.choices("activation").items()}
    return names[layer.native.activation].replace(" ", "_")


def steps_of(net: Network) -> tuple[Step, ...]:
    """All steps of a network."""
    made: list[Step] = []
    last: list[int] = []  # of each layer, the step that gives its output
    for layer in net.layers:
        before = last[-1] if last else INPUT
        sources = tuple(last[index] for index in layer.sources)
        inputs = sources if layer.type in _WITHOUT_INPUT else (before, *sources)
        for kind, stage in _parts(layer):
            made.append(Step(len(made), layer.index, kind, stage, inputs, layer.out_shape))
            inputs = (made[-1].number,)
            if stage == "post":
                last.append(made[-1].number)
    return tuple(made)


def input_step(net: Network) -> Step:
    """The network's input as a step before all others."""
    return Step(INPUT, INPUT, "input", "input", (INPUT,), Shape(net.c, net.h, net.w))


def _parts(layer: Layer) -> Iterator[tuple[str, Stage]]:
    """Kind and stage of each step of a layer."""
    kinds = _kinds(layer)
    stages: Sequence[Stage] = ("sums", "normal", "post") if len(kinds) == 3 else ("sums", "post")
    yield from zip(kinds, stages[-len(kinds) :], strict=True)
    if layer.type == "yolo":
        yield "boxes", "boxes"


def _kinds(layer: Layer) -> tuple[str, ...]:
    if layer.native is None:
        return (layer.type,)
    active = () if activation_name(layer) == "linear" else ("activation",)
    if layer.type in _SUMS and is_plain(layer):
        name = "convolution" if layer.type == "convolutional" else layer.type
        return (name, "batchnorm" if "rolling_mean" in layer.shapes else "biases", *active)
    if layer.type == "shortcut":
        return (layer.type, *active)
    return (layer.type,)


def is_plain(layer: Layer) -> bool:
    """Whether the sums of a layer are those of a convolution or a matrix, without a blur, signs, or an image read as the matrix."""
    native = layer.native
    assert native is not None
    if layer.type != "convolutional":
        return True
    shrinks = native.out_h * native.out_w < native.h * native.w
    return native.blur == ffi.NULL and not native.xnor and not (native.size == 1 and shrinks)
