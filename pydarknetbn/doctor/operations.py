"""What the names of other programs' operations say about a step."""

from __future__ import annotations

from collections.abc import Sequence

from ..layers import Layer
from .steps import Step
from .trace import Tensor

__all__ = ["agreement", "families", "passes"]

_WORDS = {
    "norm": ("norm",),
    "convolution": ("conv",),
    "matrix": ("gemm", "matmul", "linear", "addmm", "dense", "mm"),
    "pool": ("pool",),
    "resize": ("resize", "upsample", "interpolate", "repeat", "tile"),
    "join": ("concat", "cat"),
    "cut": ("slice", "split", "chunk", "narrow", "select", "gather"),
    "sum": ("add", "sub"),
    "product": ("mul", "div"),
    "move": ("reshape", "view", "transpose", "permute", "flatten", "identity", "clone", "copy", "dropout", "cast", "squeeze"),
    "activation": (
        "relu", "leaky", "sigmoid", "mish", "silu", "swish", "elu", "tanh", "softplus", "logistic", "clip", "clamp", "where", "exp",
        "activation", "max", "softmax",
    ),
}  # fmt: skip

_SUMS = {"convolution": ("convolution",), "connected": ("matrix", "convolution")}
_EXPECTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "batchnorm": (("norm",), ("sum", "folded")),
    "biases": (("folded", "matrix"), ("sum",)),
    "activation": (("activation",), ("product", "convolution", "folded", "norm", "matrix")),
    "maxpool": (("pool",), ("activation",)),
    "avgpool": (("pool",), ("move",)),
    "local_avgpool": (("pool",), ("product",)),
    "upsample": (("resize",), ("move", "product", "cut")),
    "route": (("join", "cut"), ("move",)),
    "shortcut": (("sum",), ("activation",)),
    "scale_channels": (("product",), ("activation",)),
    "sam": (("product",), ("activation",)),
    "yolo": (("join", "move"), ("activation", "product", "sum")),
    "region": (("join", "move"), ("activation", "product")),
    "boxes": (("join", "move"), ("product", "sum")),
    "reorg": (("move",), ("join", "cut")),
    "softmax": (("activation",), ("move",)),
}
"""Kind of a step -> what makes its value, and what may."""


def families(tensors: Sequence[Tensor]) -> list[str]:
    """What kind of operation made each; "" where that is unknown.

    A convolution behind which no batch normalization comes is "folded": its values are those after ours.
    """
    found = [_family(tensor.op) for tensor in tensors]
    for index, family in enumerate(found[:-1]):
        shape, after = tensors[index].array.shape, tensors[index + 1].array.shape
        if family == "convolution" and not (found[index + 1] in ("norm", "sum", "product") and shape == after):
            found[index] = "folded"
    if found and found[-1] == "convolution":
        found[-1] = "folded"
    return found


def _family(op: str) -> str:
    lower = op.lower()
    return next((family for family, words in _WORDS.items() if any(word in lower for word in words)), "")


def agreement(step: Step, layer: Layer, family: str) -> float:
    """1 where that family makes such a value, less where it may, negative where it does not; 0 where nothing is known."""
    if not family:
        return 0.0
    if step.stage == "sums" and step.kind in _SUMS:
        folds = "rolling_mean" not in layer.shapes
        return 1.0 if family in _SUMS[step.kind] or (folds and family == "folded") else 0.2 if family == "folded" else -1.0
    if step.kind == "batchnorm" and family == "folded":
        return 0.9
    if step.kind not in _EXPECTED:
        return 0.0
    made, may = _EXPECTED[step.kind]
    return 1.0 if family in made else 0.3 if family in may else -1.0


def passes(layer: Layer) -> bool:
    """Whether a layer gives on what it gets, so that a port may have nothing in its place."""
    if layer.native is None:
        return True
    if layer.type == "dropout":
        return True
    return layer.type == "route" and len(layer.sources) == 1 and layer.native.groups <= 1
