"""The ways in which another program may hold a value of ours: axes in another order, merged, split, boxes in pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..layers import Shape

__all__ = ["Layout", "Parts", "layouts_of"]

Floats: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one array is read as a value of ours.

    Args:
        words: what is told to the user, "" for our own layout.
        read: array -> (batch, c, h, w); a view where that is possible.
        rank: the lower, the likelier where the numbers do not decide.
    """

    words: str
    read: Callable[[Floats], Floats]
    rank: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What else of our side a layout may depend on.

    Args:
        anchors: of a head, 0 elsewhere.
        boxes: the value is boxes, of a network of that width and height; None elsewhere.
        rows: of every head of the network in order, where one array may hold the boxes of all.
        head: number of this one among them.
    """

    anchors: int = 0
    boxes: tuple[int, int] | None = None
    rows: tuple[int, ...] = ()
    head: int = 0


def layouts_of(theirs: Sequence[int], shape: Shape, parts: Parts) -> Iterator[Layout]:
    """The layouts in which an array of shape `theirs`, the batch first, may hold a value of `shape`."""
    for words, order, rank, start, stop in _orders(theirs, shape, parts):
        read = partial(_read, shape=shape, order=order, anchors=parts.anchors, start=start, stop=stop)
        yield Layout(words, read, rank)
        if parts.boxes:
            for pixels, product, more in _BOX_FORMS:
                size = parts.boxes if pixels else (1, 1)
                form = partial(_boxes, read=read, anchors=parts.anchors, size=size, product=product)
                yield Layout(", ".join(filter(None, [words, more])), form, rank + 10)


_BOX_FORMS = (
    (True, False, "in pixels"),
    (False, True, "classes times objectness"),
    (True, True, "in pixels, classes times objectness"),
)
_PLANES, _LAST, _ANCHORS = (0, 1, 2, 3), (2, 3, 0, 1), (0, 2, 3, 1)
"""Orders of the axes anchor, entry, row, column; without anchors the first one has length 1."""


def _orders(
    theirs: Sequence[int], shape: Shape, parts: Parts
) -> Iterator[tuple[str, tuple[int, ...], int, int | None, int | None]]:
    """Words, order of the axes in the array, rank, and the rows that are meant."""
    dims = tuple(theirs[1:])
    total = int(np.prod(dims))
    if total == shape.floats:
        for order in (_PLANES, _LAST, _ANCHORS):
            words = _words(dims, shape, order, parts.anchors)
            if words is not None:
                rank = (_PLANES, _LAST, _ANCHORS).index(order) + (2 if words not in ("", "NHWC") else 0)
                yield words, order, rank, None, None
    every = sum(parts.rows)
    if len(parts.rows) > 1 and len(dims) == 2 and parts.anchors and every * (shape.c // parts.anchors) == total:
        start = sum(parts.rows[: parts.head])
        stop = start + parts.rows[parts.head]
        if dims[0] == every:
            yield f"rows {start} to {stop - 1}, a box each", _ANCHORS, 4, start, stop
            yield f"rows {start} to {stop - 1}, a box each, cell by cell", _LAST, 5, start, stop


def _words(dims: Sequence[int], shape: Shape, order: tuple[int, ...], anchors: int) -> str | None:
    """What the array is called when its axes are those in that order; None where they cannot be."""
    c, h, w = shape
    if order == _ANCHORS and not anchors:
        return None
    if order == _LAST and (c == 1 or h * w == 1):
        return None  # the same as planes
    if order == _ANCHORS and (anchors == c or h * w == 1):
        return None
    sizes = (anchors or 1, c // (anchors or 1), h, w)
    fine = [sizes[axis] for axis in order]
    if not _coarser(dims, fine):
        return None
    if len(dims) == 3 and order != _ANCHORS:
        whole = (c, h, w) if order == _PLANES else (h, w, c)
        if tuple(dims) == whole:
            return "NHWC" if order == _LAST else ""
        if 1 not in dims:
            return None if not anchors else _spelled(dims)
    return _flat_words(dims, order)


def _flat_words(dims: Sequence[int], order: tuple[int, ...]) -> str:
    if len([size for size in dims if size > 1]) <= 1:
        return "flattened, NHWC" if order == _LAST else "flattened"
    names: dict[tuple[int, ...], str] = {_PLANES: "channels first", _LAST: "channels last", _ANCHORS: "entries last"}
    return f"{_spelled(dims)}, {names[order]}"


def _spelled(dims: Sequence[int]) -> str:
    return f"as (batch, {', '.join(str(size) for size in dims)})"


def _coarser(dims: Sequence[int], fine: Sequence[int]) -> bool:
    """Whether dims come from fine ones by merging neighbours and adding axes of length 1."""
    return set(accumulate((size for size in dims), mul)) <= {1, *accumulate(fine, mul)}


def _read(array: Floats, *, shape: Shape, order: tuple[int, ...], anchors: int, start: int | None, stop: int | None) -> Floats:
    c, h, w = shape
    sizes = (anchors or 1, c // (anchors or 1), h, w)
    if start is not None:
        array = array[:, start:stop]
    wide = array.reshape(len(array), *(sizes[axis] for axis in order))
    back = wide.transpose(0, *(1 + order.index(axis) for axis in range(4)))
    made: Floats = back.reshape(len(array), c, h, w)
    return made


def _boxes(array: Floats, *, read: Callable[[Floats], Floats], anchors: int, size: tuple[int, int], product: bool) -> Floats:
    """Boxes in pixels of the network's input, or with classes that are multiplied by the objectness, in our form."""
    planes = read(array)
    boxes = np.array(planes, np.float32).reshape(len(planes), anchors or 1, -1, *planes.shape[2:])
    for entry in range(4):
        boxes[:, :, entry] /= size[entry % 2]
    if product:
        with np.errstate(all="ignore"):
            boxes[:, :, 5:] /= boxes[:, :, 4:5]
    return boxes.reshape(planes.shape)
