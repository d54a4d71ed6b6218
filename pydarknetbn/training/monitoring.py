"""How the batchnorms of a network fare in training: of how many values each statistic is, and batch against rolling variance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .. import _native
from .._native import CData, ffi
from ..layers import Layer

__all__ = ["LayerStatistics", "Monitor", "batch_statistics"]

FEW_VALUES, FAR_APART = 16, 10.0
_FILLED = 0.9  # of what the rolling arrays would hold after an endless training on equal batches


class LayerStatistics(NamedTuple):
    """Of one batchnorm after a training forward.

    Args:
        layer: its number.
        name: within a recurrent layer, else "".
        n: values that each mean and variance is of.
        least, median, most: of batch variance over rolling variance, channel by channel; of those whose batch variance is not 0.
        silent: channels whose batch variance is 0.
    """

    layer: int
    name: str
    n: int
    least: float
    median: float
    most: float
    silent: int

    @property
    def where(self) -> str:
        """Such as "layer 3"."""
        return f"layer {self.layer}" + (f" {self.name}" if self.name else "")


def batch_statistics(layers: Sequence[Layer]) -> tuple[LayerStatistics, ...]:
    """Of each batchnorm, after a training forward."""
    return tuple(_statistics(layer.index, name, native) for layer in layers for name, native in _batchnorms(layer))


def _batchnorms(layer: Layer) -> Iterator[tuple[str, CData]]:
    for name, native in (("", layer.native), *((name, inner.native) for name, inner in layer.inner.items())):
        if native is None:
            continue
        batchnorm = native if layer.type == "batchnorm" else native.batchnorm
        if batchnorm != ffi.NULL and batchnorm.variance != ffi.NULL:  # noqa: PLR1714 NULL has no variance
            yield name, batchnorm


def _statistics(index: int, name: str, native: CData) -> LayerStatistics:
    batch, rolling = (_native.view(array, (native.c,)).astype(np.float64) for array in (native.variance, native.rolling_variance))
    kept, added = native.batchnorm_rule.rolling_keep, native.batchnorm_rule.rolling_add
    filled = added / (1 - kept) if kept < 1 else 1.0  # a sum of weights, which need not be 1
    loud = batch != 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = batch[loud] / (rolling[loud] / filled) if loud.any() else np.ones(1)
    n, silent = native.exchanged or native.x_batch * native.h * native.w, int((~loud).sum())
    return LayerStatistics(index, name, n, float(ratio.min()), float(np.median(ratio)), float(ratio.max()), silent)


def _forwards_to_fill(layers: Sequence[Layer]) -> int:
    """Training forwards after which rolling arrays that began with zeros tell what the batches are like."""
    keeps = [native.batchnorm_rule.rolling_keep for layer in layers for _, native in _batchnorms(layer)]
    return max((math.ceil(math.log(1 - _FILLED) / math.log(keep)) for keep in keeps if 0 < keep < 1), default=0)


@dataclass(slots=True)
class Monitor:
    """Looks at the batchnorms after each step, and has a sentence for what is doubtful, once.

    Args:
        layers: of the network.
        forwards: training forwards that its rolling arrays have seen; None: enough, they come from a training.
        statistics: of the last step.
    """

    layers: Sequence[Layer]
    forwards: int | None
    statistics: tuple[LayerStatistics, ...] = ()
    told: set[str] = field(default_factory=set)

    def look(self, loss: float, forwards: int) -> Iterator[str]:
        """What is said after a step.

        Args:
            loss: of the step.
            forwards: that it had.
        """
        self.statistics = batch_statistics(self.layers)
        if self.forwards is not None:
            self.forwards += forwards
        if "n" not in self.told and (few := [each for each in self.statistics if each.n < FEW_VALUES]):
            self.told.add("n")
            yield self._few(few)
        filled = self.forwards is None or self.forwards >= _forwards_to_fill(self.layers)
        if "ratio" not in self.told and filled and (apart := [each for each in self.statistics if _is_apart(each)]):
            self.told.add("ratio")
            yield self._apart(apart)
        if "loss" not in self.told and not math.isfinite(loss):
            self.told.add("loss")
            yield f"the loss is {loss}; parameters may hold such values from now on: take a smaller learning_rate or a burn_in"

    def _few(self, few: list[LayerStatistics]) -> str:
        worst = min(few, key=lambda each: each.n)
        others = f" and {len(few) - 1} more" if len(few) > 1 else ""
        advice = "more rows in a subdivision make them steadier"
        return f"mean and variance of {worst.where}{others} are of n = {worst.n} values, fewer than {FEW_VALUES}: {advice}"

    def _apart(self, apart: list[LayerStatistics]) -> str:
        worst = max(apart, key=lambda each: max(each.most, 1 / each.least if each.least else math.inf))
        others = f" and {len(apart) - 1} more" if len(apart) > 1 else ""
        ratios = f"least {worst.least:.3g}, median {worst.median:.3g}, most {worst.most:.3g}"
        advice = "an inference, which takes the rolling one, gives other values than the training"
        return f"the batch variance of {worst.where}{others} is far from the rolling variance (their ratio: {ratios}): {advice}"


def _is_apart(each: LayerStatistics) -> bool:
    return each.most > FAR_APART or each.least < 1 / FAR_APART
