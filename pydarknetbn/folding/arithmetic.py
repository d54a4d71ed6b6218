"""The numbers of a fold: roots, factors, and normalised weights of shortcuts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import Array, ffi, lib
from ..dialect import BatchNormRule, EpsilonRule
from ..errors import NumericsError
from ..layers import Layer
from .report import Epsilon, FoldedLayer

__all__ = ["Batchnorm", "batchnorm_of", "fold_into", "normalized_weights", "root_of"]

Wide = NDArray[np.float64]


class Batchnorm(NamedTuple):
    """The arrays of a batchnorm, and how it computes."""

    layer: Layer
    biases: Array
    scales: Array
    rolling_mean: Array
    rolling_variance: Array
    rule: BatchNormRule


def batchnorm_of(layer: Layer, rule: BatchNormRule) -> Batchnorm:
    """That of a layer; some dialects' [batchnorm] has no biases."""
    arrays = layer.params
    biases = arrays.get("biases", np.zeros_like(arrays["scales"]))
    return Batchnorm(layer, biases, arrays["scales"], arrays["rolling_mean"], arrays["rolling_variance"], rule)


def fold_into(old: Layer, new: Layer, own: Batchnorm | None, after: list[Batchnorm], epsilon: Epsilon) -> FoldedLayer:
    """Fills the weights and biases of the folded layer.

    Args:
        old: the layer.
        new: the same without its batchnorm.
        own: its batchnorm, if it is to go.
        after: those of the [batchnorm] layers behind it that go too, which needs "forward".
        epsilon: see `fold`.
    """
    if epsilon == "fork" and own is not None:
        factor = _fold_as_fork(old, new, own)
    else:
        factor = _fold_in_double(old, new, ([own] if own else []) + after)
    variances = [each.rolling_variance for each in ([own] if own else []) + after]
    smallest = float(min(variance.min() for variance in variances))
    absorbed = tuple(each.layer.index for each in after)
    deviation = _deviation(own) if own is not None and epsilon == "fork" else {}
    return FoldedLayer(old.index, old.type, factor.size, float(np.abs(factor).max()), smallest, absorbed, **deviation)


def _fold_in_double(old: Layer, new: Layer, steps: list[Batchnorm]) -> Wide:
    """One rounding at the end, whatever the number of batchnorms."""
    factor = np.ones(old.biases.size)
    shift = np.zeros(old.biases.size)
    first_bias = steps[0].layer is not old  # a layer without a batchnorm of its own adds its biases before the next one's
    if first_bias:
        shift += old.biases
    for step in steps:
        gain = step.scales / _checked_root(step, "forward").astype(np.float64)
        factor, shift = factor * gain, (shift - step.rolling_mean) * gain + step.biases
    new.weights[...] = old.weights * _along_outputs(old, factor)
    new.biases[...] = shift
    return factor


def _fold_as_fork(old: Layer, new: Layer, own: Batchnorm) -> NDArray[Any]:
    root = _checked_root(own, "fork")
    wide = own.rule.fold_factor == "double"
    factor: NDArray[Any] = own.scales / root if wide else (own.scales / root).astype(np.float32)
    new.weights[...] = old.weights * _along_outputs(old, factor)
    if wide:
        new.biases[...] = own.biases - own.scales.astype(np.float64) * own.rolling_mean / root
    else:
        new.biases[...] = own.biases - own.rolling_mean * factor
    return factor


def _along_outputs(layer: Layer, factor: NDArray[Any]) -> NDArray[Any]:
    """One factor for each output channel: the first axis of the weights, of a deconvolution the second."""
    axes = layer.weights.ndim - (2 if layer.type == "deconvolutional" else 1)
    return np.asarray(factor).reshape(-1, *[1] * axes)


def _deviation(own: Batchnorm) -> dict[str, Any]:
    forward = root_of(own.rolling_variance, own.rule.forward, own.rule.intermediate).astype(np.float64)
    apart = np.abs(forward / root_of(own.rolling_variance, own.rule.fold, own.rule.fold_root) - 1)
    channel = int(apart.argmax())
    variance = float(own.rolling_variance[channel])
    return {"deviation": float(apart[channel]), "deviating_channel": channel, "its_variance": variance}


def _checked_root(own: Batchnorm, epsilon: Epsilon) -> NDArray[Any]:
    rule = own.rule
    chosen, precision = (rule.forward, rule.intermediate) if epsilon == "forward" else (rule.fold, rule.fold_root)
    root = root_of(own.rolling_variance, chosen, precision)
    bad = np.flatnonzero(~(root > 0))
    if bad.size:
        place = (
            f"layer {own.layer.index} [{own.layer.type}], channel {bad[0]}, has rolling_variance {own.rolling_variance[bad[0]]:g}"
        )
        raise NumericsError(f"{place}, which has no root with an epsilon of {chosen.value:g} {chosen.side} it; it cannot be folded")
    return root


def root_of(variance: Array, epsilon: EpsilonRule, precision: str) -> NDArray[Any]:
    """sqrt(v + eps) or sqrt(v) + eps of each channel in the types of the fork; NaN where there is none."""
    kind = np.float32 if precision == "float" else np.float64
    narrow = epsilon.literal == "float"
    value = np.float32(epsilon.value) if narrow else np.float64(epsilon.value)
    with np.errstate(invalid="ignore"):
        if epsilon.side == "outside":
            return np.asarray(np.sqrt(variance.astype(kind)) + kind(value))
        inside = variance + value if narrow else variance.astype(np.float64) + value
        return np.asarray(np.sqrt(inside.astype(kind)))


# --- shortcuts ------------------------------------------------------------------------------------------------------------------


def normalized_weights(layer: Layer) -> Array:
    """The weights that a weighted shortcut multiplies its layers by, as the core computes them.

    The core adds 1 times one layer and 0 times the others, pixel by pixel: what comes out is that layer's weight.
    """
    native = layer.native
    assert native is not None
    layers, step = native.n_sources + 1, native.nweights // (native.n_sources + 1)
    options = ffi.new("shortcut_options *")
    options.c, options.h, options.w = step, 1, 1
    options.activation, options.alpha, options.beta = lib.ACTIVATION_LINEAR, 1, 1
    options.nweights, options.weights_normalization = native.nweights, native.weights_normalization
    shapes = ffi.new("shape[]", [(step, 1, 1)] * native.n_sources)
    probe = _native.make("shortcut", options, shapes, native.n_sources, ffi.addressof(native, "layer_rule"))
    _native.view(probe.weights, (native.nweights,))[...] = layer.weights
    planes = [np.zeros(step, np.float32) for _ in range(layers)]
    pointers = [_native.floats(plane) for plane in planes]
    state, sources = ffi.new("network_state *"), ffi.new("float *[]", pointers[1:])
    state.batch, state.input, state.sources = 1, pointers[0], sources
    found = np.empty((layers, step), np.float32)
    for number, plane in enumerate(planes):
        plane[...] = 1
        _native.check(lib.forward_layer(probe, state), f"layer {layer.index} [{layer.type}]")
        found[number] = _native.view(probe.output, (step,))
        plane[...] = 0
    return found.reshape(-1)
