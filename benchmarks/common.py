"""What all suites share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], object]
Cases = Iterator[tuple[str, float, Call]]
"""Name, work (multiplications and additions; 0: only the time counts), what is timed."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a contender measures.

    Args:
        threads: how many it may use.
        seconds: at least that long for each case.
        clock: "wall", or "cpu": the processor's time, where others compute too.
        quick: leave out what takes long.
        folder: where the prepared networks lie, see `networks.prepare`.
        original: folder of a built Darknet; empty where there is none.
    """

    threads: int
    seconds: float
    clock: str
    quick: bool
    folder: str
    original: str = ""

    def to_json(self) -> str:
        """For the command line of a worker."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def prepared(self) -> Path:
        """The folder, as a path."""
        return Path(self.folder)


def random(*shape: int) -> Any:
    """Seeded float32 of mean 0 and variance 1."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class LeftOut(Exception):  # noqa: N818
    """Why a contender is left out, in words; its process ends with STATUS."""

    STATUS = 3
