"""[lstm] and [conv_lstm]: a cell that gates fill and empty, and a state read from it."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made
from .inner import convolution_options, inner_layers

__all__ = ["NEUTRAL", "WITHOUT_EFFECT", "build"]

NEUTRAL = {"bottleneck": 0, "xnor": 0}
"""Options that change inference and are not computed, with the value at which they do not."""

WITHOUT_EFFECT = frozenset({"shortcut", "time_normalizer"})
"""Options that inference does not see; shortcut= only together with bottleneck=."""


def build(section: Section, context: Context) -> Layer:
    """The layer of an [lstm] or [conv_lstm] section."""
    native = _conv_lstm(section, context) if section.type == "conv_lstm" else _lstm(section, context)
    inner = inner_layers(section, native, "lstm", context.dialect.inner_order[section.type])
    shape = Shape(native.out_c, native.out_h, native.out_w)
    operations = sum(layer.operations for layer in inner.values())
    if operations:
        operations += shape.floats * (12 if section.flag("peephole") else 9)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=shape,
        native=native,
        operations=operations,
        detail="peephole" if section.flag("peephole") else "",
        inner=inner,
        states={"state": tuple(shape), "cell": tuple(shape)},
    )


def _lstm(section: Section, context: Context) -> _native.CData:
    rule = _native.rule("batchnorm_rule", context.profile.rule("connected"))
    outputs = section.integer("output", 1, minimum=1)
    return made(section, "lstm", context.in_shape.floats, outputs, section.flag("batch_normalize"), rule, layer_rule(context))


def _conv_lstm(section: Section, context: Context) -> _native.CData:
    options = convolution_options(section, context, section.integer("output", 1, minimum=1), 0, "linear")
    constrain = section.integer("state_constrain", -1, minimum=0)
    if section.text("lstm_activation", "tanh") != "tanh":
        message = f"{section.name} has lstm_activation={section.text('lstm_activation', '')}, but on the CPU it is always tanh"
        context.warnings.append(str(section.error(message, "lstm_activation")))
    rule = _native.rule("batchnorm_rule", context.profile.rule("convolutional"))
    return made(section, "conv_lstm", options, section.flag("peephole"), constrain, rule, layer_rule(context))
