"""What a network's losses say of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from .._native import CData
from ..cfg import Cfg
from ..dialect import LossRule
from ..errors import UnsupportedError
from ..layers import Layer

__all__ = ["LayerLoss", "Loss", "layers_with_loss", "network_cost", "read_losses"]

_UNTAUGHT = ("contrastive",)
_REJECTING = ("badlabels_rejection_percentage", "num_sigmas_reject_badlabels", "equidistant_point")
_HEAD = ("count", "iou", "class_score", "objectness", "any_objectness")
_TOLD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "yolo batch": (*_HEAD, "recall", "recall75"),
        "yolo image": ("count", "iou", "total_loss", "class_loss", "iou_loss"),  # each image's sums of scores are thrown away
        "Gaussian_yolo": (*_HEAD, "recall", "recall75", "total_loss", "class_loss", "iou_loss", "uc_loss"),
        "region": (*_HEAD, "recall"),
        "detection": (*_HEAD, "any_class_score"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoss:
    """The loss of one layer; None is what the fork's program does not compute for it. Without any box means are NaN, as there.

    Args:
        index, type: of the layer.
        cost: of the batch.
        count: boxes that an anchor of this head was found for.
        iou: mean overlap of their predictions with the truth ("Avg IOU").
        class_score: mean score of their classes ("Class", "Pos Cat").
        any_class_score: of all classes in their cells ("All Cat").
        objectness: mean of their anchors ("Obj", "Pos Obj").
        any_objectness: of all anchors ("No Obj", "Any Obj").
        recall, recall75: share of them whose overlap is over .5 (".5R", "Avg Recall") and .75 (".75R").
        class_loss, iou_loss, uc_loss, total_loss: squares of the deltas of scores, boxes, uncertainties and all, of one image.
    """

    index: int
    type: str
    cost: float
    count: int | None = None
    iou: float | None = None
    class_score: float | None = None
    any_class_score: float | None = None
    objectness: float | None = None
    any_objectness: float | None = None
    recall: float | None = None
    recall75: float | None = None
    class_loss: float | None = None
    iou_loss: float | None = None
    uc_loss: float | None = None
    total_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a batch.

    Args:
        value: the fork's cost of the network: the mean over its layers with a cost, a float32.
        layers: what each of these says.
    """

    value: float
    layers: tuple[LayerLoss, ...]

    def __float__(self) -> float:
        return self.value


def layers_with_loss(layers: Sequence[Layer], cfg: Cfg) -> list[Layer]:
    """The layers that compare with a truth.

    Raises:
        UnsupportedError: there is none, or one whose loss is not computed.
    """
    for layer in layers:
        if layer.type in _UNTAUGHT:
            raise UnsupportedError(f"{cfg.name}:{layer.line}: layer {layer.index}: no loss for [{layer.type}]")
    for key in _REJECTING:
        if cfg.net.number(key, 0.0):
            raise UnsupportedError(str(cfg.net.error(f"{key}= of {cfg.net.name} rejects deltas, which is not computed", key)))
    found = [layer for layer in layers if layer.truth is not None]
    if not found:
        raise UnsupportedError(f"{cfg.name}: no layer has a loss, such as [yolo], [softmax] or [cost]")
    return found


def network_cost(layers: Sequence[Layer]) -> float:
    """The mean of the costs of the last forward: a sum of float32 in the order of the layers, divided by their number."""
    costs = [np.float32(native.cost) for _, native in _with_cost(layers)]
    total = np.float32(0)
    for cost in costs:
        total += cost
    return float(total / np.float32(len(costs)))


def read_losses(layers: Sequence[Layer], rule: LossRule) -> Loss:
    """What the layers' losses of the last forward with a truth say."""
    return Loss(network_cost(layers), tuple(_layer_loss(layer, native, rule) for layer, native in _with_cost(layers)))


def _with_cost(layers: Sequence[Layer]) -> list[tuple[Layer, CData]]:
    natives = [(layer, layer.trainer if layer.native is None else layer.native) for layer in layers]
    return [(layer, native) for layer, native in natives if native is not None and native.has_cost]


def _layer_loss(layer: Layer, native: CData, rule: LossRule) -> LayerLoss:
    names = _TOLD.get(f"yolo {rule.score_sums}" if layer.type == "yolo" else layer.type, ())
    if layer.type == "yolo" and not native.loss.details:
        names = tuple(name for name in names if name not in ("class_loss", "iou_loss"))
    told = {name: getattr(native.statistics, name) for name in names}
    return LayerLoss(index=layer.index, type=layer.type, cost=native.cost, **told)
