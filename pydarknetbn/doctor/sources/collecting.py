"""Values on their way into a trace: which of them count, their names, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import StateError
from ..trace import Tensor, Trace

__all__ = ["Collector", "Floats", "as_array"]

Floats = npt.NDArray[np.floating[Any]]


def as_array(value: Any) -> npt.NDArray[Any] | None:
    """A NumPy array of an array or tensor, bfloat16 as float32; None of anything else."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor of PyTorch
        value = value.detach().cpu()
        array: npt.NDArray[Any] = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
        return array
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return None


class Collector:
    """Takes up floats of one batch, each with a name of its own.

    Args:
        batch: images; values of another first axis are left out.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.tensors: list[Tensor] = []
        self._count: dict[str, int] = {}

    def wants(self, shape: tuple[int, ...]) -> bool:
        """Whether a value of that shape may be one of the network's."""
        return len(shape) > 1 and shape[0] == self.batch and 0 not in shape

    def add(self, name: str, array: npt.NDArray[Any], op: str = "", *, copy: bool = True) -> str:
        """Takes it up where it counts, and gives the name that it got; "" where it does not."""
        if array.dtype.kind != "f" or not self.wants(array.shape):
            return ""
        count = self._count[name] = self._count.get(name, 0) + 1
        unique = name if count == 1 else f"{name} ({count})"
        self.tensors.append(Tensor(unique, np.array(array) if copy else array, op))
        return unique

    def trace(self, source: str, framework: str, *, given: Floats | None, outputs: tuple[str, ...] = ()) -> Trace:
        """What was taken up.

        Raises:
            StateError: nothing was.
        """
        if not self.tensors:
            images = "1 image" if self.batch == 1 else f"{self.batch} images"
            raise StateError(f"{source}: shows no array of floats whose first axis is the batch ({images})")
        return Trace(source, framework, tuple(self.tensors), given, outputs)
