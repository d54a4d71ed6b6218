"""A port as a module of PyTorch: layers with parameters are modules, what joins values is functional, as in most ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from .graph import INPUT, Floats, Graph, Node
from .reorgs import REORGS, reorg_sizes

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, functional, Tensor = torch.nn, torch.nn.functional, torch.Tensor


class Port(nn.Module):
    """`forward` gives the outputs of the graph; `values` everything by name."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.module = nn.ModuleDict()
        for node in graph.nodes:
            made = _MODULES[node.op](node) if node.op in _MODULES else None
            if made is not None:
                _, layer, part = node.name.split(".")
                if layer not in self.module:
                    self.module[layer] = nn.ModuleDict()
                self.module[layer][part] = made
        self.eval()
        for node in graph.where("dropout"):
            self.get_submodule(node.name).train(node.attributes["active"])
        self.to(getattr(torch, graph.precision))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = self.values(x)
        return tuple(values[name] for name in self.graph.outputs)

    def values(self, x: Tensor) -> dict[str, Tensor]:
        values = {INPUT: x.to(next(self.parameters()).dtype)}
        for node in self.graph.nodes:
            inputs = [values[name] for name in node.inputs]
            values[node.name] = self.step(node, inputs)
        return values

    def step(self, node: Node, inputs: Sequence[Tensor]) -> Tensor:
        """One operation on values that come from anywhere."""
        if node.op in _MODULES:
            return self.get_submodule(node.name)(*inputs)
        return _FUNCTIONS[node.op](node, *inputs)


def as_torch(graph: Graph) -> Port:
    """The module, in evaluation mode."""
    return Port(graph)


# --- modules --------------------------------------------------------------------------------------------------------------------


def _parameter(array: Floats) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(array)), requires_grad=False)


class Padded(nn.Module):
    """Zeros (or another value) around, as frameworks do whose layers pad one side more."""

    def __init__(self, padding: Sequence[int], value: float, inner: nn.Module) -> None:
        super().__init__()
        self.padding, self.value, self.inner = padding, value, inner

    def forward(self, x: Tensor) -> Tensor:
        top, bottom, left, right = self.padding
        return self.inner(functional.pad(x, (left, right, top, bottom), value=self.value))


class Norm(nn.Module):
    """Batch normalization with statistics that are partly the batch's."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.keep, self.add, self.unbiased = node.attributes["statistics"]
        self.eps = node.attributes["epsilon"]
        for name, array in node.arrays.items():
            setattr(self, name, _parameter(array))

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=int(self.unbiased))
        mean, variance = (kept * self.keep + batch * self.add for kept, batch in ((self.mean, mean), (self.variance, variance)))
        return functional.batch_norm(x, mean, variance, self.scales, self.biases, eps=self.eps)


class Activation(nn.Module):
    """One that torch has no module for."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.function = ACTIVATIONS[kind]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Reorg(nn.Module):
    """Space to channels, in one of many orders."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.stride, self.order = node.attributes["stride"], node.attributes["order"]

    def forward(self, x: Tensor) -> Tensor:
        sizes = x.shape
        for shape, axes in REORGS[self.order]:
            x = x.reshape(reorg_sizes(shape, *sizes, self.stride))
            x = x.permute(axes) if axes else x
        return x


class Head(nn.Module):
    """What [yolo] does with its values."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.options = node.attributes

    def forward(self, x: Tensor) -> Tensor:
        o = self.options
        batch, _, h, w = x.shape
        x = x.reshape(batch, o["anchors"], 5 + o["classes"], h, w)
        centre, sides, sure = x.split([2, 2, 1 + o["classes"]], 2)
        for _ in range(o["logistic"][0]):
            centre = centre.sigmoid()
        if o["softmax"]:
            sure = torch.cat([sure[:, :, :1].sigmoid(), sure[:, :, 1:].softmax(2)], 2)
        else:
            for _ in range(o["logistic"][1]):
                sure = sure.sigmoid()
        centre = centre * o["scale_x_y"] - 0.5 * (o["scale_x_y"] - 1)
        return torch.cat([centre, sides, sure], 2).reshape(batch, -1, h, w)


