"""[convolutional]: convolution, batchnorm or biases, activation."""

from __future__ import annotations

from .. import _native
from ..options import Section
from .base import BATCHNORM_ARRAYS, Context, Layer, Shape, activation_of, layer_rule, made

__all__ = ["WITHOUT_EFFECT", "build", "operations_of", "shapes_of"]

WITHOUT_EFFECT = frozenset(
    {"angle", "assisted_excitation", "bin_output", "binary", "coordconv", "dot", "grad_centr", "reverse", "stream", "wait_stream"}
)
"""Options that inference does not see.

assisted_excitation, grad_centr and dot belong to training. coordconv, reverse and the deformations below are read into a layer of
every fork that knows them, but only its GPU code looks at them; bin_output matters to xnor on the GPU, and
binary swaps in its weights behind the last use of them.
"""

_DEFORMATIONS = ("sway", "rotate", "stretch", "stretch_sway")


def build(section: Section, context: Context) -> Layer:
    """The layer of a [convolutional] section."""
    options = _options(section, context)
    _check_deformations(section, options.size)
    rule = _native.rule("batchnorm_rule", context.profile.rule("convolutional"))
    native = made(section, "convolutional", options, rule, layer_rule(context))
    shared = _shared_layer(section, context)
    if shared is not None:
        _share(section, native, shared)
    return Layer(
        type=section.type,
        index=section.index,
        line=section.line,
        in_shape=context.in_shape,
        out_shape=Shape(native.out_c, native.out_h, native.out_w),
        native=native,
        shapes=shapes_of(native),
        stored=shared is None,
        operations=operations_of(native),
        kernel=_kernel(native),
        detail=_detail(section, native, shared),
    )


def shapes_of(native: _native.CData) -> dict[str, tuple[int, ...]]:
    """The arrays of a convolution in file order."""
    names = BATCHNORM_ARRAYS if native.batchnorm else ("biases",)
    weights = (native.n, native.c // native.groups, native.size, native.size)
    return {**dict.fromkeys(names, (native.n,)), "weights": weights}


def operations_of(native: _native.CData) -> float:
    """Multiplications and additions of a convolution for one image."""
    return float(2 * native.nweights * _pixels(native))


def _options(section: Section, context: Context) -> _native.CData:
    size = section.integer("size", 1, minimum=1)
    stride = section.integer("stride", 1, minimum=1)
    pad = section.integer("padding", 0, minimum=0)
    options = _native.ffi.new("convolutional_options *")
    options.c, options.h, options.w = context.in_shape
    options.n = section.integer("filters", 1, minimum=1)
    options.groups = section.integer("groups", 1, minimum=1)
    options.size = size
    options.stride_x = _axis_stride(section, "stride_x", stride)
    options.stride_y = _axis_stride(section, "stride_y", stride)
    dilation = section.integer("dilation", 1, minimum=1)
    options.dilation = 1 if size == 1 else dilation
    options.pad = size // 2 if section.flag("pad") else pad
    options.batch_normalize = section.flag("batch_normalize") or section.flag("cbn")
    options.activation = activation_of(section, context, "logistic")
    options.antialiasing = section.integer("antialiasing", 0)
    options.xnor = section.flag("xnor")
    return options


def _check_deformations(section: Section, size: int) -> None:
    """What the forks' parsers ask of options that then have no effect on the CPU."""
    chosen = [key for key in _DEFORMATIONS if section.flag(key)]
    place = f"[convolutional], layer {section.index}, has {' and '.join(f'{key}=1' for key in chosen)}"
    if len(chosen) > 1:
        raise section.error(f"{place}; take one of {', '.join(_DEFORMATIONS)}", chosen[1])
    if chosen and size == 1:
        raise section.error(f"{place} and size=1; it needs a size of 3 or more", chosen[0])


def _pixels(native: _native.CData) -> int:
    blurred = native.blur != _native.ffi.NULL
    return int(native.blur.h * native.blur.w if blurred else native.out_h * native.out_w)


def _axis_stride(section: Section, key: str, stride: int) -> int:
    value = section.integer(key, -1)
    return value if value >= 1 else stride


def _shared_layer(section: Section, context: Context) -> Layer | None:
    if not section.has("share_index"):
        return None
    return context.source(section, "share_index", section.integer("share_index", 0))


def _share(section: Section, native: _native.CData, shared: Layer) -> None:
    other = shared.native
    fits = (
        shared.type == "convolutional"
        and other is not None
        and (other.size, other.nweights, other.c, other.n) == (native.size, native.nweights, native.c, native.n)
        and (other.batchnorm != _native.ffi.NULL or native.batchnorm == _native.ffi.NULL)
    )
    if not fits:
        message = f"[convolutional], layer {section.index}, shares layer {shared.index}, whose weights are of another kind"
        raise section.error(f"{message} or size", "share_index")
    _native.check(_native.lib.share_parameters(native, other))


def _kernel(native: _native.CData) -> str:
    stride = f"{native.stride_x}" if native.stride_x == native.stride_y else f"{native.stride_x}x{native.stride_y}"
    dilation = f"({native.dilation})" if native.dilation > 1 else ""
    return f"{native.size} x {native.size} / {stride}{dilation}"


def _detail(section: Section, native: _native.CData, shared: Layer | None) -> str:
    parts = [section.text("activation", "logistic")]
    if native.groups > 1:
        parts.append(f"{native.groups} groups")
    if native.blur != _native.ffi.NULL:
        parts.append("blurred")
    if shared is not None:
        parts.append(f"shares {shared.index}")
    return ", ".join(parts)
