"""Rolling variances that a file should not hold: below 0, infinite or no numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .layers import Layer

__all__ = ["warnings_of"]


def warnings_of(layers: Iterable[Layer], file: str) -> Iterator[str]:
    """A sentence for each array of variances without a root in some convention; results follow the chosen one all the same."""
    for layer in layers:
        for name, array in layer.params.items():
            if not name.endswith("rolling_variance"):
                continue
            bad = np.flatnonzero(~(array >= 0) | np.isinf(array))
            if bad.size:
                place = f"layer {layer.index} [{layer.type}] (line {layer.line})"
                yield (
                    f"{file}: {place}: {bad.size:,} of {array.size:,} values of {name} "
                    f"are negative, infinite or no numbers, the first {array[bad[0]]:.3g} of channel {bad[0]}: "
                    "only some conventions have a root of it; `check` tells what it changes"
                )
