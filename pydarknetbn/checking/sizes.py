"""Why a file is longer or shorter than its cfg takes: which header, classes or filters would make it fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..layers import Layer
from ..weights import Header

__all__ = ["explanations"]

_FLOAT = 4


def explanations(layers: Sequence[Layer], header: Header, nbytes: int) -> Iterator[str]:
    """Sentences, each a change of header or cfg under which a file of so many bytes would fit exactly."""
    taken = sum(math.prod(shape) for layer in layers if layer.stored for shape in layer.shapes.values())
    if (other := _header(nbytes - taken * _FLOAT, header)) is not None:
        yield other
    surplus, odd = divmod(nbytes - header.nbytes - taken * _FLOAT, _FLOAT)
    if odd or not surplus:
        return
    heads = [layer for layer in layers if layer.head]
    found = _classes(layers, heads, surplus) if heads else _filters(layers, surplus)
    if found:
        yield found


def _header(length: int, header: Header) -> str | None:
    if length == header.nbytes:
        return None
    kinds = {0: "no header at all", 12: "a header without a counter", 16: "a counter of 4 bytes", 20: "a counter of 8 bytes"}
    return f"it fits exactly with {kinds[length]}" if length in kinds else None


def _per_filter(layer: Layer) -> int:
    """Floats that one more filter or output takes."""
    return sum(math.prod(shape[1:]) for shape in layer.shapes.values())


def _classes(layers: Sequence[Layer], heads: Sequence[Layer], surplus: int) -> str | None:
    hosts = [layers[head.index - 1] if head.index else None for head in heads]
    pairs = [(head, host) for head, host in zip(heads, hosts, strict=True) if host and host.type == "convolutional" and host.stored]
    if len(pairs) < len(heads):
        return None
    # Each class more is a filter more for each anchor, in the convolution before each head.
    slope = sum(len(head.head.mask) * _per_filter(host) for head, host in pairs if head.head)
    zero = sum(len(head.head.mask) * _per_filter(host) * head.head.classes for head, host in pairs if head.head)
    classes, rest = divmod(zero + surplus, slope)
    if rest or classes < 1:
        return None
    filters = sorted({host.out_shape.c + len(head.head.mask) * (classes - head.head.classes) for head, host in pairs if head.head})
    lines = ", ".join(str(host.line) for _, host in pairs)
    number = " or ".join(str(count) for count in filters)
    return (
        f"it fits exactly with classes={classes} in every head and filters={number} in the convolution before each (line {lines})"
    )


def _filters(layers: Sequence[Layer], surplus: int) -> str | None:
    last = next((layer for layer in reversed(layers) if layer.shapes and layer.stored), None)
    if last is None or last.type not in ("convolutional", "connected"):
        return None
    more, rest = divmod(surplus, _per_filter(last))
    count = last.out_shape.c + more
    if rest or count < 1:
        return None
    key = "filters" if last.type == "convolutional" else "output"
    return f"it fits exactly with {key}={count} in layer {last.index} [{last.type}] (line {last.line})"
