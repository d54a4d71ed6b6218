"""Pools and sums as ONNX nodes: one small function a type; and the table of all types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from .. import _native
from .._native import Array
from ..layers import Layer
from . import onnx_heads, onnx_moves, onnx_recurrent
from .onnx_activations import SHARE_OFFSET, activate
from .onnx_graph import Graph, Value, native_of
from .onnx_moves import grouped_softmax
from .onnx_weighted import Source, batchnorm, blur_of, blurred, connected, convolutional, deconvolutional, implicit, local

__all__ = ["LAYERS", "Convert"]

Convert = Callable[[Graph, Layer, Source], Value]

# --- sums and products ----------------------------------------------------------------------------------------------------------


def _shortcut(g: Graph, layer: Layer, source: Source) -> Value:
    native = native_of(layer)
    if native.linear_sum:
        total = g.same("Add", source.x, onnx_moves.first_values(g, source.others[0], source.x))
    elif native.nweights or len(source.others) > 1:
        total = _weighted_sum(g, layer, source)
    else:
        total = onnx_moves.resized_sum(g, layer, source.x, source.others[0])
    return activate(g, total, native.activation)


def _weighted_sum(g: Graph, layer: Layer, source: Source) -> Value:
    weights = _normalized(layer) if native_of(layer).nweights else None
    total = None
    for number, value in enumerate((source.x, *source.others)):
        part = onnx_moves.with_channels(g, value, layer.out_shape.c)
        if weights is not None:
            part = g.same("Mul", part, g.constant("weights", weights[number].reshape(1, -1, 1, 1)))
        total = g.same("Add", total, part) if total else part
    assert total is not None
    return total


def _normalized(layer: Layer) -> Array:
    """The weights (layers, 1 or channels) as they multiply."""
    native = native_of(layer)
    weights: Array = layer.weights.reshape(native.n_sources + 1, -1)
    kind = native.weights_normalization
    if kind == _native.enum("normalization", "none"):
        return weights
    relu = kind == _native.enum("normalization", "relu")
    shares: Array = np.maximum(weights, 0) if relu else np.exp(weights - weights.max(axis=0))
    total: Array = np.float32(SHARE_OFFSET) + shares.sum(axis=0)
    return shares / total


def _product(g: Graph, layer: Layer, source: Source) -> Value:
    """[scale_channels] and [sam]: one factor for each channel, pixel or value."""
    native = native_of(layer)
    x, factor = source.others[0], source.x
    if native.scale_wh:  # one plane for all channels, which not every runtime spreads by itself
        factor = g.op("Tile", factor, g.integers(1, int(x.shape[1]), 1, 1), shape=x.shape)
    return activate(g, g.same("Mul", x, factor), native.activation)


# --- pixels ---------------------------------------------------------------------------------------------------------------------


def _maxpool(g: Graph, layer: Layer, source: Source) -> Value:
    native = native_of(layer)
    if native.depth:
        return _max_over_channels(g, layer, source.x)
    blur = blur_of(native)
    out = (blur.c, blur.h, blur.w) if blur else tuple(layer.out_shape)
    before, after = native.pad // 2, native.pad - native.pad // 2
    average = native.average
    x = source.x
    if after >= native.size and not average:  # ONNX wants a padding smaller than the window
        lowest = float(np.finfo(g.dtype).min)
        x, before, after = g.pad(x, [0, 0, before, before], [0, 0, after, after], lowest), 0, 0
    y = g.op(
        "AveragePool" if average else "MaxPool", x, shape=(g.batch, *out), kernel_shape=[native.size] * 2,
        strides=[native.stride_y, native.stride_x], pads=[before, before, after, after],
    )  # fmt: skip
    return blurred(g, y, blur) if blur else y


def _max_over_channels(g: Graph, layer: Layer, x: Value) -> Value:
    """Over the channels k, k + out_c, k + 2 out_c … of each pixel."""
    out = layer.out_shape
    rounds = -(-layer.in_shape.c // out.c)
    filled = g.pad(x, [0] * 4, [0, rounds * out.c - layer.in_shape.c, 0, 0], float(np.finfo(g.dtype).min))
    return g.op("ReduceMax", g.reshape(filled, rounds, *out), shape=(g.batch, *out), axes=[1], keepdims=0)


def _avgpool(g: Graph, layer: Layer, source: Source) -> Value:
    return g.op("GlobalAveragePool", source.x, shape=(g.batch, *layer.out_shape))


def _activation(g: Graph, layer: Layer, source: Source) -> Value:
    return activate(g, source.x, native_of(layer).activation)


def _l2norm(g: Graph, _: Layer, source: Source) -> Value:
    x = source.x
    length = g.op("ReduceL2", x, shape=(x.shape[0], 1, *x.shape[2:]), axes=[1], keepdims=1)
    return g.same("Div", x, length)


def _normalization(g: Graph, layer: Layer, source: Source) -> Value:
    """Which squares a sum is over is a matrix, since the forks' first sum lacks a neighbour: x * (kappa + alpha * sum)^-beta."""
    native, x = native_of(layer), source.x
    window = native.alpha * _neighbours(native.c, native.size)
    kernel = g.constant("window", window.astype(np.float32).reshape(native.c, native.c, 1, 1))
    kappa = g.constant("kappa", np.full(native.c, native.kappa, np.float32))
    norms = g.same("Conv", g.same("Mul", x, x), kernel, kappa, kernel_shape=[1, 1])
    return g.same("Mul", x, g.same("Pow", norms, g.scalar(-native.beta)))


