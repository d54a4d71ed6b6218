"""Folds batchnorms into the layers before them, and shows what that changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._native import Array
from .building import build_layers
from .cfg import read_cfg
from .dialect import BatchNormRule, EpsilonRule, Host, dialect_named, profile_named
from .errors import NumericsError
from .layers import Layer
from .network import Network
from .recurrence import fresh_state
from .rewriting import rewrite

__all__ = ["FoldReport", "FoldedLayer", "LayerDifference", "compare_layers", "fold"]

Epsilon = Literal["forward", "fork"]
_HOSTS = ("convolutional", "connected", "deconvolutional")


@dataclass(frozen=True, slots=True)
class FoldedLayer:
    """A layer that took up its batchnorm.

    Args:
        index, type: of the layer.
        channels: how many it has.
        largest_factor: the largest scale / root, by which a channel's weights were multiplied.
        smallest_variance: the smallest rolling variance, where an epsilon matters most.
    """

    index: int
    type: str
    channels: int
    largest_factor: float
    smallest_variance: float


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """How far two networks are apart after a layer.

    Args:
        index, type: of the layer.
        largest: the largest absolute difference.
        range: largest minus smallest value of the first network's output.
        channel: where the largest difference is.
    """

    index: int
    type: str
    largest: float
    range: float
    channel: int

    @property
    def relative(self) -> float:
        """The largest difference as a share of the range."""
        return self.largest / self.range if self.range else self.largest


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What `fold` did.

    Args:
        epsilon: "forward" or "fork".
        folded: the layers that took up a batchnorm; () where there was none, as in a second fold.
        differences: layer by layer, on the input that was to be checked.
        skipped: numbers of the layers that keep a batchnorm: [batchnorm], recurrent ones, and those not chosen.
    """

    epsilon: Epsilon
    folded: tuple[FoldedLayer, ...]
    differences: tuple[LayerDifference, ...] = ()
    skipped: tuple[int, ...] = ()

    @property
    def worst(self) -> LayerDifference | None:
        """The layer with the largest difference relative to its range."""
        return max(self.differences, key=lambda difference: difference.relative, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        return asdict(self)


def fold(
    net: Network, *, epsilon: Epsilon = "forward", layers: Iterable[int] | None = None, check: Array | None = None
) -> tuple[Network, FoldReport]:
    """Multiplies the batchnorms behind convolutional, deconvolutional and connected layers into weights and biases.

    Args:
        net: stays as it is.
        epsilon: "forward" takes the root of the profile's own inference, so that nothing changes but rounding; "fork" is the
            fork's own fold, which in one fork is far from its own inference where a variance is tiny. That fork's fold of a
            [deconvolutional] multiplies the wrong weights, which is not repeated here.
        layers: numbers of the layers to fold; None folds all.
        check: a batch to run both networks on; the report then holds the differences.

    Returns:
        A new network, its cfg with `batch_normalize=0`, and the report. A network without batchnorms gives an equal one and a
        report of no layers.

    Raises:
        NumericsError: a rolling variance plus epsilon is not over 0 under that formula; layer, channel and value are named.
        ValueError: another epsilon, or a number of no layer with a batchnorm.

    Source: AlexeyAB/darknet src/network.c fuse_conv_batchnorm; pjreddie/darknet src/convolutional_layer.c
    denormalize_convolutional_layer.
    """
    if epsilon not in ("forward", "fork"):
        raise ValueError(f"expected epsilon to be 'forward' or 'fork', got {epsilon!r}")
    chosen = _chosen(net, layers)
    new = _without_batchnorm(net, chosen)
    report = []
    for old, target in zip(net.layers, new.layers, strict=True):
        if target.stored and old.index in chosen:
            report.append(_fold_layer(old, target, _rule_of(net, old), epsilon))
        elif target.stored:
            for name, array in target.params.items():
                array[...] = old.params[name]
    differences = () if check is None else compare_layers(net, new, check)
    skipped = [layer.index for layer in new.layers if any(name.endswith("rolling_variance") for name in layer.params)]
    return new, FoldReport(epsilon, tuple(report), differences, tuple(skipped))


def compare_layers(net: Network, other: Network, x: Array) -> tuple[LayerDifference, ...]:
    """Runs two networks of equal layers on a batch and tells how far each layer's outputs are apart."""
    for each in (net, other):
        with fresh_state(each.layers):
            each.forward(x)
    return tuple(_difference(ours, theirs) for ours, theirs in zip(net.layers, other.layers, strict=True))


def _difference(ours: Layer, theirs: Layer) -> LayerDifference:
    a, b = ours.output, theirs.output
    apart = np.abs(a.astype(np.float64) - b).max(axis=(0, 2, 3))
    channel = int(apart.argmax())
    return LayerDifference(ours.index, ours.type, float(apart[channel]), float(np.ptp(a)), channel)


# --- one layer ------------------------------------------------------------------------------------------------------------------


def _fold_layer(old: Layer, new: Layer, rule: BatchNormRule, epsilon: Epsilon) -> FoldedLayer:
    root = _root(old, rule, epsilon)
    wide = rule.fold_factor == "double" or epsilon == "forward"
    factor = old.scales / root if wide else (old.scales / root).astype(np.float32)
    filters = 1 if old.type == "deconvolutional" else 0  # the axis of the weights
    new.weights[...] = old.weights * factor.reshape(-1, *[1] * (old.weights.ndim - 1 - filters))
    if wide:
        new.biases[...] = old.biases - old.scales.astype(np.float64) * old.rolling_mean / root
    else:
        new.biases[...] = old.biases - old.rolling_mean * factor
    return FoldedLayer(old.index, old.type, root.size, float(np.abs(factor).max()), float(old.rolling_variance.min()))


def _root(layer: Layer, rule: BatchNormRule, epsilon: Epsilon) -> NDArray[np.float64] | Array:
    """sqrt(v + eps) or sqrt(v) + eps of each channel, in the types of the inference or of the fork's fold."""
    chosen, precision = (rule.forward, rule.intermediate) if epsilon == "forward" else (rule.fold, rule.fold_root)
    variance = layer.rolling_variance
    with np.errstate(invalid="ignore"):
        root = _root_of(variance, chosen, np.float32 if precision == "float" else np.float64)
    bad = np.flatnonzero(~(root > 0))
    if bad.size:
        place = f"layer {layer.index} [{layer.type}], channel {bad[0]}, has rolling_variance {variance[bad[0]]:g}"
        raise NumericsError(f"{place}, which has no root with an epsilon of {chosen.value:g} {chosen.side} it; it cannot be folded")
    return root if epsilon == "fork" else root.astype(np.float64)


def _root_of(variance: Array, epsilon: EpsilonRule, kind: type[np.floating[Any]]) -> NDArray[Any]:
    narrow = epsilon.literal == "float"
    value = np.float32(epsilon.value) if narrow else np.float64(epsilon.value)
    if epsilon.side == "outside":
        return np.asarray(np.sqrt(variance.astype(kind)) + kind(value))
    inside = variance + value if narrow else variance.astype(np.float64) + value
    return np.asarray(np.sqrt(inside.astype(kind)))


# --- the network around it ------------------------------------------------------------------------------------------------------


def _has_batchnorm(layer: Layer) -> bool:
    return layer.type in _HOSTS and "rolling_variance" in layer.params


def _rule_of(net: Network, layer: Layer) -> BatchNormRule:
    host: Host = "connected" if layer.type == "connected" else "convolutional"
    return profile_named(net.profile).rule(host)


def _chosen(net: Network, layers: Iterable[int] | None) -> frozenset[int]:
    able = {layer.index for layer in net.layers if _has_batchnorm(layer)}
    if layers is None:
        return frozenset(able)
    wanted = frozenset(layers)
    if wanted - able:
        raise ValueError(f"expected layers with a batchnorm ({sorted(able)}), got {min(wanted - able)}")
    return wanted


def _without_batchnorm(net: Network, chosen: frozenset[int]) -> Network:
    """A network of the same layers with batch_normalize=0 in the chosen ones, its parameters not set yet."""
    dialect, profile = dialect_named(net.dialect), profile_named(net.profile)
    text = rewrite(net.origin.cfg, {(index, "batch_normalize"): "0" for index in sorted(chosen)})
    text += "" if text.endswith(("\n", "\r")) else "\n"
    cfg = read_cfg(text.encode(), dialect=net.dialect)
    beside = tuple(replace(section, file=net.origin.cfg.name) for section in cfg.sections)  # of the files that it names
    cfg = replace(cfg, sections=beside, name=f"{net.origin.cfg.name} (folded)")
    built = build_layers(cfg, dialect, profile)
    return Network(
        built,
        dialect=dialect,
        profile=profile,
        header=net.header,
        origin=replace(net.origin, cfg=cfg, weights="", nbytes=0),
        names=net.names,
        folded=bool(chosen) or net.folded,
    )
