"""What another program computed on its way through a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Tensor", "Trace"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the other side.

    Args:
        name: how the other side calls it.
        array: a copy, of floats, in the other side's own layout.
        op: what made it, such as "Conv" or "leaky_relu"; "" where unknown.
    """

    name: str
    array: npt.NDArray[np.floating[Any]] = field(repr=False)
    op: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """The other side's values, in the order in which they were computed.

    Args:
        source: what computed them, such as "port.onnx in onnxruntime 1.27.0".
        framework: "onnx", "torch", "darknet", or "arrays" where unknown; fixes are told in its words.
        tensors: in order; no two have the same name.
        input: what the other side was given, in its own layout; None where unknown.
        outputs: names of those that the other side calls its outputs.
    """

    source: str
    framework: str
    tensors: tuple[Tensor, ...]
    input: npt.NDArray[np.floating[Any]] | None = field(default=None, repr=False)
    outputs: tuple[str, ...] = ()
