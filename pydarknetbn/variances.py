"""Rolling variances that a file should not hold, and rolling arrays that nothing ever moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ._native import Array
from .layers import Layer

__all__ = ["MEAN", "VARIANCE", "denormal", "is_initial", "untrained", "warnings_of"]

MEAN, VARIANCE = "rolling_mean", "rolling_variance"
_NAMED = 5  # channels of an array


def warnings_of(layers: Iterable[Layer], file: str) -> Iterator[str]:
    """A sentence for each array of variances without a root in some convention, and for each with denormal ones.

    Results follow the chosen convention all the same.
    """
    for layer in layers:
        for name, array in layer.params.items():
            if not name.endswith(VARIANCE):
                continue
            where = f"{file}: layer {layer.index} [{layer.type}] (line {layer.line})"
            bad, tiny = np.flatnonzero(~(array >= 0) | np.isinf(array)), denormal(array)
            if bad.size:
                yield (
                    f"{where}: {_counted(array, name, bad)} negative, infinite or no numbers, {_places(array, bad)}: "
                    "only some conventions have a root of it; `check` tells what it changes"
                )
            if tiny.size:
                yield (
                    f"{where}: {_counted(array, name, tiny)} denormal, {_places(array, tiny)}: "
                    "programs that flush them take 0, and the epsilon alone decides what such a channel is multiplied by"
                )


def denormal(array: Array) -> NDArray[np.intp]:
    """Which values are above 0 and nearer to it than a normal float."""
    return np.flatnonzero((array > 0) & (array < np.finfo(np.float32).tiny))


def _counted(array: Array, name: str, found: NDArray[np.intp]) -> str:
    return f"{found.size:,} of {array.size:,} values of {name} are"


def _places(array: Array, found: NDArray[np.intp]) -> str:
    more = ", ".join(str(channel) for channel in found[1:_NAMED]) + (" …" if found.size > _NAMED else "")
    return f"the first {array[found[0]]:.3g} of channel {found[0]}" + (f" (then {more})" if more else "")


def is_initial(mean: Array, variance: Array) -> bool:
    """Whether rolling arrays are as they start: 0 and 0, or in other frameworks 0 and 1."""
    return not mean.any() and (not variance.any() or bool((variance == 1).all()))


def untrained(layers: Iterable[Layer]) -> Iterator[Layer]:
    """The layers with rolling arrays that are all as before any training."""
    for layer in layers:
        params = layer.params
        names = [name for name in params if name.endswith(VARIANCE)]
        if any(is_initial(params[name.replace(VARIANCE, MEAN)], params[name]) for name in names):
            yield layer
