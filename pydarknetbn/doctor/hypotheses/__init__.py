"""What ports of Darknet's networks do otherwise, by the kind of step where it shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..situation import Generator
from .batchnorm import batchnorm, shifted

__all__ = ["GENERATORS"]

GENERATORS: Mapping[str, Generator] = MappingProxyType({"batchnorm": batchnorm, "biases": shifted})
"""Kind of a step -> its hypotheses. "input" is the network's input, as a step of its own."""
