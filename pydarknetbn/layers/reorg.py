"""[reorg] and [reorg3d]: blocks of pixels to channels and back, in Darknet's first order and in the true one."""

from __future__ import annotations

from ..options import Section
from .base import Context, Layer, Shape, layer_rule, made

__all__ = ["build"]


def build(section: Section, context: Context) -> Layer:
    """The layer of a [reorg] or [reorg3d] section."""
    stride = section.integer("stride", 1, minimum=1)
    reverse, flatten = section.flag("reverse"), section.flag("flatten")
    extra = section.integer("extra", 0, minimum=0)
    if extra and flatten:
        raise section.error(f"{section.name}, layer {section.index}, has both extra={extra} and flatten; take one of them", "extra")
    if extra:
        native = made(section, "reorg_extra", *context.in_shape, extra, layer_rule(context))
    else:
        true_order = section.type == "reorg3d"
        native = made(section, "reorg", *context.in_shape, stride, reverse, flatten, true_order, layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        kernel=f"+ {extra}" if extra else f"/ {stride}",
        flat=f"has extra={extra}" if extra else "",
    )
