"""What a recurrent layer is made of: connected or convolutional layers that the core made inside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType, ModuleType

from .. import _native
from ..options import Section
from . import connected, convolutional
from .base import Context, Layer, Shape, activation_of

__all__ = ["convolution_options", "inner_layers", "numbers"]

_KINDS: Mapping[str, ModuleType] = MappingProxyType({"connected": connected, "convolutional": convolutional})


def numbers(kind: str) -> dict[str, int]:
    """Which inner layer has which number in the core, in that order: of "rnn", {"input_layer": 0, ...}."""
    found = sorted(_native.choices(kind).items(), key=lambda item: item[1])
    return {name.replace(" ", "_"): number for name, number in found}


def inner_layers(section: Section, native: _native.CData, kind: str, order: Iterable[str]) -> dict[str, Layer]:
    """The inner layers that there are.

    Args:
        section: of the layer around them.
        native: that layer in the core.
        kind: "rnn", "gru" or "lstm", which numbers them.
        order: their names, in file order.
    """
    found: dict[str, Layer] = {}
    for name in order:
        inside = native.inner[numbers(kind)[name]]
        if inside:
            found[name] = _layer(section, _native.borrowed(inside, native))
    return found


def _layer(section: Section, native: _native.CData) -> Layer:
    kind = "convolutional" if native.size else "connected"
    return Layer(
        type=kind,
        index=section.index,
        line=section.line,
        in_shape=Shape(native.c, native.h, native.w),
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        shapes=_KINDS[kind].shapes_of(native),
        operations=convolutional.operations_of(native) if native.size else 0.0,
    )


def convolution_options(section: Section, context: Context, filters: int, padding: int, activation: str) -> _native.CData:
    """The options that all convolutions of a recurrent layer have in common.

    Args:
        section: of the layer around them.
        context: what it is built in.
        filters: of the layer's output.
        padding: without pad= and padding=.
        activation: without activation=.
    """
    size = section.integer("size", 3, minimum=1)
    given = section.integer("padding", padding, minimum=0)
    stride = section.integer("stride", 1, minimum=1)
    dilation = section.integer("dilation", 1, minimum=1)
    options = _native.ffi.new("convolutional_options *")
    options.c, options.h, options.w = context.in_shape
    options.n, options.groups, options.size = filters, section.integer("groups", 1, minimum=1), size
    options.stride_x = options.stride_y = stride
    options.dilation = 1 if size == 1 else dilation
    options.pad = size // 2 if section.flag("pad") else given
    options.batch_normalize = section.flag("batch_normalize")
    options.activation = activation_of(section, context, activation)
    return options
