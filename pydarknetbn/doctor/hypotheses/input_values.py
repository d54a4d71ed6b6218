"""An input whose values, channels or axes stand otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place, Trial
from .fitting import as_well, recover, short

__all__ = [
    "AS_THEY_ARE",
    "CHANNELS_FIX",
    "NORMAL_FIX",
    "SCALE_FIX",
    "VALUES",
    "Values",
    "channels",
    "fitted_normalization",
    "fitted_scale",
    "layouts",
    "normalizations",
    "scales",
    "seen",
]

SCALE_FIX: Mapping[str, str] = MappingProxyType(
    {
        "torch": "x.float() / 255, once (transforms.ToTensor() does it for bytes)",
        "keras": "Rescaling(1 / 255), once",
        "": "divide the bytes by 255, once: Darknet's pictures are 0 to 1",
    }
)
NORMAL_FIX: Mapping[str, str] = MappingProxyType(
    {
        "torch": "leave transforms.Normalize out: Darknet's pictures are 0 to 1",
        "keras": "Rescaling(1 / 255) instead of preprocess_input: Darknet's pictures are 0 to 1",
        "": "take no mean off and divide by no deviation: Darknet's pictures are 0 to 1",
    }
)
CHANNELS_FIX: Mapping[str, str] = MappingProxyType(
    {"": "RGB, as Darknet reads pictures: frame[:, :, ::-1] or cv2.cvtColor(frame, cv2.COLOR_BGR2RGB) of one that OpenCV read"}
)
_LAYOUT_FIX: Mapping[str, str] = MappingProxyType(
    {
        "torch": "x.permute(0, 3, 1, 2), which moves the values, instead of view or reshape",
        "keras": "x.transpose(0, 2, 3, 1), which moves the values, instead of reshape",
        "": "transpose the axes instead of reading the floats in another shape: Darknet's are (c, h, w)",
    }
)
_SCALES: Mapping[float, str] = MappingProxyType(
    {255.0: "it is 0 to 255", 1 / 255: "it is divided by 255 twice", 255 / 256: "the bytes are divided by 256"}
)
_GRID = tuple(np.geomspace(0.001, 1000, 13))


class _Normal(NamedTuple):
    """(x - mean) / deviation of each channel, in the order of RGB."""

    name: str
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    @property
    def uniform(self) -> bool:
        """All channels have the same numbers."""
        return len(set(self.mean)) == len(set(self.deviation)) == 1

    def applied(self, x: Array) -> Array:
        """To (batch, 3, h, w); in double."""
        mean, deviation = (np.array(numbers)[:, None, None] for numbers in (self.mean, self.deviation))
        return np.asarray((x - mean) / deviation)

    def turned(self) -> _Normal:
        """With the numbers in the order of BGR."""
        return _Normal(f"{self.name} in the order of BGR", self.mean[::-1], self.deviation[::-1])


_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CAFFE = (123.68 / 255, 116.779 / 255, 103.939 / 255)
_NORMALS = (
    _Normal("ImageNet's mean and deviation", *_IMAGENET),
    _Normal("a mean and deviation of 0.5, to -1 to 1", (0.5,) * 3, (0.5,) * 3),
    _Normal("CLIP's mean and deviation", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    _Normal("Caffe's mean of ImageNet in 0 to 255", _CAFFE, (1 / 255,) * 3),
    _Normal("ImageNet's mean alone", _IMAGENET[0], (1.0,) * 3),
    _Normal("a mean of 128 in 0 to 255", (128 / 255,) * 3, (1 / 255,) * 3),
    _Normal("a mean of 127.5 and a deviation of 128 in 0 to 255", (0.5,) * 3, (128 / 255,) * 3),
)


class Values(NamedTuple):
    """A change of the values of (batch, 3, h, w), by kind and in words."""

    kind: str
    words: str
    change: Callable[[Array], Array]


AS_THEY_ARE = Values("", "", np.asarray)


def _values() -> Iterator[Values]:
    yield AS_THEY_ARE
    for factor in _SCALES:
        yield Values("input.scale", f"multiplied by {factor:.6g}", partial(np.multiply, np.float64(factor)))
    for normal in _NORMALS:
        for each in (normal,) if normal.uniform else (normal, normal.turned()):
            yield Values("input.normalization", f"normalized with {each.name}", each.applied)


VALUES = tuple(_values())


def seen(place: Place) -> Array | None:
    """What the other side was given, where it shows it in our shape."""
    theirs = place.theirs
    return theirs if theirs is not None and theirs.shape == place.inputs[0].shape else None


def _pointwise(
    kind: str, words: str, fix: Mapping[str, str], change: Callable[[Array], Array | None], **values: float | str
) -> Hypothesis:
    def run(place: Place) -> Array | None:
        made = change(place.inputs[0])
        return None if made is None else np.ascontiguousarray(made, np.float32)

    return Hypothesis(kind, words, {"input": run}, fix, values)


# --- scale ----------------------------------------------------------------------------------------------------------------------


def scales(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """By 255, by 255 twice, by 256."""
    yield from (_scaled(factor, told) for factor, told in _SCALES.items())


def _scaled(factor: float, told: str) -> Hypothesis:
    words = f"the input is {factor:.6g} times Darknet's: {told}"
    return _pointwise("input.scale", words, SCALE_FIX, lambda x: (x * np.float64(factor)).astype(np.float32), scale=factor)


def fitted_scale(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """By any factor."""

    def make(factor: float) -> Hypothesis:
        return _scaled(factor, "it is scaled otherwise than bytes divided by 255")

    theirs, x = seen(place), place.inputs[0].astype(np.float64)
    if theirs is None:
        factor = recover(make, trial, _GRID)
    else:
        factor = float((x * theirs).sum() / max(float(np.square(x).sum()), float(np.finfo(np.float32).tiny)))
    written = make(float(f"{factor:.2g}"))
    fitted = written if as_well(trial(written), trial(make(factor))) else make(factor)
    yield Hypothesis(fitted.kind, fitted.words, fitted.runs, fitted.fix, fitted.values, parameters=1)


# --- mean and deviation ---------------------------------------------------------------------------------------------------------


def normalizations(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Those that are known, on RGB, on BGR with each channel's own numbers, and on BGR with those of RGB."""
    if place.inputs[0].shape[1] == 3:
        for normal in _NORMALS:
            for swapped, told in ((False, ""), (True, " and in BGR")):
                orders = (False, True) if swapped and not normal.uniform else (False,)
                for misplaced in orders:
                    yield _normalized(normal, swapped, misplaced, told)
    words = "the input has its own mean taken off and is divided by its own deviation, Darknet's is 0 to 1"
    yield _pointwise("input.normalization", words, NORMAL_FIX, _standardized, by="image")


