"""An input that was made of the picture in another way: fitted otherwise, with another kernel, or several of that together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place, Trial
from .input_fit import FITS, Fit
from .input_values import AS_THEY_ARE, CHANNELS_FIX, NORMAL_FIX, SCALE_FIX, VALUES, Values, seen
from .resampling import DARKNETS, KERNELS, Kernel

__all__ = ["combined", "fits", "kernels"]

_EQUAL = 1e-3 / 255  # two pictures that are nearer to each other were made alike
_TURNS = 3
_ROUNDED_OTHERWISE = 0.01  # of the values of a kernel in bytes, that other versions of a library round to the next byte

_FIX: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "input.fit": {
            "": "bring the picture to the network's size as Darknet does: dn.image.fit(picture, w, h, how='stretch' or 'letterbox')"
        },
        "input.resize": {
            "torch": "F.interpolate(x, (h, w), mode='bilinear', align_corners=True) on floats; dn.image.resize to the bit",
            "keras": "dn.image.resize(picture, w, h): no resize of TensorFlow has its corners aligned",
            "": "dn.image.resize(picture, w, h): bilinear between corners, on floats",
        },
        "input.channels": CHANNELS_FIX,
        "input.scale": SCALE_FIX,
        "input.normalization": NORMAL_FIX,
    }
)


class _Recipe(NamedTuple):
    fit: Fit
    kernel: Kernel
    swapped: bool = False
    values: Values = AS_THEY_ARE

    def made(self, picture: Array, w: int, h: int) -> Array | None:
        """The input; (1, c, h, w)."""
        x = self.fit.made(picture, w, h, self.kernel)
        if x is None:
            return None
        return np.ascontiguousarray(self.values.change((x[::-1] if self.swapped else x)[np.newaxis]), np.float32)


def fits(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Letterbox, stretch and centre crop, with Darknet's kernel."""
    own = _own(place)
    if own is not None:
        yield from (_hypothesis(place, _Recipe(fit, DARKNETS), own) for fit in FITS if fit is not own)


def kernels(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Other kernels, the picture fitted as ours."""
    own = _own(place)
    if own is not None:
        yield from (_hypothesis(place, _Recipe(own, kernel), own) for kernel in KERNELS)


def combined(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The best values, fit, channels and kernel together: by turns, each with the best of the others so far."""
    own = _own(place)
    if own is None:
        return

    def score(recipe: _Recipe) -> float:
        return trial(_hypothesis(place, recipe, own))

    best = _Recipe(own, DARKNETS)
    for _ in range(_TURNS):
        before = best
        best = min((best._replace(values=values) for values in VALUES), key=score)
        best = min((best._replace(fit=fit, swapped=swapped) for fit in FITS for swapped in (False, True)), key=score)
        best = min((best._replace(kernel=kernel) for kernel in (DARKNETS, *KERNELS)), key=score)
        if best == before:
            break
    yield _hypothesis(place, best, own)


def _own(place: Place) -> Fit | None:
    """How our input was made of the picture; None where it was not."""
    picture, x = place.picture, place.inputs[0]
    if picture is None or len(x) != 1 or picture.shape[0] != x.shape[1]:
        return None
    h, w = x.shape[2:]
    for fit in FITS:
        made = fit.made(picture, w, h, DARKNETS)
        if made is not None and float(np.abs(made - x[0]).max()) < _EQUAL:
            return fit
    return None


def _hypothesis(place: Place, recipe: _Recipe, own: Fit) -> Hypothesis:
    theirs = seen(place)

    def run(place: Place) -> Array | None:
        h, w = place.inputs[0].shape[2:]
        made = None if place.picture is None else recipe.made(place.picture, w, h)
        if made is None or theirs is None or not recipe.kernel.in_bytes or theirs.shape != made.shape:
            return made
        return _rounded_as(theirs, made, recipe.values)

    parts = list(_parts(recipe, own))
    kinds = [kind for kind, _ in parts] or ["input.fit"]
    fixes = {name: "; ".join(_FIX[kind].get(name, _FIX[kind][""]) for kind in kinds) for name in ("torch", "keras", "")}
    values = {"fit": recipe.fit.name, "kernel": recipe.kernel.name, "channels": "BGR" if recipe.swapped else "RGB"}
    if recipe.values is not AS_THEY_ARE:
        values["values"] = recipe.values.words
    words = f"the picture is {'; it is '.join(words for _, words in parts)}"
    return Hypothesis(kinds[0], words, {"input": run}, fixes, values, parameters=len(kinds) - 1)


def _parts(recipe: _Recipe, own: Fit) -> Iterator[tuple[str, str]]:
    """Kind and words of each thing that is otherwise."""
    if recipe.values is not AS_THEY_ARE:
        yield recipe.values.kind, f"{recipe.values.words}, Darknet's 0 to 1"
    if recipe.fit.name != own.name:
        yield "input.fit", f"{recipe.fit.name}, Darknet's {own.name}"
    if recipe.kernel is not DARKNETS:
        yield "input.resize", f"resized with another kernel ({recipe.kernel.name}), Darknet's with one bilinear between corners"
    if recipe.swapped:
        yield "input.channels", "in BGR, Darknet's in RGB"


def _rounded_as(theirs: Array, made: Array, values: Values) -> Array:
    """The values, where few are one byte off rounded as the other side's: versions of a library differ in that."""
    one = np.abs(values.change(made + np.float32(1 / 255)) - values.change(made))
    apart = np.abs(theirs - made)
    off = apart > one / 2
    if not off.any() or off.mean() > _ROUNDED_OTHERWISE or (apart[off] > 1.01 * one[off]).any():
        return made
    return np.where(off, theirs, made)
