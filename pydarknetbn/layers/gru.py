"""[gru]: a state that gates mix with a candidate for the new one."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made
from .inner import inner_layers

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [gru] section."""
    inputs, outputs = context.in_shape.floats, section.integer("output", 1, minimum=1)
    candidate = "tanh" if section.flag("tanh") else "logistic"
    rule = _native.rule("batchnorm_rule", context.profile.rule("connected"))
    batch_normalize = section.flag("batch_normalize")
    activation = _native.enum("activation", candidate)
    native = made(section, "gru", inputs, outputs, activation, batch_normalize, rule, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(outputs, 1, 1),
        native=native,
        detail=f"{candidate} candidate",
        inner=inner_layers(section, native, "gru", context.dialect.inner_order["gru"]),
        states={"state": (outputs, 1, 1)},
    )