def _normalized(normal: _Normal, swapped: bool, misplaced: bool, told: str) -> Hypothesis:
    def change(x: Array) -> Array:
        if misplaced:
            return normal.applied(x[:, ::-1])
        made = normal.applied(x)
        return made[:, ::-1] if swapped else made

    words = (
        f"the input is normalized with {normal.name}{told}{', the numbers in the order of RGB' * misplaced}, Darknet's is 0 to 1"
    )
    fix = {name: fix + "; " * swapped + CHANNELS_FIX[""] * swapped for name, fix in NORMAL_FIX.items()}
    return _pointwise("input.normalization", words, fix, change, by=normal.name, channels="BGR" if swapped else "RGB")


def _standardized(x: Array) -> Array:
    wide = x.astype(np.float64)
    deviation = np.maximum(wide.std((1, 2, 3), keepdims=True), 1 / np.sqrt(wide[0].size))
    return np.asarray((wide - wide.mean((1, 2, 3), keepdims=True)) / deviation)


def fitted_normalization(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Any mean and deviation for each channel, where both inputs are known."""
    theirs, x = seen(place), place.inputs[0].astype(np.float64)
    if theirs is None or not np.isfinite(theirs).all():
        return
    centred = x - x.mean((0, 2, 3), keepdims=True)
    spread = np.square(centred).sum((0, 2, 3))
    if not spread.all():
        return
    gain = (centred * theirs).sum((0, 2, 3)) / spread
    offset = theirs.mean((0, 2, 3), dtype=np.float64) - gain * x.mean((0, 2, 3))
    if not gain.all():
        return

    def change(x: Array) -> Array:
        return np.asarray(x * gain[:, None, None] + offset[:, None, None])

    mean, deviation = (", ".join(short(float(number)) for number in numbers) for numbers in (-offset / gain, 1 / gain))
    words = f"the input is normalized with a mean of {mean} and a deviation of {deviation} by channel, Darknet's is 0 to 1"
    made = _pointwise("input.normalization", words, NORMAL_FIX, change, mean=mean, deviation=deviation)
    yield Hypothesis(made.kind, made.words, made.runs, made.fix, made.values, parameters=2 * len(gain))


# --- channels and axes ----------------------------------------------------------------------------------------------------------


def channels(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """BGR, and the other orders of three channels."""
    if place.inputs[0].shape[1] != 3:
        return
    for order in sorted(permutations(range(3)), key=lambda order: order != (2, 1, 0)):
        if order == (0, 1, 2):
            continue
        letters = "".join("RGB"[channel] for channel in order)
        words = f"the input's channels are {letters}, Darknet's RGB"
        yield _pointwise("input.channels", words, CHANNELS_FIX, partial(np.take, indices=order, axis=1), channels=letters)


def layouts(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Floats read in another shape, and axes that are exchanged or turned round."""
    for words, change in _LAYOUTS.items():
        told = f"the input is {words}, Darknet's (channel, row, column)"
        yield _pointwise("input.layout", told, _LAYOUT_FIX, change, layout=words)


def _same_shape(made: Array, x: Array) -> Array | None:
    return made if made.shape == x.shape else None


def _read_as_planes(x: Array) -> Array:
    return np.asarray(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape))


def _read_as_pixels(x: Array) -> Array:
    batch, c, h, w = x.shape
    return np.asarray(np.ascontiguousarray(x).reshape(batch, h, w, c).transpose(0, 3, 1, 2))


_LAYOUTS: Mapping[str, Callable[[Array], Array | None]] = MappingProxyType(
    {
        "(row, column, channel) read as (channel, row, column)": _read_as_planes,
        "(channel, row, column) read as (row, column, channel)": _read_as_pixels,
        "with rows and columns exchanged": lambda x: _same_shape(x.transpose(0, 1, 3, 2), x),
        "mirrored": lambda x: x[:, :, :, ::-1],
        "upside down": lambda x: x[:, :, ::-1],
    }
)
