"""[route]: layers joined along the channels, or one group of the channels of each."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _native
from ..options import REQUIRED, Section
from .base import Context, Layer, Shape, made
from .meeting import sizes_that_meet

__all__ = ["WITHOUT_EFFECT", "build"]

WITHOUT_EFFECT = frozenset({"stream", "wait_stream"})


def build(section: Section, context: Context) -> Layer:
    """The layer of a [route] section. Sources of unequal width and height make a vector."""
    positions = section.integers("layers", REQUIRED)
    sources = [context.source(section, "layers", position) for position in positions]
    groups = section.integer("groups", 1, minimum=1)
    group_id = section.integer("group_id", 0, minimum=0)
    flat = _why_flat(sources, context)
    shapes = [Shape(source.out_shape.floats, 1, 1) if flat else source.out_shape for source in sources]
    native = made(section, "route", _native.ffi.new("shape[]", shapes), len(sources), groups, group_id)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        sources=tuple(source.index for source in sources),
        kernel=f"{group_id}/{groups}" if groups > 1 else "",
        detail="layers " + ", ".join(str(source.index) for source in sources),
        flat=flat,
    )


def _why_flat(sources: Sequence[Layer], context: Context) -> str:
    vectors = [f"joins layer {source.index} (line {source.line}), which {source.flat}" for source in sources if source.flat]
    if vectors:
        return vectors[0]
    if len({source.out_shape[1:] for source in sources}) == 1:
        return ""
    sizes = ", ".join(f"{source.out_shape} of layer {source.index} (line {source.line})" for source in sources)
    return f"joins {sizes}: width and height differ{sizes_that_meet(context.layers, sources)}"