class Boxes(nn.Module):
    """A table of boxes: centre and size as shares of the input, objectness, classes; in the head's shape."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.options = node.attributes
        self.register_buffer("sides", torch.tensor(node.attributes["anchors"], dtype=torch.float32)[None, :, :, None, None])
        self.register_buffer("size", torch.tensor(node.attributes["size"], dtype=torch.float32)[None, None, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        batch, _, h, w = x.shape
        x = x.reshape(batch, len(self.options["anchors"]), -1, h, w)
        centre, sides, rest = x.split([2, 2, x.shape[2] - 4], 2)
        columns, rows = torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy")
        cells = torch.stack([columns, rows])[None, None].to(x.dtype)
        centre = (centre + cells) / torch.tensor([w, h], dtype=x.dtype)[:, None, None]
        grown = sides * sides * 4 if self.options["squares"] else sides.exp()
        return torch.cat([centre, grown * self.sides / self.size, rest], 2).reshape(batch, -1, h, w)


def _conv(node: Node) -> nn.Module:
    weights, o = node.arrays["weights"], node.attributes
    n, depth, *size = weights.shape
    top, bottom, left, right = o["padding"]
    even = top == bottom and left == right
    options = {"stride": o["stride"], "padding": (top, left) if even else 0, "dilation": o["dilation"], "groups": o["groups"]}
    conv = nn.Conv2d(depth * o["groups"], n, tuple(size), bias="bias" in node.arrays, **options)
    conv.weight = _parameter(weights)
    if "bias" in node.arrays:
        conv.bias = _parameter(node.arrays["bias"])
    return conv if even else Padded(o["padding"], 0.0, conv)


def _batchnorm(node: Node) -> nn.Module:
    if node.attributes["statistics"] != (1.0, 0.0, False):
        return Norm(node)
    bn = nn.BatchNorm2d(len(node.arrays["mean"]), eps=node.attributes["epsilon"])
    bn.weight, bn.bias = _parameter(node.arrays["scales"]), _parameter(node.arrays["biases"])
    bn.running_mean, bn.running_var = (torch.from_numpy(np.array(node.arrays[name])) for name in ("mean", "variance"))
    return bn


def _activation(node: Node) -> nn.Module:
    kind = node.attributes["kind"]
    if kind == "leaky":
        return nn.LeakyReLU(node.attributes["slope"])
    known = {"mish": nn.Mish, "swish": nn.SiLU, "relu": nn.ReLU, "logistic": nn.Sigmoid, "linear": nn.Identity, "elu": nn.ELU}
    return known[kind]() if kind in known else Activation(kind)


def _maxpool(node: Node) -> nn.Module:
    o = node.attributes
    pool = nn.MaxPool2d(o["size"], o["stride"])
    return Padded(o["padding"], o["value"], pool) if any(o["padding"]) else pool


def _dropout(node: Node) -> nn.Module:
    return nn.Dropout(node.attributes["probability"])


def hard_mish(x: Tensor) -> Tensor:
    return x / 2 * (x + 2).clamp(0, 2)


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "hard mish": hard_mish,
    "hard swish": functional.hardswish,
    "tanhexp": lambda x: x * x.exp().tanh(),
    "tanh": torch.tanh,
    "relu6": functional.relu6,
}
_MODULES: Mapping[str, Callable[[Node], nn.Module]] = {
    "activation": _activation,
    "batchnorm": _batchnorm,
    "boxes": Boxes,
    "conv": _conv,
    "dropout": _dropout,
    "head": Head,
    "maxpool": _maxpool,
    "reorg": Reorg,
}

# --- functions ------------------------------------------------------------------------------------------------------------------


def _upsample(node: Node, x: Tensor) -> Tensor:
    o = node.attributes
    options = {} if o["mode"] == "nearest" else {"mode": "bilinear", "align_corners": o["mode"] == "corners"}
    grown = functional.interpolate(x, scale_factor=o["factor"], **options)
    return grown if o["scale"] == 1 else grown * o["scale"]


def _sum(node: Node, x: Tensor, *others: Tensor) -> Tensor:
    weights = node.arrays.get("weights")
    factors = [None] * (1 + len(others)) if weights is None else list(torch.from_numpy(weights).to(x.dtype)[:, :, None, None])
    total = x if factors[0] is None else x * factors[0]
    for factor, other in zip(factors[1:], others, strict=True):
        added = fitted(other, x.shape[1], node.attributes["at"])
        total = total + (added if factor is None else added * factor)
    return total


def fitted(x: Tensor, channels: int, at: int) -> Tensor:
    """Surplus channels cut, missing ones zero; the first one stands at `at`."""
    x = x[:, : channels - at]
    return functional.pad(x, (0, 0, 0, 0, at, channels - at - x.shape[1]))


_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "avgpool": lambda node, x: functional.adaptive_avg_pool2d(x, 1),
    "concat": lambda node, *inputs: torch.cat(inputs, 1),
    "identity": lambda node, x: x,
    "scale": lambda node, gate, image: image * gate,
    "slice": lambda node, x: x[:, node.attributes["begin"] : node.attributes["end"]],
    "sum": _sum,
    "upsample": _upsample,
}

# --- reorg ----------------------------------------------------------------------------------------------------------------------
