"""[softmax]: over all values of an image, or each of its groups."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, layer_rule, made
from .hierarchy import set_tree, tree_of
from .losses import value_loss

__all__ = ["WITHOUT_EFFECT", "build"]


WITHOUT_EFFECT = frozenset({"spatial"})  # spatial: the forks' CPU code ignores it


def build(section: Section, context: Context) -> Layer:
    """The layer of a [softmax] section; a tree says what its groups are, whatever groups= says."""
    tree = tree_of(section, context, context.in_shape.floats)
    groups = section.integer("groups", 1, minimum=1)
    temperature = section.number("temperature", 1.0)
    native = made(section, "softmax", *context.in_shape, groups, temperature, layer_rule(context))
    set_tree(native, tree)
    truth = None if section.flag("noloss") else value_loss(native, context.in_shape.floats)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=native,
        flat="is a softmax",
        truth=truth,
    )
