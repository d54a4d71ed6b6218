"""The units of a calibration: batches by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from .._native import Array
from ..errors import ShapeError

__all__ = ["Batches", "Units"]

Batches: TypeAlias = "Sequence[Array] | Callable[[int], Array | None] | Iterable[Array]"


@dataclass(frozen=True, slots=True)
class Units:
    """Batches, however they are given.

    Args:
        batches: see `calibrate`.

    Raises:
        ShapeError: it is one array.
    """

    batches: Any

    def __post_init__(self) -> None:
        if isinstance(self.batches, np.ndarray):
            raise ShapeError(f"expected batches, such as [x], got one array of shape {self.batches.shape}")

    @property
    def count(self) -> int:
        """How many there are; 0: nobody knows."""
        return len(self.batches) if hasattr(self.batches, "__len__") else 0

    @property
    def once(self) -> bool:
        """Whether they can be walked through only once."""
        return isinstance(self.batches, Iterator)

    def reader(self) -> Callable[[int], Any]:
        """A function that gives the batch of a number, None behind the last; asked for numbers that grow."""
        if callable(self.batches):
            return self.batches  # type: ignore[no-any-return]
        if hasattr(self.batches, "__len__") and hasattr(self.batches, "__getitem__"):
            return lambda number: self.batches[number] if number < len(self.batches) else None
        left, done = iter(self.batches), 0

        def read(number: int) -> Any:
            nonlocal done
            found = next(islice(left, number - done, None), None)
            done = number + 1
            return found

        return read
