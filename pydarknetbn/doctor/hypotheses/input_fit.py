"""Ways of ports to bring a picture to the network's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..._native import Array
from .resampling import Kernel

__all__ = ["FITS", "Fit"]

_FILLS: Mapping[str, float] = MappingProxyType({"0.5": 0.5, "114/255": 114 / 255, "128/255": 128 / 255, "0": 0.0, "1": 1.0})


class Fit(NamedTuple):
    """A way to bring a picture (c, height, width) to a width and a height with a kernel; None where it does not apply."""

    name: str
    made: Callable[[Array, int, int, Kernel], Array | None]


def _stretched(picture: Array, w: int, h: int, kernel: Kernel) -> Array | None:
    return kernel.resize(picture, w, h)


def _letterboxed(fill: float, *, corner: bool, rounded: bool) -> Callable[[Array, int, int, Kernel], Array | None]:
    def made(picture: Array, w: int, h: int, kernel: Kernel) -> Array | None:
        c, height, width = picture.shape
        inner_w, inner_h = (w, height * w // width) if w * height < h * width else (width * h // height, h)
        if rounded:
            share = min(w / width, h / height)
            exact = (round(width * share), round(height * share))
            if exact == (inner_w, inner_h):
                return None
            inner_w, inner_h = exact
        if min(inner_w, inner_h) < 1:
            return None
        inner = kernel.resize(picture, inner_w, inner_h)
        if inner is None:
            return None
        boxed = np.full((c, h, w), fill, np.float32)
        left, top = (0, 0) if corner else ((w - inner_w) // 2, (h - inner_h) // 2)
        boxed[:, top : top + inner_h, left : left + inner_w] = inner
        return boxed

    return made


def _cropped_after(picture: Array, w: int, h: int, kernel: Kernel) -> Array | None:
    """The smaller side resized, then the middle cut out."""
    _, height, width = picture.shape
    covers = (width * h // height, h) if width * h >= w * height else (w, height * w // width)
    wide = kernel.resize(picture, max(w, covers[0]), max(h, covers[1]))
    return None if wide is None else _middle(wide, w, h)


def _cropped_before(picture: Array, w: int, h: int, kernel: Kernel) -> Array | None:
    """The middle cut out in the network's proportions, then resized."""
    _, height, width = picture.shape
    inner = (height * w // h, height) if width * h >= w * height else (width, width * h // w)
    return kernel.resize(np.ascontiguousarray(_middle(picture, max(1, inner[0]), max(1, inner[1]))), w, h)


def _middle(picture: Array, w: int, h: int) -> Array:
    top, left = (picture.shape[1] - h) // 2, (picture.shape[2] - w) // 2
    return picture[:, top : top + h, left : left + w]


def _letterboxes() -> Iterator[Fit]:
    for name, fill in _FILLS.items():
        yield Fit(f"letterboxed in a field of {name}", _letterboxed(fill, corner=False, rounded=False))
        yield Fit(f"letterboxed in a field of {name}, its sides rounded", _letterboxed(fill, corner=False, rounded=True))
        yield Fit(f"letterboxed into the upper left corner of a field of {name}", _letterboxed(fill, corner=True, rounded=False))


FITS = (
    Fit("stretched", _stretched),
    *_letterboxes(),
    Fit("resized by its shorter side and cropped to the middle", _cropped_after),
    Fit("cropped to the middle and resized", _cropped_before),
)
