"""Layers without weights on tensors: pools, moves of values, heads."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

__all__ = ["MOVES", "blurred"]

Module = Any
Tensor = Any
_LOWEST = torch.finfo(torch.float32).min


def blurred(module: Module, x: Tensor) -> Tensor:
    """Those values after the blur of antialiasing, where the layer has one."""
    blur = module.facts.blur
    if blur is None:
        return x
    return functional.conv2d(x, module.blur, stride=blur[1:3], padding=blur[3], groups=x.shape[1])


def _windows(facts: Any, x: Tensor, value: float) -> Tensor:
    """The image with the padding that Darknet's windows see: half of it before, and after what the last one needs."""
    before = facts.pad // 2
    sizes = ((facts.sharp[2], facts.stride_x, facts.w), (facts.sharp[1], facts.stride_y, facts.h))
    after = [(out - 1) * stride + facts.size - before - size for out, stride, size in sizes]
    return functional.pad(x, (before, after[0], before, after[1]), value=value)


def _maxpool(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    if facts.depth:
        return _max_over_channels(x, facts.out_c)
    x = torch.nan_to_num(x, nan=_LOWEST, posinf=torch.inf, neginf=_LOWEST)  # in Darknet neither is ever the largest
    pooled = functional.max_pool2d(_windows(facts, x, _LOWEST), facts.size, (facts.stride_y, facts.stride_x))
    return blurred(module, pooled)


def _max_over_channels(x: Tensor, out_c: int) -> Tensor:
    """Over the channels k, k + out_c, k + 2 out_c … of each pixel."""
    rounds = -(-x.shape[1] // out_c)
    filled = functional.pad(x, (0, 0, 0, 0, 0, rounds * out_c - x.shape[1]), value=_LOWEST)
    return filled.view(len(x), rounds, out_c, *x.shape[2:]).amax(1)


def _local_avgpool(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    """The mean of those pixels of a window that are in the image."""
    facts = module.facts
    strides = (facts.stride_y, facts.stride_x)
    sums, counts = (
        functional.avg_pool2d(_windows(facts, image, 0.0), facts.size, strides) for image in (x, torch.ones_like(x[:1, :1]))
    )
    return blurred(module, sums / counts)


def _avgpool(_: Module, x: Tensor, __: list[Tensor]) -> Tensor:
    return x.mean((2, 3), keepdim=True)


def _upsample(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    if facts.reverse:
        return facts.scale * facts.stride_x**2 * functional.avg_pool2d(x, facts.stride_x)
    return facts.scale * x.repeat_interleave(facts.stride_x, 2).repeat_interleave(facts.stride_x, 3)


def _crop(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    top, left = (facts.h - facts.out_h) // 2, (facts.w - facts.out_w) // 2
    return x[:, :, top : top + facts.out_h, left : left + facts.out_w] * facts.alpha + facts.beta


def _reorg(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    out = (len(x), facts.out_c, facts.out_h, facts.out_w)
    if facts.outputs > facts.inputs:  # zeros behind the image
        return functional.pad(x.reshape(len(x), -1), (0, facts.outputs - facts.inputs)).view(out)
    if facts.flatten:
        cells, channels = facts.h * facts.w, facts.c
        planes = x.reshape(len(x), cells, channels) if facts.reverse else x.reshape(len(x), channels, cells)
        return planes.transpose(1, 2).reshape(out)
    return x.reshape(len(x), -1)[:, module.index].view(out)


def _route(module: Module, _: Tensor, others: list[Tensor]) -> Tensor:
    facts = module.facts
    if len({tuple(other.shape[2:]) for other in others}) == 1:
        parts = [other.chunk(facts.groups, 1)[facts.group_id] for other in others]
        return torch.cat(parts, 1)
    flat = [other.reshape(len(other), -1).chunk(facts.groups, 1)[facts.group_id] for other in others]
    return torch.cat(flat, 1).view(len(flat[0]), facts.out_c, facts.out_h, facts.out_w)


def _softmax(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    return torch.softmax(x.reshape(len(x), facts.groups, -1) / facts.temperature, 2).view(x.shape)


def _l2norm(_: Module, x: Tensor, __: list[Tensor]) -> Tensor:
    return x / x.square().sum(1, keepdim=True).sqrt()


def _normalization(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    """Product of x and (kappa + alpha * sum of squares)^-beta; the first sum lacks a neighbour, and so do all after it."""
    facts = module.facts
    counts = torch.zeros(facts.c, facts.c)
    row = torch.zeros(facts.c)
    row[: facts.size // 2] = 1
    for k in range(facts.c):
        left, entering = k - (facts.size - 1) // 2 - 1, k + facts.size // 2
        if k and left >= 0:
            row[left] -= 1
        if k and entering < facts.c:
            row[entering] += 1
        counts[k] = row
    sums = torch.einsum("kc,bchw->bkhw", counts.to(x), x.square())
    return x * (facts.kappa + facts.alpha * sums) ** -facts.beta


# --- heads ----------------------------------------------------------------------------------------------------------------------


def _spread(x: Tensor, scale: float) -> Tensor:
    return x * scale - 0.5 * (scale - 1)


def _yolo(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    entries = x.reshape(len(x), facts.n, 5 + facts.classes, facts.h, facts.w)
    centre, sides, rest = entries[:, :, :2], entries[:, :, 2:4], entries[:, :, 4:]
    if not facts.new_coords:
        centre, rest = torch.sigmoid(centre), torch.sigmoid(rest)
    return torch.cat([_spread(centre, facts.scale_x_y), sides, rest], 2).reshape(x.shape)


def _gaussian_yolo(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    """x, y, w, h, each with its uncertainty behind it."""
    facts = module.facts
    entries = x.reshape(len(x), facts.n, 9 + facts.classes, facts.h, facts.w)
    parts = []
    for number, part in enumerate(entries.split([1] * 8 + [1 + facts.classes], 2)):
        made = part if number in (4, 6) else torch.sigmoid(part)
        parts.append(_spread(made, facts.scale_x_y) if number in (0, 2) else made)
    return torch.cat(parts, 2).reshape(x.shape)


def _region(module: Module, x: Tensor, _: list[Tensor]) -> Tensor:
    facts = module.facts
    entries, cells = facts.coords + 1 + facts.classes, facts.h * facts.w
    if not facts.planar:
        flat = x.reshape(len(x), facts.n * entries, cells).transpose(1, 2).reshape(len(x), cells, facts.n, entries)
        classes = flat[..., 5 : 5 + facts.classes]
        classes = torch.softmax(classes, 3) if facts.softmax else classes
        parts = [flat[..., :4], torch.sigmoid(flat[..., 4:5]), classes, flat[..., 5 + facts.classes :]]
        return torch.cat(parts, 3).reshape(x.shape)
    head = x.reshape(len(x), facts.n, entries, cells)
    centre, sides = torch.sigmoid(head[:, :, :2]), head[:, :, 2 : facts.coords]
    objectness, classes = head[:, :, facts.coords : facts.coords + 1], head[:, :, facts.coords + 1 :]
    if facts.background and facts.softmax:
        return torch.cat([centre, sides, torch.softmax(head[:, :, facts.coords :], 2)], 2).reshape(x.shape)
    objectness = objectness if facts.background else torch.sigmoid(objectness)
    classes = torch.softmax(classes, 2) if facts.softmax else torch.sigmoid(classes)
    return torch.cat([centre, sides, objectness, classes], 2).reshape(x.shape)


MOVES = {
    "Gaussian_yolo": _gaussian_yolo,
    "avgpool": _avgpool,
    "crop": _crop,
    "l2norm": _l2norm,
    "local_avgpool": _local_avgpool,
    "maxpool": _maxpool,
    "normalization": _normalization,
    "region": _region,
    "reorg": _reorg,
    "reorg3d": _reorg,
    "route": _route,
    "softmax": _softmax,
    "upsample": _upsample,
    "yolo": _yolo,
}
