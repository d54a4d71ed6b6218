"""[cost]: how far the layer before is from a truth; in inference that layer's output passes."""

from __future__ import annotations

from dataclasses import replace

from .. import _native
from ..options import Section
from . import passthrough
from .base import Context, Layer, Truth, layer_rule, made

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset({"ratio", "noobj", "thresh"})  # on a fork's GPU alone

_AS_SQUARES = ("seg", "wgan")


def build(section: Section, context: Context) -> Layer:
    """The layer of a [cost] section.

    Types: sse, masked (values whose truth is -1234 are left out), smooth, L1; seg and wgan, which the forks' CPU takes for sse. A
    type that the dialect's program does not know is sse there, with a warning.
    """
    layer = passthrough.build(section, context)
    kind = section.text("type", "sse")
    known = context.dialect.cost_types
    if kind not in known:
        message = f"{section.name}, layer {section.index}, has type={kind}; dialect {context.dialect.name} knows"
        context.warnings.append(str(section.error(f"{message} {', '.join(sorted(known))}, it counts as sse", "type")))
    if kind not in known or kind in _AS_SQUARES:
        kind = "sse"
    floats, scale = context.in_shape.floats, section.number("scale", 1.0)
    masks = layer.maker is not None  # the network's input is the caller's
    trainer = made(section, "cost", floats, _native.enum("cost", kind.lower()), scale, masks, layer_rule(context))
    return replace(layer, flat="is a loss", trainer=trainer, truth=Truth("values", floats))
