"""Ways of other programs to resize a picture, in floats and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ... import image
from ..._native import Array

__all__ = ["DARKNETS", "KERNELS", "Kernel"]

Doubles = npt.NDArray[np.float64]
Resize = Callable[[Array, int, int], "Array | None"]
Rounding = Literal["none", "nearest", "fixed point"]

_NEAR_BYTE = 0.01
_FIXED = 2048  # one, in the numbers of OpenCV's bilinear kernel for bytes


class Kernel(NamedTuple):
    """A way to bring a picture (c, height, width) to a width and a height; None where it does not apply."""

    name: str
    resize: Resize
    in_bytes: bool = False


class _Taps(NamedTuple):
    """Of each position of a target the source's positions that it is made of, and their weights: (target, taps)."""

    at: npt.NDArray[np.intp]
    weights: Doubles

    def along(self, x: Doubles, axis: int) -> Doubles:
        """An array with that axis resampled."""
        shape = [1] * x.ndim
        shape[axis] = len(self.at)
        columns = zip(self.at.T, self.weights.T, strict=True)
        return np.asarray(sum(np.take(x, at, axis) * weights.reshape(shape) for at, weights in columns))


# --- one axis -------------------------------------------------------------------------------------------------------------------


def _corners(source: int, target: int) -> _Taps:
    return _between(np.arange(target) * ((source - 1) / max(1, target - 1)), source)


def _bilinear(source: int, target: int) -> _Taps:
    return _between((np.arange(target) + 0.5) * (source / target) - 0.5, source)


def _between(position: npt.NDArray[np.floating[Any]], source: int) -> _Taps:
    position = np.clip(position, 0, source - 1)
    low = np.floor(position).astype(np.intp)
    share = position - low
    return _Taps(np.stack([low, np.minimum(low + 1, source - 1)], 1), np.stack([1 - share, share], 1))


def _bicubic(source: int, target: int) -> _Taps:
    """Four neighbors with a = -0.75, as OpenCV and PyTorch have it."""
    position = (np.arange(target) + 0.5) * (source / target) - 0.5
    low = np.floor(position).astype(np.intp)
    at = low[:, None] + np.arange(-1, 3)
    distance = np.abs(position[:, None] - at)
    a = -0.75
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return _Taps(np.clip(at, 0, source - 1), np.where(distance <= 1, near, far))


def _nearest(source: int, target: int) -> _Taps:
    return _single(np.arange(target) * (1 / (target / source)), source)  # rounded as OpenCV does


def _nearest_in_float(source: int, target: int) -> _Taps:
    return _single(np.arange(target, dtype=np.float32) * (np.float32(source) / np.float32(target)), source)


def _nearest_of_middle(source: int, target: int) -> _Taps:
    return _single((np.arange(target) + 0.5) * (source / target), source)


def _single(position: npt.NDArray[np.floating[Any]], source: int) -> _Taps:
    at = np.minimum(np.floor(position).astype(np.intp), source - 1)
    return _Taps(at[:, None], np.ones((len(at), 1)))


def _enlarged(source: int, target: int) -> _Taps:
    """Each pixel as a square, with a ramp where a target pixel lies over two.

    Source: opencv modules/imgproc/src/resize.cpp, INTER_AREA where it enlarges.
    """
    low = np.floor(np.arange(target) * (source / target))
    share = np.arange(1, target + 1) - (low + 1) * (target / source)
    return _between(low + np.where(share <= 0, 0, share - np.floor(share)), source)


def _area(source: int, target: int, *, whole: bool) -> _Taps:
    """The share of each source pixel in a target pixel's square; whole: each pixel that it touches alike."""
    edges = np.arange(target + 1) * source / target
    low = np.floor(edges[:-1]).astype(np.intp)
    at = low[:, None] + np.arange(int(np.ceil(source / target)) + 1)
    share = np.clip(np.minimum(at + 1, edges[1:, None]) - np.maximum(at, edges[:-1, None]), 0, None)
    share = (share > 0).astype(np.float64) if whole else share
    return _Taps(np.minimum(at, source - 1), share / share.sum(1, keepdims=True))


# --- both axes ------------------------------------------------------------------------------------------------------------------


def _resample(make: Callable[[int, int], _Taps], picture: Array, w: int, h: int, *, rounding: Rounding) -> Array | None:
    columns, rows = make(picture.shape[2], w), make(picture.shape[1], h)
    if rounding == "none":
        return rows.along(columns.along(picture.astype(np.float64), 2), 1).astype(np.float32)
    levels = _levels(picture)
    if levels is None:
        return None
    if rounding == "fixed point":
        return _of_levels(_fixed_point(levels, columns, rows))
    return _of_levels(np.rint(rows.along(columns.along(levels, 2), 1)))


