"""Decides what a fold takes up: batchnorms of layers, those of their own, weights of shortcuts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._native import lib
from ..errors import StateError, UnsupportedError
from ..layers import Layer
from ..network import Network
from .report import Epsilon, LeftLayer

__all__ = ["HOSTS", "Plan", "has_batchnorm", "plan_fold"]

HOSTS = ("convolutional", "connected", "deconvolutional")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is folded.

    Args:
        hosts: layers whose own batchnorm goes, those that share weights with another one too.
        absorbed: number of a [batchnorm] -> the layer before it that takes it up.
        shortcuts: whose weights are normalised.
        left: what stays, with the reason.
    """

    hosts: frozenset[int]
    absorbed: dict[int, int]
    shortcuts: frozenset[int]
    left: tuple[LeftLayer, ...]

    @property
    def changed(self) -> frozenset[int]:
        """The layers that are not as they were."""
        return self.hosts | frozenset(self.absorbed) | self.shortcuts


def has_batchnorm(layer: Layer) -> bool:
    """Whether a layer has a batchnorm behind it that can be folded."""
    return layer.type in HOSTS and "rolling_variance" in layer.params


def plan_fold(net: Network, epsilon: Epsilon, layers: Iterable[int] | None) -> Plan:
    """What a fold of these layers, None: of all, does.

    Raises:
        ValueError: a number of no layer that can be folded, or of one that needs another.
        UnsupportedError: weights of the layer are shared with one that has no batchnorm.
        StateError: the network is in training.
    """
    _refuse_training(net)
    hosts = frozenset(layer.index for layer in net.layers if has_batchnorm(layer))
    shortcuts = frozenset(layer.index for layer in net.layers if _is_normalized(layer))
    reasons = {layer.index: _why_not(net, layer, epsilon) for layer in net.layers if layer.type == "batchnorm"}
    absorbed = {index: index - 1 for index, reason in reasons.items() if not reason}
    if layers is not None:
        hosts, absorbed, shortcuts = _chosen(net, frozenset(layers), hosts, absorbed, shortcuts)
    for index in hosts:
        _refuse_unlike_users(net, net.layers[index])
    left = [LeftLayer(index, "batchnorm", reason) for index, reason in reasons.items() if reason]
    left += [
        LeftLayer(layer.index, layer.type, "a batchnorm inside a recurrent layer stays") for layer in net.layers if _inside(layer)
    ]
    return Plan(hosts, absorbed, shortcuts, tuple(left) if layers is None else ())


def _inside(layer: Layer) -> bool:
    return any(name.endswith(".rolling_variance") for name in layer.params)


def _is_normalized(layer: Layer) -> bool:
    weighted = layer.type == "shortcut" and "weights" in layer.params
    return weighted and layer.native is not None and layer.native.weights_normalization != lib.NORMALIZATION_NONE


def _refuse_training(net: Network) -> None:
    for layer in net.layers:
        if (has_batchnorm(layer) or layer.type == "batchnorm") and layer.owner("scales").cached == lib.CACHED_TRAINING:
            place = f"layer {layer.index} [{layer.type}]"
            raise StateError(f"{place} is in training; run a forward with train=False before the network is folded")


def _chosen(net: Network, wanted: frozenset[int], hosts: Any, absorbed: Any, shortcuts: Any) -> tuple[Any, Any, Any]:
    able = hosts | absorbed.keys() | shortcuts
    if wanted - able:
        raise ValueError(f"expected layers with a batchnorm ({sorted(able)}), got {min(wanted - able)}")
    for index in sorted(wanted & absorbed.keys()):
        if index - 1 in hosts - wanted:
            raise ValueError(f"layer {index} [batchnorm] goes into layer {index - 1}, whose own batchnorm is to be folded too")
    users = frozenset(user.index for index in wanted & hosts for user in _users(net, net.layers[index]))
    kept = {index: host for index, host in absorbed.items() if index in wanted}
    return (wanted & hosts) | (users & hosts), kept, shortcuts & wanted


# --- who else is concerned ------------------------------------------------------------------------------------------------------


def _users(net: Network, layer: Layer) -> list[Layer]:
    """The other layers that read the same weights."""
    candidates = (other for other in net.layers if other.type == layer.type and other is not layer and other.native is not None)
    return [other for other in candidates if other.weights_at == layer.weights_at]


def _refuse_unlike_users(net: Network, layer: Layer) -> None:
    for user in _users(net, layer):
        if not has_batchnorm(user):
            message = f"layer {user.index} [{user.type}] shares the weights of layer {layer.index} and has no batchnorm"
            raise UnsupportedError(f"{message}; a fold would change what it gives; leave layer {layer.index} out with layers=")


def _why_not(net: Network, layer: Layer, epsilon: Epsilon) -> str:
    """Why a [batchnorm] cannot go into the layer before it; "" where it can."""
    if epsilon == "fork":
        return "the fork's own fold leaves a [batchnorm] as it is"
    host = net.layers[layer.index - 1] if layer.index else None
    if host is None or host.type not in HOSTS:
        return f"it does not follow {', '.join(f'[{kind}]' for kind in HOSTS)}"
    if host.native.activation != lib.ACTIVATION_LINEAR:  # type: ignore[union-attr]
        return f"layer {host.index} has an activation between its sums and this batchnorm"
    readers = [other.index for other in net.layers if host.index in other.sources]
    if readers:
        return f"layer {readers[0]} reads layer {host.index} without this batchnorm"
    if _users(net, host):
        return f"layer {host.index} shares its weights with layer {_users(net, host)[0].index}"
    return ""
