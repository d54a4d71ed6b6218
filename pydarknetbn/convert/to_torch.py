"""A network as a PyTorch module."""

from __future__ import annotations

from typing import Any

from .._native import ffi
from ..dialect import Host, profile_named
from ..errors import UnsupportedError
from ..extras import import_extra
from ..layers import Layer
from ..network import Network

__all__ = ["to_torch"]

_HOSTS: dict[str, Host] = {"connected": "connected", "batchnorm": "batchnorm"}


def to_torch(net: Network) -> Any:
    """A runnable `torch.nn.Module` whose every layer is Darknet's; it is in eval mode, and shares no memory with the network.

    `module(x)` gives the heads' outputs as `net.forward` does, `module.outputs(x)` those of all layers.

    Raises:
        MissingExtraError: torch is not installed.
        UnsupportedError: layers that it cannot express; all are named.
    """
    import_extra("torch", "torch")
    from . import torch_facts, torch_layers, torch_network  # noqa: PLC0415

    _refuse(net, frozenset(torch_layers.FUNCTIONS))
    profile = profile_named(net.profile)
    made: list[Any] = []
    for layer in net.layers:
        facts = None
        if layer.native is not None:
            facts = torch_facts.facts_of(layer, profile.rule(_HOSTS.get(layer.type, "convolutional")))
        lender = None if layer.stored else made[_lender(net, layer)]
        made.append(torch_layers.DarknetLayer(layer, facts, lender))
    return torch_network.DarknetModule(net, made).eval()


def _refuse(net: Network, able: frozenset[str]) -> None:
    bad = [layer for layer in net.layers if layer.type not in able or _has_tree(layer)]
    if bad:
        names = ", ".join(
            f"layer {each.index} [{each.type}]{' with a tree' if _has_tree(each) else ''} (line {each.line})" for each in bad
        )
        raise UnsupportedError(f"{net.origin.cfg.name}: {names} cannot be expressed as a PyTorch module by this package")


def _has_tree(layer: Layer) -> bool:
    return layer.native is not None and layer.native.softmax_tree != ffi.NULL


def _lender(net: Network, layer: Layer) -> int:
    """Number of the first layer with the same weights."""
    others = (other for other in net.layers if other.native is not None and other.stored and other.type == layer.type)
    return next(other.index for other in others if other.weights_at == layer.weights_at)
