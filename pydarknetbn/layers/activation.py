"""[activation], [logistic], [l2norm] and [normalization]: each pixel by itself, sizes as before."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Layer, activation_of, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of the section."""
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=_native_of(section, context),
        detail=section.text("activation", "linear") if section.type == "activation" else "",
        flat=context.flat,
    )


def _native_of(section: Section, context: Context) -> _native.CData:
    if section.type == "l2norm":
        return made(section, "l2norm", *context.in_shape)
    if section.type == "normalization":
        size = section.integer("size", 5, minimum=1)
        alpha = section.number("alpha", context.dialect.normalization_alpha)
        beta, kappa = section.number("beta", 0.75), section.number("kappa", 1.0)
        return made(section, "normalization", *context.in_shape, size, alpha, beta, kappa)
    logistic = section.type == "logistic"
    kind = _native.enum("activation", "logistic") if logistic else activation_of(section, context, "linear")
    return made(section, "activation", *context.in_shape, kind, layer_rule(context))
