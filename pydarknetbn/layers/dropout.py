"""[dropout]: training leaves values out, in place; nothing happens in inference."""

from __future__ import annotations

import numpy as np

from .. import _native
from ..errors import ShapeError
from ..options import Section
from . import passthrough
from .base import Context, Layer, layer_rule, made

__all__ = ["WITHOUT_EFFECT", "build", "draw_mask"]

WITHOUT_EFFECT = frozenset({"dropblock_size_rel", "dropblock_size_abs"})  # of dropblock, which is not computed


def build(section: Section, context: Context) -> Layer:
    """The layer of a [dropout] section, whose output is that of the layer before; with dropblock=1 it has no trainer."""
    probability, blocks = section.number("probability", context.dialect.dropout_probability), section.flag("dropblock")
    trainer = made(section, "dropout", *context.in_shape, probability, layer_rule(context))
    layer = passthrough.build(section, context)
    layer.trainer = None if blocks else trainer
    return layer


def draw_mask(layer: Layer, batch: int, generator: np.random.Generator) -> None:
    """Fills the numbers that decide which values the next training forward keeps.

    Args:
        layer: a [dropout]; with a mask, what that says.
        batch: images of the forward.
        generator: else draws a number from 0 to 1 for each value, which is dropped where that is below the probability.

    Raises:
        ShapeError: the mask is not (batch, c, h, w).
    """
    shape = (batch, *layer.out_shape)
    _native.check(_native.lib.prepare_dropout(layer.trainer, batch))
    numbers = _native.view(layer.trainer.rand, shape)  # type: ignore[union-attr]
    if layer.mask is None:
        generator.random(out=numbers, dtype=np.float32)
        return
    mask = np.asarray(layer.mask)
    if mask.shape != shape:
        raise ShapeError(f"expected the mask of layer {layer.index} [dropout] of shape {shape}, got {mask.shape}")
    numbers[...] = np.where(mask != 0, np.float32(2), np.float32(-1))  # never and always below a probability
