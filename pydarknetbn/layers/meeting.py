"""Why layers of unequal size do not meet, and which sizes of the input let them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .base import Layer

__all__ = ["sizes_that_meet"]


def sizes_that_meet(layers: Sequence[Layer], sources: Sequence[Layer]) -> str:
    """The nearest widths and heights at which the sources would be equal, as the end of a sentence; "" where none is known.

    Layers that differ by a factor never meet. Those that differ by a pixel were halved from an odd size and doubled again:
    they meet where the input is a multiple of all the halving.
    """
    image = layers[0].in_shape
    told = []
    for axis, name in ((2, "width"), (1, "height")):
        found = [source.out_shape[axis] for source in sources]
        if max(found) == min(found):
            continue
        smallest = min(layer.out_shape[axis] for layer in layers if not layer.flat)
        step = 1 << math.ceil(math.log2(image[axis] / smallest))
        if 2 * (max(found) - min(found)) >= max(found) or image[axis] % step == 0:
            return ""
        below = image[axis] // step * step
        near = " or ".join(str(size) for size in (below, below + step) if size)
        told.append(f"{name} {near} works, a multiple of {step}")
    return "; " + ", ".join(told) if told else ""
