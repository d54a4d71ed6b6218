"""A closer look at one value."""

from __future__ import annotations

import numpy as np

from .measures import spread
from .results import Closeup
from .teacher import Segment

__all__ = ["closeup_of"]

_CHANNELS, _PIXELS, _POINTS = 128, 512, 3000


def closeup_of(row: int, segment: Segment) -> Closeup:
    """The differences of a segment's first image by channel and pixel, and values of both sides at some places."""
    ours, theirs = segment.ours[0], segment.theirs[0]
    c, h, w = ours.shape
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(ours - theirs) / spread(segment.ours), nan=np.inf).reshape(c, h * w)
    steps = -(-c // _CHANNELS), -(-h * w // _PIXELS)
    at = np.sort(np.random.default_rng(0).choice(c * h * w, min(_POINTS, c * h * w), replace=False))
    flat = (ours.reshape(-1)[at], theirs.reshape(-1)[at])
    return Closeup(row, _largest(apart, *steps), *steps, (c, h, w), *(np.array(each, np.float32) for each in flat))


def _largest(apart: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Of each block of neighbors the largest."""
    by_row = np.maximum.reduceat(apart, np.arange(0, apart.shape[0], rows), axis=0)
    return np.asarray(np.maximum.reduceat(by_row, np.arange(0, apart.shape[1], columns), axis=1), np.float32)