def _fixed_point(levels: Doubles, columns: _Taps, rows: _Taps) -> Doubles:
    """Two taps of 11 bits along each axis, cut to 16 bits before the second.

    Source: opencv modules/imgproc/src/resize.cpp HResizeLinear, VResizeLinear<uchar, int, short>.
    """
    wide = _Taps(columns.at, np.rint(columns.weights * _FIXED)).along(levels, 2).astype(np.int64) >> 4
    parts = (
        (np.rint(weights * _FIXED).astype(np.int64)[:, None] * np.take(wide, at, 1)) >> 16
        for at, weights in zip(rows.at.T, rows.weights.T, strict=True)
    )
    return np.asarray((sum(parts) + 2) >> 2, np.float64)


def _area_of_opencv(shrinks: Resize, enlarges: Resize, picture: Array, w: int, h: int) -> Array | None:
    """Area where both axes shrink, else a bilinear kernel with sharp steps."""
    return (shrinks if w <= picture.shape[2] and h <= picture.shape[1] else enlarges)(picture, w, h)


def _levels(picture: Array) -> Doubles | None:
    """The picture in 0 … 255; None where it was not made of bytes."""
    wide = picture.astype(np.float64) * 255
    levels = np.rint(wide)
    return levels if float(np.abs(wide - levels).max()) < _NEAR_BYTE else None


def _of_levels(levels: Doubles) -> Array:
    return np.asarray(np.clip(levels, 0, 255).astype(np.float32) / np.float32(255))


# --- Pillow ---------------------------------------------------------------------------------------------------------------------


def _pillow(filter_of: Image.Resampling, in_bytes: bool, picture: Array, w: int, h: int) -> Array | None:
    if not in_bytes:
        planes = [np.asarray(Image.fromarray(plane, "F").resize((w, h), filter_of)) for plane in np.ascontiguousarray(picture)]
        return np.stack(planes)
    levels = _levels(picture)
    if levels is None:
        return None
    planes = [np.asarray(Image.fromarray(plane).resize((w, h), filter_of)) for plane in levels.astype(np.uint8)]
    return _of_levels(np.stack(planes).astype(np.float64))


def _kernels() -> Iterator[Kernel]:
    floats, rounded, fixed = (partial(_resample, rounding=rounding) for rounding in ("none", "nearest", "fixed point"))
    whole, shares = partial(_area, whole=True), partial(_area, whole=False)
    yield Kernel("bilinear between half pixels, as in PyTorch's interpolate", partial(floats, _bilinear))
    yield Kernel("bilinear between half pixels in bytes, OpenCV's INTER_LINEAR", partial(fixed, _bilinear), True)
    yield Kernel("bilinear between half pixels, rounded to bytes", partial(rounded, _bilinear), True)
    yield Kernel("bicubic, as in PyTorch's interpolate", partial(floats, _bicubic))
    yield Kernel("bicubic in bytes, OpenCV's INTER_CUBIC", partial(rounded, _bicubic), True)
    yield Kernel(
        "area in bytes, OpenCV's INTER_AREA", partial(_area_of_opencv, partial(rounded, shares), partial(fixed, _enlarged)), True
    )
    yield Kernel(
        "area in floats, OpenCV's INTER_AREA", partial(_area_of_opencv, partial(floats, shares), partial(floats, _enlarged))
    )
    yield Kernel("area, PyTorch's", partial(floats, whole))
    yield Kernel("nearest from the upper left, OpenCV's INTER_NEAREST", partial(floats, _nearest))
    yield Kernel("nearest from the upper left, PyTorch's nearest", partial(floats, _nearest_in_float))
    yield Kernel("nearest from the middle, Pillow's NEAREST", partial(floats, _nearest_of_middle))
    for name in ("BILINEAR", "BICUBIC", "LANCZOS", "BOX", "HAMMING"):
        of = Image.Resampling[name]
        yield Kernel(f"Pillow's {name} with antialiasing in bytes", partial(_pillow, of, True), True)
        yield Kernel(f"Pillow's {name} with antialiasing in floats, as torchvision's on tensors", partial(_pillow, of, False))
    yield Kernel("bilinear between corners, also in the last row", partial(floats, _corners))
    yield Kernel("bilinear between corners, rounded to bytes", partial(rounded, _corners), True)


DARKNETS = Kernel("Darknet's", image.resize)
KERNELS = tuple(_kernels())
