"""Layers with weights as ONNX nodes: one small function a type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import _native
from .._native import CData
from ..dialect import BatchNormRule
from ..layers import Layer
from .onnx_activations import activate
from .onnx_graph import Graph, Value, native_of

__all__ = ["Source", "batchnorm", "blur_of", "blurred", "connected", "convolutional", "deconvolutional", "implicit", "local"]


class Source:
    """What a layer is computed from.

    Args:
        x: the layer before.
        others: the layers that from= and layers= name.
        batchnorm: the profile's rule for a batchnorm of this layer.
        groups: of a softmax over a tree of classes, the sizes of its groups; () without a tree.
    """

    def __init__(self, x: Value, others: Sequence[Value], batchnorm: BatchNormRule, groups: tuple[int, ...]) -> None:
        self.x, self.others, self.batchnorm, self.groups = x, others, batchnorm, groups


def convolutional(g: Graph, layer: Layer, source: Source) -> Value:
    """Convolution, batchnorm or biases, activation; with antialiasing= a blur."""
    native = native_of(layer)
    blur = blur_of(native)
    out = (blur.c, blur.h, blur.w) if blur else tuple(layer.out_shape)
    has_bias = "rolling_variance" not in layer.params
    shape = (1, -1, 1, 1) if native.xnor else (-1,)
    biases = [g.constant("biases", layer.biases.reshape(shape))] if has_bias else []
    if native.xnor:
        y = _convolved_signs(g, layer, source.x, out)
        y = g.same("Add", y, *biases) if has_bias else y
    elif _reads_directly(native, out):
        matrix = _matrix(g, source.x, native, out)
        y = g.op("Conv", matrix, g.constant("weights", layer.weights), *biases, shape=(g.batch, *out), group=native.groups)
    else:
        pad = native.pad * native.dilation
        y = _conv(g, native, source.x, [g.constant("weights", layer.weights), *biases], out, pad)
    y = activate(g, _normalized(g, layer, y, source.batchnorm), native.activation)
    return blurred(g, y, blur) if blur else y


def blur_of(native: CData) -> CData | None:
    """The core's layer of antialiasing=, None without it."""
    return native.blur if native.blur != _native.ffi.NULL else None


def _conv(g: Graph, native: CData, x: Value, parameters: Sequence[Value], out: tuple[int, ...], pad: int) -> Value:
    return g.op(
        "Conv", x, *parameters, shape=(g.batch, *out), kernel_shape=[native.size] * 2, group=native.groups,
        strides=[native.stride_y, native.stride_x], pads=[pad] * 4, dilations=[native.dilation] * 2,
    )  # fmt: skip


def _convolved_signs(g: Graph, layer: Layer, x: Value, out: tuple[int, ...]) -> Value:
    """Inputs are 1 or -1, weights the mean magnitude of their filter or minus it; where bits are counted, the padding is -1."""
    native = native_of(layer)
    pad = native.pad * native.dilation
    positive = g.op("Greater", x, g.scalar(0), shape=x.shape, dtype=g.onnx.TensorProto.BOOL)
    signs = g.op("Where", positive, g.scalar(1), g.scalar(-1), shape=x.shape)
    if native.layer_rule.xnor == _native.enum("xnor", "counts"):
        signs, pad = g.pad(signs, [0, 0, pad, pad], [0, 0, pad, pad], fill=-1), 0
    means = np.abs(layer.weights).mean(axis=(1, 2, 3), keepdims=True)
    weights = np.where(layer.weights > 0, means, -means).astype(np.float32)
    return _conv(g, native, signs, [g.constant("weights", weights)], out, pad)


def _reads_directly(native: CData, out: tuple[int, ...]) -> bool:
    """The image itself is the matrix, as the core decides it; only where that is not the same anyway."""
    if native.size != 1 or out[1] * out[2] > native.h * native.w or out[1:] == (native.h, native.w):
        return False
    any_stride = native.layer_rule.direct_1x1 == _native.enum("direct_1x1", "any stride")
    return bool(any_stride or native.stride_x == 1)


def _matrix(g: Graph, x: Value, native: CData, out: tuple[int, ...]) -> Value:
    """Each group's first values in the order of memory, as an image of the output's height and width."""
    channels = native.c // native.groups
    flat = g.reshape(x, native.groups, channels * native.h * native.w)
    return g.reshape(g.slice(flat, 2, 0, channels * out[1] * out[2]), native.c, *out[1:])


def blurred(g: Graph, x: Value, blur: CData) -> Value:
    """Each channel through the kernel of antialiasing=, with its strides."""
    weights = _native.view(blur.weights, (blur.n, 1, blur.size, blur.size))
    return g.op(
        "Conv", x, g.constant("blur", weights), shape=(g.batch, blur.out_c, blur.out_h, blur.out_w), kernel_shape=[blur.size] * 2,
        strides=[blur.stride_y, blur.stride_x], pads=[blur.pad] * 4, dilations=[1, 1], group=blur.groups,
    )  # fmt: skip


