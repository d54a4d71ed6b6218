"""Folds batchnorms into the layers before them, and shows what that changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from .. import _native
from .._native import Array, ffi, lib
from ..building import build_layers
from ..cfg import read_cfg
from ..dialect import BatchNormRule, Host, dialect_named, profile_named
from ..layers import Layer
from ..network import Network
from ..recurrence import fresh_state
from ..rewriting import rewrite
from .arithmetic import batchnorm_of, fold_into, normalized_weights
from .plan import Plan, plan_fold
from .report import Epsilon, FoldedLayer, FoldReport, LayerDifference, LeftLayer

__all__ = ["FoldReport", "FoldedLayer", "LayerDifference", "LeftLayer", "compare_layers", "fold"]


def fold(
    net: Network, *, epsilon: Epsilon = "forward", layers: Iterable[int] | None = None, check: Array | None = None
) -> tuple[Network, FoldReport]:
    """Multiplies batchnorms into the weights and biases of the layers before them.

    Those of convolutional, connected and deconvolutional layers go, and under "forward" a [batchnorm] of its own that follows one
    without activation; it becomes a [route] of the layer before, so that every layer keeps its number. Weighted shortcuts keep
    their normalised weights.

    Args:
        net: stays as it is.
        epsilon: "forward" takes the root of the profile's own inference, so that nothing changes but rounding; "fork" is the
            fork's own fold, which in one fork is far from its own inference where a variance is tiny.
        layers: numbers of the layers to fold; None folds all.
        check: a batch to run both networks on; the report then holds the differences.

    Returns:
        A new network, its cfg with `batch_normalize=0`, and the report. A network without batchnorms gives an equal one and a
        report of no layers.

    Raises:
        NumericsError: a rolling variance plus epsilon is not over 0 under that formula; layer, channel and value are named.
        StateError: the network is in training.
        UnsupportedError: weights are shared with a layer that has no batchnorm.
        ValueError: another epsilon, or a number of no layer with a batchnorm.

    Source: AlexeyAB/darknet src/network.c fuse_conv_batchnorm; pjreddie/darknet src/convolutional_layer.c
    denormalize_convolutional_layer.
    """
    if epsilon not in ("forward", "fork"):
        raise ValueError(f"expected epsilon to be 'forward' or 'fork', got {epsilon!r}")
    plan = plan_fold(net, epsilon, layers)
    new = _without_batchnorm(net, plan)
    folded = [_fill(net, old, target, plan, epsilon) for old, target in zip(net.layers, new.layers, strict=True)]
    differences = () if check is None else compare_layers(net, new, check, moved={host: bn for bn, host in plan.absorbed.items()})
    report = tuple(layer for layer in folded if layer is not None)
    return new, FoldReport(epsilon, report, differences, tuple(sorted(plan.shortcuts)), plan.left, _notes(net, plan))


def _notes(net: Network, plan: Plan) -> tuple[str, ...]:
    if not plan.shortcuts or dialect_named(net.dialect).plain_shortcut_weights:
        return ()
    names = ", ".join(str(index) for index in sorted(plan.shortcuts))
    message = f"the program of dialect {net.dialect} itself ends at a [shortcut] with weights and no normalization"
    return (f"{message}, which layers {names} are now; leave them out with layers= where the files are for it",)


def _fill(net: Network, old: Layer, new: Layer, plan: Plan, epsilon: Epsilon) -> FoldedLayer | None:
    """Gives a layer of the new network its parameters."""
    if not old.stored or old.index in plan.absorbed:
        return None
    after = [net.layers[bn] for bn, host in plan.absorbed.items() if host == old.index]
    if old.index in plan.hosts or after:
        own = batchnorm_of(old, _rule_of(net, old)) if old.index in plan.hosts else None
        behind = [batchnorm_of(layer, _rule_of(net, layer)) for layer in after]
        return fold_into(old, new, own, behind, epsilon)
    for name, array in new.params.items():
        array[...] = normalized_weights(old) if old.index in plan.shortcuts else old.params[name]
    return None


# --- two networks ---------------------------------------------------------------------------------------------------------------


def compare_layers(net: Network, other: Network, x: Array, *, moved: dict[int, int] | None = None) -> tuple[LayerDifference, ...]:
    """Runs two networks of equal layers on a batch and tells how far each layer's outputs are apart.

    Args:
        net: whose outputs are the measure.
        other: of the same layers, such as its fold.
        x: the batch.
        moved: number of a layer of `other` -> that of the layer of `net` whose output it gives.
    """
    for each in (net, other):
        with fresh_state(each.layers):
            each.forward(x)
    outputs = [np.array(layer.output) for layer in other.layers]
    with fresh_state(other.layers):
        given = [net.layers[(moved or {}).get(layer.index, layer.index)] for layer in other.layers]
        alone = _alone(given, other, x)
    pairs = zip(given, other.layers, strict=True)
    return tuple(_difference(ours, theirs, outputs[theirs.index], alone[theirs.index]) for ours, theirs in pairs)


def _alone(given: Sequence[Layer], other: Network, x: Array) -> list[Array]:
    """The outputs of `other`'s layers, each run on what the given ones put out."""
    state = ffi.new("network_state *")
    state.batch, state.steps = x.shape[0], other.time_steps
    outputs: list[Array] = []
    for layer in other.layers:
        before = given[layer.index - 1].output if layer.index and not given[layer.index - 1].passes_input else x
        if layer.native is None:
            outputs.append(x if layer.passes_input else np.array(before))
            continue
        joined = [given[index].output for index in layer.sources]
        sources = ffi.new("float *[]", [_native.floats(array) for array in joined])
        state.input, state.sources = _native.floats(before), sources
        _native.check(lib.forward_layer(layer.native, state), f"layer {layer.index} [{layer.type}]")
        outputs.append(np.array(layer.output))
    return outputs


