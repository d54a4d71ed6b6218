"""What ports do otherwise in a maxpool and an upsample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ..arithmetic import Padding, pad
from ..situation import Hypothesis, Place, Trial, fit

__all__ = ["maxpool", "upsample"]

Doubles = npt.NDArray[np.float64]
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


# --- maxpool -------------------------------------------------------------------------------------------------------------------


def maxpool(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """Zeros around the image, or the border on another side."""
    native = place.layer.native
    if native is None or native.depth or native.average:
        return
    size, total = int(native.size), int(native.pad)
    own = (total // 2, total - total // 2)
    yield _hypothesis("maxpool.padding", _ZERO_WORDS, own, own, 0.0)
    for before in range(size + 1):
        for after in range(size + 1):
            if (before, after) != own:
                words = (
                    f"the maxpool pads {before} before and {after} after each row and column; Darknet pads {own[0]} and {own[1]}"
                )
                yield _hypothesis("maxpool.side", words, (before, after), own, -math.inf)
                yield _hypothesis("maxpool.side", f"{words}, and pads zeros, where Darknet's lose", (before, after), own, 0.0)
    yield from _average(own)


_ZERO_WORDS = "the maxpool pads zeros, which win over negative values; Darknet's padding is the lowest number"


def _hypothesis(kind: str, words: str, sides: tuple[int, int], own: tuple[int, int], value: float) -> Hypothesis:
    padding = Padding(sides[0], sides[1], sides[0], sides[1])

    def run(place: Place) -> Array | None:
        return _pooled(place, padding, value)

    return Hypothesis(kind, words, {"maxpool": run}, _pool_fix(own), {"before": sides[0], "after": sides[1], "value": value})


def _pool_fix(own: tuple[int, int]) -> Mapping[str, str]:
    before, after = own
    return {
        "": f"pad {before} before and {after} after with the lowest float",
        "torch": f"F.pad(x, ({before}, {after}, {before}, {after}), value=float('-inf')) before MaxPool2d(padding=0)",
        "keras": "MaxPooling2D(padding='same'), which pads the lowest number",
        "onnx": f"MaxPool with pads = [{before}, {before}, {after}, {after}] and no Pad node before it",
    }


def _windows(place: Place, padding: Padding, value: float) -> Array | None:
    """(batch, c, h, w, size, size) of the place's maxpool; None where they are too few."""
    native = place.layer.native
    assert native is not None
    wide = pad(place.inputs[0], padding, value)
    size = int(native.size)
    if min(wide.shape[2:]) < size:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), axis=(2, 3))
    made: Array = windows[:, :, :: int(native.stride_y), :: int(native.stride_x)]
    h, w = place.step.shape[1:]
    return made[:, :, :h, :w] if made.shape[2] >= h and made.shape[3] >= w else None


def _pooled(place: Place, padding: Padding, value: float) -> Array | None:
    windows = _windows(place, padding, value)
    return None if windows is None else np.ascontiguousarray(windows.max(axis=(4, 5)))


def _average(own: tuple[int, int]) -> Iterator[Hypothesis]:
    def run(place: Place) -> Array | None:
        windows = _windows(place, Padding(own[0], own[1], own[0], own[1]), 0.0)
        return None if windows is None else windows.mean(axis=(4, 5), dtype=np.float64).astype(np.float32)

    fix = {"": "take the largest value", "torch": "MaxPool2d", "keras": "MaxPooling2D", "onnx": "MaxPool"}
    yield Hypothesis(
        "maxpool.kind", "the pool takes the mean of each window; Darknet's takes the largest value", {"maxpool": run}, fix
    )


# --- upsample ------------------------------------------------------------------------------------------------------------------


def upsample(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Values between the pixels, other neighbors, or another factor."""
    native = place.layer.native
    if native is None or native.reverse:
        return
    fix = {
        "": "repeat each pixel (nearest)",
        "torch": f"Upsample(scale_factor={native.stride_x}, mode='nearest')",
        "keras": f"UpSampling2D({native.stride_x}, interpolation='nearest')",
        "onnx": "Resize with mode=nearest, coordinate_transformation_mode=asymmetric, nearest_mode=floor",
    }
    for words, weights in _KERNELS.items():

        def run(place: Place, weights: _Weights = weights) -> Array:
            return _resampled(place, weights)

        told = f"the upsample is {words}; Darknet's repeats each pixel"
        yield Hypothesis("upsample.mode", told, {"upsample": run}, fix, {"mode": words})
    yield from _scaled(place, trial, fix)


def _scaled(place: Place, trial: Trial, fix: Mapping[str, str]) -> Iterator[Hypothesis]:
    assert place.layer.native is not None
    right = float(place.layer.native.scale)

    def make(scale: float) -> Hypothesis:
        def run(place: Place) -> Array:
            return np.asarray(place.right * np.float32(scale / right))

        words = f"the upsample multiplies values by {scale:g}; Darknet's by {right:g}"
        return Hypothesis("upsample.scale", words, {"upsample": run}, fix, {"scale": scale}, 0 if scale in _SCALES else 1)

    for scale in _SCALES:
        if scale != right:
            yield make(scale)
    yield fit(make, trial, _SCALES)


_Weights = str


def _matrix(length: int, stride: int, how: str) -> Doubles:
    """(length * stride, length): what each new row or column takes of the old ones."""
    count = length * stride
    at = np.arange(count)
    if how == "bilinear, corners aligned":
        source = at * (length - 1) / max(1, count - 1)
    elif how == "bilinear from the first pixel":
        source = at / stride
    elif how == "nearest, rounded":
        source = np.floor(at / stride + 0.5)
    else:
        source = (at + 0.5) / stride - 0.5
    if how == "bicubic":
        return _cubic(source, length)
    source = np.clip(source, 0, length - 1)
    low = np.floor(source).astype(int)
    share = source - low
    made = np.zeros((count, length))
    made[at, low] += 1 - share
    made[at, np.minimum(low + 1, length - 1)] += share
    return made


def _cubic(source: Doubles, length: int) -> Doubles:
    """Of the four neighbors, with the sharpness of PyTorch and OpenCV."""
    sharpness = -0.75
    low = np.floor(source).astype(int)
    made = np.zeros((len(source), length))
    for offset in range(-1, 3):
        d = np.abs(source - (low + offset))
        near = (sharpness + 2) * d**3 - (sharpness + 3) * d**2 + 1
        far = sharpness * (d**3 - 5 * d**2 + 8 * d - 4)
        np.add.at(made, (np.arange(len(source)), np.clip(low + offset, 0, length - 1)), np.where(d <= 1, near, far))
    return made


_KERNELS = {
    "bilinear": "bilinear",
    "bilinear with corners aligned": "bilinear, corners aligned",
    "bilinear from the first pixel": "bilinear from the first pixel",
    "bicubic": "bicubic",
    "nearest with rounding to the next pixel": "nearest, rounded",
}


def _resampled(place: Place, how: str) -> Array:
    native = place.layer.native
    assert native is not None
    stride = int(native.stride_x)
    x = place.inputs[0]
    rows, columns = _matrix(x.shape[2], stride, how), _matrix(x.shape[3], stride, how)
    made = np.einsum("ih,bchw,jw->bcij", rows, x.astype(np.float64), columns, optimize=True) * float(native.scale)
    return np.ascontiguousarray(made, np.float32)
