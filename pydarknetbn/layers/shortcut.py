"""[shortcut]: the layer before plus others, weighted or not, then activation."""

from __future__ import annotations

from .. import _native
from ..options import REQUIRED, Section
from .base import Context, Layer, Shape, activation_of, layer_rule, made

__all__ = ["build"]

_WEIGHTS_PER_LAYER = ("per_feature", "per_layer")
_NORMALIZATIONS = {"none": "none", "relu": "relu", "avg_relu": "relu", "softmax": "softmax"}


def build(section: Section, context: Context) -> Layer:
    """The layer of a [shortcut] section."""
    sources = [context.image_source(section, "from", position) for position in section.integers("from", REQUIRED)]
    shape = context.in_shape
    options = _native.ffi.new("shortcut_options *")
    options.c, options.h, options.w = shape
    options.activation = activation_of(section, context, "linear")
    options.alpha, options.beta = section.number("alpha", 1.0), section.number("beta", 1.0)
    options.nweights = _count_weights(section, len(sources), shape.c)
    options.weights_normalization = _native.enum("normalization", _normalization(section))
    options.source_input = _native.ffi.new("shape *", _input_of(sources[0], context))[0]
    shapes = _native.ffi.new("shape[]", [source.out_shape for source in sources])
    native = made(section, "shortcut", options, shapes, len(sources), layer_rule(context))
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=shape,
        out_shape=shape,
        native=native,
        sources=tuple(source.index for source in sources),
        shapes={"weights": (options.nweights,)} if options.nweights else {},
        operations=float(shape.floats * len(sources) * (2 if options.nweights else 1)),
        detail="adds " + ", ".join(str(source.index) for source in sources),
    )


def _input_of(layer: Layer, context: Context) -> Shape:
    """The input sizes that the forks keep of a layer; a route has those of its first source, and its own channels."""
    if layer.type != "route":
        return layer.in_shape
    return Shape(layer.out_shape.c, *_input_of(context.layers[layer.sources[0]], context)[1:])


def _count_weights(section: Section, sources: int, channels: int) -> int:
    kind = section.text("weights_type", "none")
    if kind in _WEIGHTS_PER_LAYER:
        return sources + 1
    if kind == "per_channel":
        return (sources + 1) * channels
    if kind == "none":
        return 0
    raise section.error(f"weights_type={kind} is none of none, per_feature, per_layer, per_channel", "weights_type")


def _normalization(section: Section) -> str:
    name = section.text("weights_normalization", "none")
    if name not in _NORMALIZATIONS:
        message = f"weights_normalization={name} is none of {', '.join(_NORMALIZATIONS)}"
        raise section.error(message, "weights_normalization")
    return _NORMALIZATIONS[name]
