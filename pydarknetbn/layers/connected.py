"""[connected]: matrix product, batchnorm or biases, activation."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import BATCHNORM_ARRAYS, Context, Layer, Shape, activation_of, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [connected] section. In the file its batchnorm's arrays come after the weights."""
    inputs, outputs = context.in_shape.floats, section.integer("output", 1, minimum=1)
    batch_normalize = section.flag("batch_normalize")
    rule = _native.rule("batchnorm_rule", context.profile.rule("connected"))
    activation = activation_of(section, context, "logistic")
    native = made(section, "connected", inputs, outputs, activation, batch_normalize, rule, layer_rule(context))
    shapes: dict[str, tuple[int, ...]] = {"biases": (outputs,), "weights": (outputs, inputs)}
    if batch_normalize:
        shapes |= {name: (outputs,) for name in BATCHNORM_ARRAYS if name != "biases"}
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(outputs, 1, 1),
        native=native,
        shapes=shapes,
        detail=section.text("activation", "logistic"),
    )
