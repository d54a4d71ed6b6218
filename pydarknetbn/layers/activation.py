"""[activation], [logistic], [l2norm] and [normalization]: each pixel by itself, sizes as before."""

from __future__ import annotations

from .._native import CData
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


def _native_of(section: Section, context: Context) -> CData:
    rule = layer_rule(context)
    if section.type in ("l2norm", "logistic"):
        return made(section, section.type, *context.in_shape, rule)
    if section.type == "normalization":
        size = section.integer("size", 5, minimum=1)
        alpha = section.number("alpha", context.dialect.normalization_alpha)
        beta, kappa = section.number("beta", 0.75), section.number("kappa", 1.0)
        return made(section, "normalization", *context.in_shape, size, alpha, beta, kappa, rule)
    return made(section, "activation", *context.in_shape, activation_of(section, context, "linear"), rule)