def _difference(ours: Layer, theirs: Layer, output: Array, alone: Array) -> LayerDifference:
    if ours.passes_input:
        return LayerDifference(theirs.index, theirs.type, 0.0, 0.0, 0, 0.0)
    wanted = ours.output.astype(np.float64)
    apart = np.abs(wanted - output).max(axis=(0, 2, 3))
    channel = int(apart.argmax())
    own = float(np.abs(wanted - alone).max())
    spread = float(np.ptp(wanted)) or float(np.abs(wanted).max())
    return LayerDifference(theirs.index, theirs.type, float(apart[channel]), spread, channel, own)


# --- the network around it ------------------------------------------------------------------------------------------------------


def _rule_of(net: Network, layer: Layer) -> BatchNormRule:
    hosts: dict[str, Host] = {"connected": "connected", "batchnorm": "batchnorm"}
    return profile_named(net.profile).rule(hosts.get(layer.type, "convolutional"))


def _without_batchnorm(net: Network, plan: Plan) -> Network:
    """A network of the same layers with batch_normalize=0 in the chosen ones, its parameters not set yet."""
    dialect, profile = dialect_named(net.dialect), profile_named(net.profile)
    text = _rewritten(net, plan)
    cfg = read_cfg(text.encode(), dialect=net.dialect)
    beside = tuple(replace(section, file=net.origin.cfg.name) for section in cfg.sections)  # of the files that it names
    cfg = replace(cfg, sections=beside, name=f"{net.origin.cfg.name} (folded)")
    built = build_layers(cfg, dialect, profile)
    unfolded = net.origin.unfolded or net.origin.cfg.text if plan.changed else net.origin.unfolded
    return Network(
        built,
        dialect=dialect,
        profile=profile,
        header=net.header,
        origin=replace(net.origin, cfg=cfg, weights="", nbytes=0, unfolded=unfolded),
        names=net.names,
        folded=bool(plan.changed) or net.folded,
    )


def _rewritten(net: Network, plan: Plan) -> str:
    changes = {(index, "batch_normalize"): "0" for index in sorted(plan.hosts)}
    joint = {section.index for section in net.origin.cfg.layers if section.index in plan.hosts and section.has("cbn")}
    changes |= {(index, "cbn"): "0" for index in sorted(joint)}
    changes |= {(index, "weights_normalization"): "none" for index in sorted(plan.shortcuts)}
    changes |= {(index, "layers"): "-1" for index in sorted(plan.absorbed)}
    text = rewrite(net.origin.cfg, changes, headings=dict.fromkeys(plan.absorbed, "[route]"))
    return text if text.endswith(("\n", "\r")) else text + "\n"
