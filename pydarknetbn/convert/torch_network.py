"""The module of a whole network."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..network import Network
from .torch_layers import DarknetLayer

__all__ = ["DarknetModule"]

Tensor = Any


class DarknetModule(nn.Module):  # type: ignore[misc]
    """A network of Darknet's layers; its state dict has the names `layers.N.weights`, `layers.N.rolling_mean`.

    `eval()` computes what the package computes, within rounding. In training batchnorm takes the batch and moves its rolling
    arrays by the profile's factors; gradients are autograd's own, the exact ones, and [dropout] passes everything.

    Attributes:
        cfg: text of the cfg, `dialect`, `profile` and `header` (major, minor, revision, seen) beside it, so that it finds back.
    """

    def __init__(self, net: Network, layers: list[DarknetLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.sources = [layer.sources for layer in net.layers]
        self.heads = [layer.index for layer in net.heads] or [len(layers) - 1]
        self.in_shape = (net.c, net.h, net.w)
        self.cfg, self.dialect, self.profile = net.origin.cfg.text, net.dialect, net.profile
        self.header = (net.header.major, net.header.minor, net.header.revision, net.header.seen)

    def outputs(self, x: Tensor) -> list[Tensor]:
        """The output of every layer, for (batch, c, h, w)."""
        made: list[Tensor] = []
        current = x.reshape(len(x), *self.in_shape)
        for layer, sources in zip(self.layers, self.sources, strict=True):
            current = layer(current, [made[index] for index in sources])
            made.append(current)
        return made

    def forward(self, x: Tensor) -> list[Tensor]:
        """The outputs of the heads, without any the last layer's."""
        made = self.outputs(x)
        return [made[index] for index in self.heads]