def _normalized(g: Graph, layer: Layer, x: Value, rule: BatchNormRule) -> Value:
    """x, or x normalised by the rolling arrays where the layer has them, with the epsilon on its side of the root."""
    arrays = layer.params
    if "rolling_variance" not in arrays:
        return x
    scales = arrays["scales"]
    parameters = [scales, arrays.get("biases", np.zeros_like(scales)), arrays["rolling_mean"], arrays["rolling_variance"]]
    names = ["scales", "biases", "rolling_mean", "rolling_variance"]
    if rule.forward.side == "inside":
        constants = [g.constant(name, array) for name, array in zip(names, parameters, strict=True)]
        return g.same("BatchNormalization", x, *constants, epsilon=rule.forward.value)
    columns = [array.reshape(-1, *[1] * (len(x.shape) - 2)) for array in parameters]
    scale, bias, mean, variance = (g.constant(name, column) for name, column in zip(names, columns, strict=True))
    root = g.same("Add", g.same("Sqrt", variance), g.scalar(rule.forward.value))
    normal = g.same("Div", g.same("Sub", x, mean), root)
    return g.same("Add", g.same("Mul", normal, scale), bias)


def batchnorm(g: Graph, layer: Layer, source: Source) -> Value:
    """A [batchnorm] of its own."""
    return _normalized(g, layer, source.x, source.batchnorm)


def connected(g: Graph, layer: Layer, source: Source) -> Value:
    """Matrix product, batchnorm or biases, activation; the output is an image of one pixel."""
    native = native_of(layer)
    has_bias = "rolling_variance" not in layer.params
    inputs = [g.constant("weights", layer.weights), *([g.constant("biases", layer.biases)] if has_bias else [])]
    flat = g.op("Flatten", source.x, shape=(g.batch, native.inputs), axis=1)
    y = g.op("Gemm", flat, *inputs, shape=(g.batch, native.outputs), transB=1)
    y = g.reshape(y, *layer.out_shape)
    return activate(g, _normalized(g, layer, y, source.batchnorm), native.activation)


def local(g: Graph, layer: Layer, source: Source) -> Value:
    """A product for each pixel; a convolution with kernels of a single 1 lays the windows side by side."""
    native = native_of(layer)
    out, area, depth = layer.out_shape, native.size**2, native.c * native.size**2
    need = [(length - 1) * native.stride_x + native.size for length in (out.h, out.w)]
    after = [length - native.pad - size for length, size in zip(need, (native.h, native.w), strict=True)]
    x = g.pad(source.x, [0, 0, native.pad, native.pad], [0, 0, *after])
    one_hot = np.tile(np.eye(area, dtype=np.float32).reshape(area, 1, native.size, native.size), (native.c, 1, 1, 1))
    windows = g.op(
        "Conv", x, g.constant("windows", one_hot), shape=(g.batch, depth, out.h, out.w), kernel_shape=[native.size] * 2,
        strides=[native.stride_x] * 2, pads=[0] * 4, dilations=[1, 1], group=native.c,
    )  # fmt: skip
    pixels = out.h * out.w
    columns = g.reshape(g.transpose(g.reshape(windows, depth, pixels), 2, 1), pixels, 1, depth)
    weights = layer.weights.reshape(1, pixels, native.n, depth).transpose(0, 1, 3, 2)
    product = g.op("MatMul", columns, g.constant("weights", weights), shape=(g.batch, pixels, 1, native.n))
    y = g.reshape(g.transpose(g.reshape(product, pixels, native.n), 2, 1), *out)
    y = g.same("Add", y, g.constant("biases", layer.biases.reshape(1, *out)))
    return activate(g, y, native.activation)


def deconvolutional(g: Graph, layer: Layer, source: Source) -> Value:
    """The convolution the other way round."""
    native = native_of(layer)
    has_bias = "rolling_variance" not in layer.params
    inputs = [g.constant("weights", layer.weights), *([g.constant("biases", layer.biases)] if has_bias else [])]
    y = g.op(
        "ConvTranspose", source.x, *inputs, shape=(g.batch, *layer.out_shape), kernel_shape=[native.size] * 2,
        strides=[native.stride_x] * 2, pads=[native.pad] * 4, dilations=[1, 1], group=1,
    )  # fmt: skip
    return activate(g, _normalized(g, layer, y, source.batchnorm), native.activation)


def implicit(g: Graph, layer: Layer, source: Source) -> Value:
    """The same weights for each image."""
    weights = g.constant("weights", layer.weights.reshape(1, *layer.out_shape))
    if isinstance(g.batch, int):
        return g.op("Expand", weights, g.integers(g.batch, 1, 1, 1), shape=(g.batch, *layer.out_shape))
    int64 = g.onnx.TensorProto.INT64
    dims = g.op("Shape", source.x, shape=(len(source.x.shape),), dtype=int64)
    batch = g.op("Slice", dims, g.integers(0), g.integers(1), g.integers(0), shape=(1,), dtype=int64)
    target = g.op("Concat", batch, g.integers(1, 1, 1), shape=(4,), dtype=int64, axis=0)
    return g.op("Expand", weights, target, shape=(g.batch, *layer.out_shape))
