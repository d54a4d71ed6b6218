"""cfg/shapes.cfg as a PyTorch network: what its sections need, and no more."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import pydarknetbn as dn

__all__ = ["Head", "TorchNetwork", "head_of"]

_SLOPE = 0.1


class Head(NamedTuple):
    """Of a batch, for each anchor of the mask, row and column: boxes x, y, w, h in pixels of the input, and logits."""

    boxes: Tensor
    objectness: Tensor
    classes: Tensor


class TorchNetwork(nn.Module):
    """Convolutions, maxpools, routes and upsamples in the order of a network's layers."""

    def __init__(self, net: dn.Network) -> None:
        super().__init__()
        self._layers = net.layers
        self.blocks = nn.ModuleDict({str(layer.index): _block(layer) for layer in net.layers if layer.type in _BLOCKS})
        for layer in net.layers:
            if layer.type == "convolutional":
                _copy(layer, self.blocks[str(layer.index)], to_torch=True)

    def forward(self, x: Tensor) -> list[tuple[dn.Layer, Tensor]]:
        """The raw input of each head, with the head's layer."""
        outputs: list[Tensor] = []
        heads = []
        for layer in self._layers:
            if layer.type == "route":
                x = torch.cat([outputs[index] for index in layer.sources], 1)
            elif layer.type == "yolo":
                heads.append((layer, x))
            else:
                x = self.blocks[str(layer.index)](x)
            outputs.append(x)
        return heads

    def give_back(self, net: dn.Network) -> None:
        """Copies the parameters, rolling arrays included, into a network of the package."""
        for layer in net.layers:
            if layer.type == "convolutional":
                _copy(layer, self.blocks[str(layer.index)], to_torch=False)


def _convolutional(layer: dn.Layer) -> nn.Module:
    filters, channels, size, _ = layer.weights.shape
    normalized = "scales" in layer.params
    stride = layer.in_shape.w // layer.out_shape.w
    parts: list[nn.Module] = [nn.Conv2d(channels, filters, size, stride, size // 2, bias=not normalized)]
    if normalized:
        parts += [nn.BatchNorm2d(filters, momentum=0.05), nn.LeakyReLU(_SLOPE)]
    return nn.Sequential(*parts)


_BLOCKS = {
    "convolutional": _convolutional,
    "maxpool": lambda layer: nn.MaxPool2d(2, 2),  # noqa: ARG005
    "upsample": lambda layer: nn.Upsample(scale_factor=layer.out_shape.w // layer.in_shape.w),
}


def _block(layer: dn.Layer) -> nn.Module:
    return _BLOCKS[layer.type](layer)


def _copy(layer: dn.Layer, block: nn.Module, *, to_torch: bool) -> None:
    """Parameters of a convolution between the two, in either direction."""
    convolution = block[0]
    pairs = [(layer.weights, convolution.weight)]
    if "scales" in layer.params:
        norm = block[1]
        pairs += [(layer.scales, norm.weight), (layer.biases, norm.bias)]
        pairs += [(layer.rolling_mean, norm.running_mean), (layer.rolling_variance, norm.running_var)]
    else:
        pairs.append((layer.biases, convolution.bias))
    for array, tensor in pairs:
        if to_torch:
            tensor.data.copy_(torch.from_numpy(array))
        else:
            array[...] = tensor.detach().numpy()


def head_of(raw: Tensor, layer: dn.Layer, size: int) -> Head:
    """Decodes a head as Darknet does: x, y spread by scale_x_y, w, h as powers times the anchors."""
    batch, _, h, w = raw.shape
    entries = raw.view(batch, len(layer.head.mask), -1, h, w).permute(0, 1, 3, 4, 2)
    spread = layer.head.scale_x_y
    xy = entries[..., :2].sigmoid() * spread - (spread - 1) / 2
    grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
    anchors = torch.tensor(layer.head.anchors)[list(layer.head.mask)][:, None, None]
    boxes = torch.cat([(xy + grid) * torch.tensor([size / w, size / h]), entries[..., 2:4].clamp(max=6).exp() * anchors], -1)
    return Head(boxes, entries[..., 4], entries[..., 5:])
