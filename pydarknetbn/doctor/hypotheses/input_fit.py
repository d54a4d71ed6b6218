"""A picture that is brought to the network's size in another way: fitted otherwise, with another kernel, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place, Trial
from .resampling import DARKNETS, KERNELS, Kernel

__all__ = ["combined", "fits", "kernels"]

_EQUAL = 1e-3 / 255  # two pictures that are nearer to each other were made alike
_TURNS = 3
_FILLS: Mapping[str, float] = MappingProxyType({"0.5": 0.5, "114/255": 114 / 255, "128/255": 128 / 255, "0": 0.0, "1": 1.0})

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
        "input.channels": {"": "RGB, as Darknet reads pictures: frame[:, :, ::-1] of one that OpenCV read"},
    }
)


class _Fit(NamedTuple):
    """A way to bring a picture to a size, with a kernel."""

    name: str
    made: Callable[[Array, int, int, Kernel], Array | None]


class _Recipe(NamedTuple):
    fit: _Fit
    kernel: Kernel
    swapped: bool = False

    def made(self, picture: Array, w: int, h: int) -> Array | None:
        x = self.fit.made(picture, w, h, self.kernel)
        return None if x is None else np.ascontiguousarray(x[::-1] if self.swapped else x, np.float32)


def fits(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Letterbox, stretch and centre crop, with Darknet's kernel."""
    own = _own(place)
    if own is not None:
        yield from (_hypothesis(_Recipe(fit, DARKNETS), own) for fit in _FITS if fit is not own)


def kernels(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Other kernels, the picture fitted as ours."""
    own = _own(place)
    if own is not None:
        yield from (_hypothesis(_Recipe(own, kernel), own) for kernel in KERNELS)


def combined(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The best fit, kernel and order of channels together: by turns, each with the best of the others so far."""
    own = _own(place)
    if own is None:
        return

    def score(recipe: _Recipe) -> float:
        return trial(_hypothesis(recipe, own))

    best = _Recipe(own, DARKNETS)
    for _ in range(_TURNS):
        before = best
        best = min((_Recipe(fit, best.kernel, swapped) for fit in _FITS for swapped in (False, True)), key=score)
        best = min((best._replace(kernel=kernel) for kernel in (DARKNETS, *KERNELS)), key=score)
        if best == before:
            break
    yield _hypothesis(best, own)


def _own(place: Place) -> _Fit | None:
    """How our input was made of the picture; None where it was not."""
    picture, x = place.picture, place.inputs[0]
    if picture is None or len(x) != 1 or picture.shape[0] != x.shape[1]:
        return None
    h, w = x.shape[2:]
    for fit in _FITS:
        made = fit.made(picture, w, h, DARKNETS)
        if made is not None and float(np.abs(made - x[0]).max()) < _EQUAL:
            return fit
    return None


def _hypothesis(recipe: _Recipe, own: _Fit) -> Hypothesis:
    def run(place: Place) -> Array | None:
        h, w = place.inputs[0].shape[2:]
        made = None if place.picture is None else recipe.made(place.picture, w, h)
        return None if made is None else made[np.newaxis]

    parts = [(f"{recipe.fit.name}, Darknet's {own.name}", "input.fit")] if recipe.fit.name != own.name else []
    if recipe.kernel is not DARKNETS:
        parts.append((f"resized {recipe.kernel.name}, Darknet's bilinear between corners", "input.resize"))
    if recipe.swapped:
        parts.append(("in BGR, Darknet's in RGB", "input.channels"))
    kinds = [kind for _, kind in parts] or ["input.fit"]
    fixes = {name: "; ".join(_FIX[kind].get(name, _FIX[kind][""]) for kind in kinds) for name in ("torch", "keras", "")}
    values = {"fit": recipe.fit.name, "kernel": recipe.kernel.name, "channels": "BGR" if recipe.swapped else "RGB"}
    words = f"the picture is {'; it is '.join(words for words, _ in parts)}"
    return Hypothesis(kinds[0], words, {"input": run}, fixes, values, parameters=len(kinds) - 1)


# --- ways to fit ----------------------------------------------------------------------------------------------------------------


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


def _letterboxes() -> Iterator[_Fit]:
    for name, fill in _FILLS.items():
        yield _Fit(f"letterboxed in a field of {name}", _letterboxed(fill, corner=False, rounded=False))
        yield _Fit(f"letterboxed in a field of {name}, its sides rounded", _letterboxed(fill, corner=False, rounded=True))
        yield _Fit(f"letterboxed into the upper left corner of a field of {name}", _letterboxed(fill, corner=True, rounded=False))


_FITS = (
    _Fit("stretched", _stretched),
    *_letterboxes(),
    _Fit("resized by its shorter side and cropped to the middle", _cropped_after),
    _Fit("cropped to the middle and resized", _cropped_before),
)
