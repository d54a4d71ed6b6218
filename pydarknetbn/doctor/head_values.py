"""Which value of the other side a [yolo] gives, where it gives another than ours: no layer takes it, so that nothing else tells."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from .._native import Array
from .pool import Candidate, Candidates, distances

__all__ = ["value_of_head"]

_EQUAL = 1 / 1000


def value_of_head(
    candidates: Candidates, places: Sequence[int], *, expected: Array, given: Array, anchors: int, outputs: Collection[str]
) -> Candidate | None:
    """The likeliest of some candidates.

    Boxes are made of a [yolo]'s values, but objectness and classes are the same in both. Where there are none, it is one of the
    outputs, or what is most like ours and is not what the layer is given.

    Args:
        candidates: of the step.
        places: those that come next in the trace, in order.
        expected: our value.
        given: what the layer is given.
        anchors: of the head.
        outputs: names of the other side's outputs.
    """
    likeliest = {
        candidates.all[place].index: candidates.all[place]
        for place in sorted(places, key=lambda place: -candidates.all[place].layout.rank)
    }
    chosen = [likeliest[index] for index in sorted(likeliest)]
    for boxes in (each for each in chosen if each.tensor.name in outputs):
        probabilities = _probabilities(boxes, anchors)
        alike = [each for each in chosen if _same(_probabilities(each, anchors), probabilities)]
        before = [each for each in alike if each.index < boxes.index and not _same(each.read(), boxes.read())]
        if before:
            return before[-1]
    same, _ = distances(candidates, given)
    _, correlation = distances(candidates, expected)
    shown = [place for place in places if candidates.all[place].tensor.name in outputs]
    left = shown or [place for place in places if same[place] > _EQUAL]
    best = max(left, key=lambda place: (correlation[place], -candidates.all[place].layout.rank), default=None)
    return None if best is None else candidates.all[best]


def _same(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def _probabilities(candidate: Candidate, anchors: int) -> Array:
    """Objectness and classes, (batch, anchors, 1 + classes, h, w)."""
    value = candidate.read()
    return value.reshape(len(value), anchors, -1, *value.shape[2:])[:, :, 4:]
