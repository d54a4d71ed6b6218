"""Layers that move values about, as ONNX nodes: route, reorg, upsample, crop, and what a shortcut fits together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..layers import Layer
from .onnx_graph import Graph, Value, native_of

__all__ = ["crop", "first_values", "grouped_softmax", "reorg", "resized_sum", "route", "upsample", "with_channels"]


def route(g: Graph, layer: Layer, sources: Sequence[Value]) -> Value:
    """Sources, or one group of the channels of each, along the channels; those of unequal width and height as vectors."""
    native = native_of(layer)
    if len({source.shape[2:] for source in sources}) > 1:
        sources = [g.reshape(source, int(np.prod([int(size) for size in source.shape[1:]])), 1, 1) for source in sources]
    parts = []
    for source in sources:
        channels = int(source.shape[1]) // native.groups
        parts.append(g.slice(source, 1, channels * native.group_id, channels * (native.group_id + 1)))
    return g.concat(parts, 1)


def reorg(g: Graph, layer: Layer, x: Value) -> Value:
    """Blocks of pixels to channels or back.

    Both orders permute the digits of a value's place: (block row, block column, m, row, column) in the small image, (m, row, block
    row, column, block column) in the large one; they differ in the sizes that they take for the small image.
    """
    native, out = native_of(layer), layer.out_shape
    if native.outputs > native.inputs:  # extra=
        flat = g.reshape(x, native.inputs)
        return g.reshape(g.pad(flat, [0, 0], [0, native.outputs - native.inputs]), *out)
    if native.flatten:
        dims = (native.h * native.w, native.c) if native.reverse else (native.c, native.h * native.w)
        return g.reshape(g.transpose(g.reshape(x, *dims), 2, 1), *out)
    c, h, w = (native.out_c, native.out_h, native.out_w) if native.true_order else (native.c, native.h, native.w)
    s, m = native.stride_x, c // native.stride_x**2
    if native.reverse:
        moved = g.transpose(g.reshape(x, s, s, m, h, w), 3, 4, 1, 5, 2)
    else:
        moved = g.transpose(g.reshape(x, m, h, s, w, s), 3, 5, 1, 2, 4)
    return g.reshape(moved, *out)


def upsample(g: Graph, layer: Layer, x: Value) -> Value:
    """Each value repeated, or the sum of each block; times scale=."""
    native, scale = native_of(layer), 1.0
    shape, stride = (g.batch, *layer.out_shape), native.stride_x
    if stride == 1:
        y = x
    elif native.reverse:
        y = g.op("AveragePool", x, shape=shape, kernel_shape=[stride] * 2, strides=[stride] * 2)
        scale = float(stride**2)
    else:
        scales = g.float32("scales", 1, 1, stride, stride)
        y = g.op(
            "Resize", x, None, scales, shape=shape, mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )  # fmt: skip
    scale *= native.scale
    return g.same("Mul", y, g.scalar(scale)) if scale != 1 else y


def crop(g: Graph, layer: Layer, x: Value) -> Value:
    """The middle, times alpha plus beta."""
    native, out = native_of(layer), layer.out_shape
    for axis, size, length in ((2, native.h, out.h), (3, native.w, out.w)):
        start = (size - length) // 2
        x = g.slice(x, axis, start, start + length)
    if native.alpha != 1:
        x = g.same("Mul", x, g.scalar(native.alpha))
    return g.same("Add", x, g.scalar(native.beta)) if native.beta else x


def grouped_softmax(g: Graph, x: Value, axis: int, groups: tuple[int, ...]) -> Value:
    """A softmax over each of consecutive groups along an axis; () is one over all."""
    if len(groups) < 2:
        return g.same("Softmax", x, axis=axis)
    return g.concat([g.same("Softmax", part, axis=axis) for part in g.split(x, axis, *groups)], axis)


# --- of a shortcut --------------------------------------------------------------------------------------------------------------


def with_channels(g: Graph, x: Value, channels: int) -> Value:
    """The first channels; zeros where there are fewer."""
    have = int(x.shape[1])
    if have > channels:
        return g.slice(x, 1, 0, channels)
    return g.pad(x, [0] * 4, [0, channels - have, 0, 0])


def first_values(g: Graph, source: Value, like: Value) -> Value:
    """As many values as `like` has over the whole batch, in the order of memory, whatever image they are of."""
    if source.shape == like.shape:
        return source
    flat = g.op("Reshape", source, g.integers(-1), shape=("values",))
    int64 = g.onnx.TensorProto.INT64
    dims = g.op("Shape", like, shape=(len(like.shape),), dtype=int64)
    count = g.op("ReduceProd", dims, shape=(1,), dtype=int64, keepdims=1)
    first = g.op("Slice", flat, g.integers(0), count, g.integers(0), shape=("first_values",))
    return g.op("Reshape", first, dims, shape=like.shape)


def resized_sum(g: Graph, layer: Layer, x: Value, source: Value) -> Value:
    """The sum alpha * x + beta * source where both are, x alone elsewhere.

    A larger source gives every stride-th pixel, a smaller one goes to every stride-th pixel; common channels only.
    """
    native = native_of(layer)
    c, h, w = layer.out_shape
    source_c, source_h, source_w = (int(size) for size in source.shape[1:])
    stride, sample = max(1, source_w // w), max(1, w // source_w)
    part = g.slice(source, 1, 0, min(c, source_c))
    for axis, length in ((2, min(h, source_h)), (3, min(w, source_w))):
        part = g.slice(part, axis, 0, length * stride, stride)
    if native.beta != 1:
        part = g.same("Mul", part, g.scalar(native.beta))
    if native.alpha != 1:
        mask = np.ones((1, c, h, w), np.float32)
        mask[:, : min(c, source_c), ::sample, ::sample] = native.alpha
        everywhere = bool((mask == mask.flat[0]).all())
        x = g.same("Mul", x, g.scalar(float(mask.flat[0])) if everywhere else g.constant("alpha", mask))
    return g.same("Add", x, with_channels(g, _spread(g, part, sample), c))


def _spread(g: Graph, x: Value, sample: int) -> Value:
    """Each pixel at the upper left of a block of zeros."""
    if sample == 1:
        return x
    c, h, w = (int(size) for size in x.shape[1:])
    wide = g.pad(g.reshape(x, c * h, w, 1), [0] * 4, [0, 0, 0, sample - 1])
    blocks = g.pad(g.reshape(wide, c * h, 1, w * sample), [0] * 4, [0, 0, sample - 1, 0])  # axis by axis: runtimes pad few axes
    return g.reshape(blocks, c, h * sample, w * sample)
