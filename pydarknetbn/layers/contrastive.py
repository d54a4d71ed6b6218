"""[contrastive]: a loss on embeddings; in inference they pass."""

from __future__ import annotations

from ..options import Section
from . import passthrough
from .base import Context, Layer

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset("classes cls_normalizer contrastive_neg_max max_delta temperature".split())


def build(section: Section, context: Context) -> Layer:
    """The layer of a [contrastive] section; yolo_layer=, counted back where negative, has to be a [yolo], or 0 for none."""
    position = section.integer("yolo_layer", 0)
    if position and (named := context.source(section, "yolo_layer", position)).type != "yolo":
        message = f"{section.name}, layer {section.index}, has yolo_layer={position}, which is layer {named.index} [{named.type}]"
        raise section.error(f"{message}, expected a [yolo] layer", "yolo_layer")
    return passthrough.build(section, context)
