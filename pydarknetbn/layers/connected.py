"""[connected]: matrix product, batchnorm or biases, activation."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import BATCHNORM_ARRAYS, Context, Layer, Shape, activation_of, layer_rule, made

__all__ = ["build", "shapes_of"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [connected] section. In the file its batchnorm's arrays come after the weights."""
    inputs, outputs = context.in_shape.floats, section.integer("output", 1, minimum=1)
    batch_normalize = section.flag("batch_normalize")
    rule = _native.rule("batchnorm_rule", context.profile.rule("connected"))
    activation = activation_of(section, context, "logistic")
    native = made(section, "connected", inputs, outputs, activation, batch_normalize, rule, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(outputs, 1, 1),
        native=native,
        shapes=shapes_of(native),
        detail=section.text("activation", "logistic"),
    )


def shapes_of(native: _native.CData) -> dict[str, tuple[int, ...]]:
    """The arrays of a connected layer in file order."""
    names = ("biases", "weights", *(BATCHNORM_ARRAYS[1:] if native.batchnorm else ()))
    return {name: (native.outputs, native.inputs) if name == "weights" else (native.outputs,) for name in names}