def _neighbours(channels: int, size: int) -> Array:
    """(channels, channels): how often each sum holds each square."""
    counts = np.zeros((channels, channels), np.float32)
    row = np.zeros(channels, np.float32)
    row[: size // 2] = 1
    before = (size - 1) // 2 + 1
    for k in range(channels):
        if k and k >= before:
            row[k - before] -= 1
        if k and k + size // 2 < channels:
            row[k + size // 2] += 1
        counts[k] = row
    return counts


def _softmax(g: Graph, layer: Layer, source: Source) -> Value:
    native, x = native_of(layer), source.x
    if native.temperature != 1:
        x = g.same("Div", x, g.scalar(native.temperature))
    if source.groups:
        return g.reshape(grouped_softmax(g, g.reshape(x, native.inputs), 1, source.groups), *layer.out_shape)
    rows = g.reshape(x, native.groups, native.inputs // native.groups)
    return g.reshape(g.same("Softmax", rows, axis=-1), *layer.out_shape)


def _passed(_: Graph, __: Layer, source: Source) -> Value:
    return source.x


def _move(convert: Callable[[Graph, Layer, Value], Value]) -> Convert:
    return lambda g, layer, source: convert(g, layer, source.x)


def _route(g: Graph, layer: Layer, source: Source) -> Value:
    return onnx_moves.route(g, layer, source.others)


def _region(g: Graph, layer: Layer, source: Source) -> Value:
    return onnx_heads.region(g, layer, source.x, source.groups)


LAYERS: Mapping[str, Convert] = MappingProxyType(
    {
        "Gaussian_yolo": _move(onnx_heads.gaussian_yolo),
        "activation": _activation,
        "avgpool": _avgpool,
        "batchnorm": batchnorm,
        "connected": connected,
        "contrastive": _passed,
        "conv_lstm": onnx_recurrent.lstm,
        "convolutional": convolutional,
        "cost": _passed,
        "crnn": onnx_recurrent.rnn,
        "crop": _move(onnx_moves.crop),
        "deconvolutional": deconvolutional,
        "detection": _move(onnx_heads.detection),
        "dropout": _passed,
        "empty": _passed,
        "history": onnx_recurrent.history,
        "gru": onnx_recurrent.gru,
        "implicit": implicit,
        "iseg": _move(onnx_heads.iseg),
        "l2norm": _l2norm,
        "local": local,
        "local_avgpool": _maxpool,
        "logistic": _activation,
        "lstm": onnx_recurrent.lstm,
        "maxpool": _maxpool,
        "normalization": _normalization,
        "region": _region,
        "rnn": onnx_recurrent.rnn,
        "reorg": _move(onnx_moves.reorg),
        "reorg3d": _move(onnx_moves.reorg),
        "route": _route,
        "sam": _product,
        "scale_channels": _product,
        "shortcut": _shortcut,
        "softmax": _softmax,
        "upsample": _move(onnx_moves.upsample),
        "yolo": _move(onnx_heads.yolo),
    }
)
