"""What ports of Darknet's networks do otherwise, by the kind of step where it shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..situation import Generator, several
from .activation import activation
from .batchnorm import batchnorm, shifted
from .convolution import convolution
from .heads import boxes, yolo
from .input import given
from .joining import route, shortcut
from .pooling import maxpool, upsample
from .rearranging import dropout, reorg

__all__ = ["GENERATORS"]

GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        "activation": activation,
        "batchnorm": batchnorm,
        "biases": shifted,
        "boxes": boxes,
        "convolution": several(convolution, shifted),
        "dropout": dropout,
        "input": given,
        "maxpool": maxpool,
        "reorg": reorg,
        "reorg3d": reorg,
        "route": route,
        "shortcut": shortcut,
        "upsample": upsample,
        "yolo": yolo,
    }
)
"""Kind of a step -> its hypotheses. "input" is the network's input, as a step of its own."""
