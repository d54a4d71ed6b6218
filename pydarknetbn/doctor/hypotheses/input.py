"""What a port may do otherwise with a picture before the network sees it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ..situation import Generator, Hypothesis, Place, Trial, several
from .input_recipes import combined, fits, kernels
from .input_values import channels, fitted_normalization, fitted_scale, layouts, normalizations, scales, seen

__all__ = ["given"]

_SETTLED = 4.0  # multiples of the noise: what leaves no more is the cause, and nothing that has more numbers is tried
_LEVELS = 4.5  # of 255, that decoders of JPEG differ by at most
_MEAN = 0.25
_SHARE = 0.2  # of a difference that a shift, a blur or another brightness may account for by chance

_SINGLE: Generator = several(scales, normalizations, channels, layouts, fits, kernels)
_FITTED: Generator = several(combined, fitted_scale, fitted_normalization)


def given(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """For the step of kind "input"; several causes together and fitted numbers only where no single one explains."""
    for generator in (_SINGLE, _FITTED, _decoder):
        best = np.inf
        for hypothesis in generator(place, trial):
            best = min(best, trial(hypothesis))
            yield hypothesis
        if best <= _SETTLED:
            return


def _decoder(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Another decoder of JPEG: few levels, no shift, no change of brightness or sharpness. It is no fault."""
    theirs, x = seen(place), place.inputs[0]
    if theirs is None:
        return
    levels = (theirs.astype(np.float64) - x) * 255
    most = float(np.abs(levels).max())
    if not most <= _LEVELS or np.abs(levels.mean((0, 2, 3))).max() > _MEAN or _explained(levels, x) > _SHARE:
        return

    def run(place: Place) -> Array | None:
        return theirs if place.inputs[0].shape == theirs.shape else None

    words = f"the pictures differ by at most {most:.1f} levels of 255, without a shift: another decoder of JPEG, no fault"
    fix = {"": "nothing; to compare the networks alone give both the same pixels, such as a PNG"}
    yield Hypothesis("input.decoder", words, {"input": run}, fix, {"levels": most}, parameters=theirs.size)


def _explained(difference: npt.NDArray[np.float64], x: Array) -> float:
    """The share of a difference that is a change of brightness, a shift, a stretch or a sharpening of the picture."""
    wide = x.astype(np.float64)
    down, right = np.gradient(wide, axis=(2, 3)) if min(x.shape[2:]) > 1 else (wide, wide)
    rows, columns = np.linspace(-1, 1, x.shape[2])[:, None], np.linspace(-1, 1, x.shape[3])
    sharper = np.gradient(down, axis=2) + np.gradient(right, axis=3) if min(x.shape[2:]) > 1 else wide
    causes = (np.ones_like(wide), wide, down, right, down * rows, right * columns, sharper)
    matrix = np.stack([cause.ravel() for cause in causes], 1)
    target = difference.ravel()
    solved = np.linalg.lstsq(matrix, target, rcond=None)[0]
    total = float(target @ target)
    return 1 - float(np.square(target - matrix @ solved).sum()) / total if total else 1.0
