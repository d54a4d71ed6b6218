"""[empty]: nothing happens, but it counts as a layer."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a section whose output is that of the layer before."""
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=None,
        flat=context.flat,
        origin=context.layers[-1] if context.layers else None,
    )
