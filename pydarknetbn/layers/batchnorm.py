"""[batchnorm]: the layer of its own."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import Context, Layer, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [batchnorm] section. How many arrays it has in the file is the dialect's; the others keep their start."""
    rule = _native.rule("batchnorm_rule", context.profile.rule("batchnorm"))
    native = made(section, "batchnorm", *context.in_shape, rule)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        shapes=dict.fromkeys(context.dialect.batchnorm_arrays, (context.in_shape.c,)),
    )
