"""[dropout], [cost], [contrastive] and [empty]: nothing happens in inference, but they count as layers."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer

__all__ = ["TAKES_VECTORS", "WITHOUT_EFFECT", "build"]

TAKES_VECTORS = frozenset({"contrastive", "cost", "dropout", "empty"})
WITHOUT_EFFECT = frozenset(
    "cls_normalizer classes contrastive_neg_max dropblock dropblock_size_abs dropblock_size_rel max_delta noobj probability ratio "
    "scale temperature thresh type yolo_layer".split()
)
_OF_A_LOSS = ("contrastive", "cost")


def build(section: Section, context: Context) -> Layer:
    """The layer of a section whose output is that of the layer before."""
    loss = section.type in _OF_A_LOSS
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=context.in_shape,
        native=None,
        flat="is a loss" if loss else context.flat,
        origin=context.layers[-1] if context.layers else None,
    )
