"""What the arrays of a network are called elsewhere.

layers       layers.N.<Darknet's name>, N the number of the layer; every array of every network has one
ultralytics  the cfg-driven YOLOv3 of its archive: module_list.N.Conv2d.weight, module_list.N.BatchNorm2d.running_mean
tianxiaomo   pytorch-YOLOv4: models.N.convM.weight, models.N.bnM.running_var, M counts the convolutions from 1

Source: ultralytics/yolov3 models.py create_modules, Tianxiaomo/pytorch-YOLOv4 tool/darknet2pytorch.py create_network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

from .._native import Array, lib
from ..errors import UnsupportedError
from ..layers import Layer
from ..network import Network

__all__ = ["STYLES", "Named", "Style", "is_ignored", "named_arrays"]

Style = Literal["layers", "ultralytics", "tianxiaomo"]
STYLES: tuple[Style, ...] = get_args(Style)

_TORCH_NAMES = {
    "biases": "bias",
    "scales": "weight",
    "rolling_mean": "running_mean",
    "rolling_variance": "running_var",
}


class Named(NamedTuple):
    """An array under another program's name: its layer, Darknet's name, and a writable view."""

    key: str
    layer: Layer
    name: str
    array: Array


def named_arrays(net: Network, style: Style) -> Iterator[Named]:
    """Every stored array with its name, in file order.

    Raises:
        ValueError: another style.
        UnsupportedError: the programs of that style have no such layer; it names the first.
    """
    if style not in STYLES:
        raise ValueError(f"expected a style ({', '.join(STYLES)}), got {style!r}")
    convolutions = 0
    for layer in net.layers:
        convolutions += layer.type == "convolutional"
        if not layer.shapes and not layer.inner:
            continue
        if style != "layers" and not layer.stored:
            raise _no_name(layer, style, "with weights of another layer")
        for name, array in layer.params.items() if layer.stored else ():
            yield Named(_NAMERS[style](layer, name, convolutions), layer, name, array)


def is_ignored(key: str) -> bool:
    """Whether a name stands for nothing that Darknet keeps: counters of batches, and heads' grids and anchors."""
    return key.endswith(("num_batches_tracked", ".anchors", ".anchor_vec", ".anchor_wh", ".grid", ".ng"))


def _plain(layer: Layer, name: str, _: int) -> str:
    return f"layers.{layer.index}.{name}"


def _ultralytics(layer: Layer, name: str, _: int) -> str:
    if layer.type != "convolutional":
        raise _no_name(layer, "ultralytics")
    return f"module_list.{layer.index}.{_convolution_part(layer, name, 'Conv2d', 'BatchNorm2d')}"


def _tianxiaomo(layer: Layer, name: str, convolutions: int) -> str:
    start = f"models.{layer.index}"
    if layer.type == "convolutional":
        return f"{start}.{_convolution_part(layer, name, f'conv{convolutions}', f'bn{convolutions}')}"
    if layer.type == "connected" and "scales" not in layer.params and layer.native is not None:
        inside = "" if layer.native.activation == lib.ACTIVATION_LINEAR else ".0"
        return f"{start}{inside}.{'weight' if name == 'weights' else 'bias'}"
    raise _no_name(layer, "tianxiaomo")


def _convolution_part(layer: Layer, name: str, convolution: str, batchnorm: str) -> str:
    if name == "weights":
        return f"{convolution}.weight"
    return f"{batchnorm if 'scales' in layer.params else convolution}.{_TORCH_NAMES[name]}"


_NAMERS: dict[Style, Callable[[Layer, str, int], str]] = {
    "layers": _plain,
    "ultralytics": _ultralytics,
    "tianxiaomo": _tianxiaomo,
}


def _no_name(layer: Layer, style: str, what: str = "") -> UnsupportedError:
    kind = f"[{layer.type}] {what}".strip()
    message = f"layer {layer.index} (line {layer.line}) is {kind}, for whose arrays style {style!r} has no name"
    return UnsupportedError(f"{message}; style 'layers' has one for all")
