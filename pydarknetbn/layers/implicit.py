"""[implicit]: an output of weights, the same whatever comes in."""

from __future__ import annotations

from ..options import Section
from .base import Context, Initial, Layer, Shape, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of an [implicit] section."""
    filters, atoms = section.integer("filters", 128, minimum=1), section.integer("atoms", 1, minimum=1)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(filters, atoms, 1),
        native=made(section, "implicit", filters, atoms),
        shapes={"weights": (filters * atoms,)},
        initial=Initial(section.number("std", 0.2), section.number("mean", 0.0)),
    )
