"""[rnn] and [crnn]: a state that takes up the input and itself, and a third layer on it."""

from __future__ import annotations

from .. import _native
from ..errors import UnsupportedError
from ..options import Section
from .base import Context, Layer, Shape, activation_of, layer_rule, made
from .inner import convolution_options, inner_layers, numbers

__all__ = ["NEUTRAL", "build"]

NEUTRAL = {"xnor": 0}
"""Options that change inference and are not computed, with the value at which they do not."""

_SELF_ACTIVATIONS = {1: "logistic", 2: "loggy"}


def build(section: Section, context: Context) -> Layer:
    """The layer of an [rnn] or [crnn] section."""
    native = _crnn(section, context) if section.type == "crnn" else _rnn(section, context)
    inner = inner_layers(section, native, "rnn", numbers("rnn"))
    state = inner["self_layer"].out_shape
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        operations=sum(layer.operations for layer in inner.values()),
        detail=f"{section.text('activation', 'logistic')}, {state.c} hidden",
        inner=inner,
        states={"state": tuple(state)},
    )


def _rnn(section: Section, context: Context) -> _native.CData:
    options = _native.ffi.new("rnn_options *")
    outputs = section.integer("output", 1, minimum=1)
    options.inputs, options.outputs = context.in_shape.floats, outputs
    options.hidden = section.integer("hidden", 1, minimum=1) if context.dialect.rnn_has_hidden else outputs
    options.activation = activation_of(section, context, "logistic")
    options.self_activation = _self_activation(section, options.activation)
    options.batch_normalize, options.shortcut = section.flag("batch_normalize"), section.flag("shortcut")
    rule = _native.rule("batchnorm_rule", context.profile.rule("connected"))
    return made(section, "rnn", options, rule, layer_rule(context))


def _self_activation(section: Section, activation: int) -> int:
    number = section.integer("logistic", 0)
    if number not in _SELF_ACTIVATIONS:
        return activation
    known = _native.choices("activation")
    if _SELF_ACTIVATIONS[number] not in known:
        message = f"{section.name}, layer {section.index}, has logistic={number}, which is not computed by this package"
        raise UnsupportedError(str(section.error(message, "logistic")))
    return known[_SELF_ACTIVATIONS[number]]


def _crnn(section: Section, context: Context) -> _native.CData:
    # Each dialect has but one name of these: of the other's the section has been freed.
    filters = section.integer("output_filters", section.integer("output", 1, minimum=1), minimum=1)
    hidden = section.integer("hidden_filters", section.integer("hidden", 1, minimum=1), minimum=1)
    options = convolution_options(section, context, filters, context.dialect.crnn_padding, "logistic")
    rule = _native.rule("batchnorm_rule", context.profile.rule("convolutional"))
    return made(section, "crnn", options, hidden, section.flag("shortcut"), rule, layer_rule(context))
