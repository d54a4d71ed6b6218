"""Truths: what users have, in the form that the layers with a loss read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import _native
from .._native import Array
from ..errors import DtypeError, ShapeError
from ..layers import Layer
from ..layers.records import Truth

__all__ = ["pack_truth"]

_LABEL = 5  # class, x, y, w, h


def pack_truth(truth: object, layers: Sequence[Layer], batch: int) -> Array:
    """The truth of a batch as (batch, truths) float32.

    Args:
        truth: that array; or for boxes and grids a list of the images' labels, each (n, 5) float32 of class, x, y, w, h; or for
            classifiers whole numbers (batch,), the classes.
        layers: those with a loss, one or more; all read the same truth.
        batch: images.

    Raises:
        DtypeError, ShapeError: the truth is nothing of that, or two layers read different ones.
    """
    wanted = _one_kind(layers)
    if isinstance(truth, list | tuple):
        if wanted.kind in ("values", "instances"):
            raise DtypeError(
                f"expected truth to be an array, since [{layers[-1].type}] reads {wanted.kind}, got {type(truth).__name__}"
            )
        if len(truth) != batch:
            raise ShapeError(f"expected truth of {batch} images, got {len(truth)}")
        packed = np.zeros((batch, wanted.floats), np.float32)
        for image, labels in enumerate(truth):
            _pack_labels(packed[image], _checked_labels(labels, image), wanted, image)
        return packed
    if wanted.kind == "values" and isinstance(truth, np.ndarray) and truth.ndim == 1 and truth.dtype.kind in "iu":
        return _one_hot(truth, wanted.floats, batch)
    return _native.input_array(truth, "truth", (batch, wanted.floats), empty=not batch)


def _one_kind(layers: Sequence[Layer]) -> Truth:
    """What the last layer reads; as in the forks there is one truth for all."""
    last = layers[-1]
    assert last.truth is not None
    for layer in layers:
        if layer.truth != last.truth:
            read = f"layer {layer.index} [{layer.type}] and layer {last.index} [{last.type}]"
            raise ShapeError(f"{read} read truths of different forms, but a network has one truth for all its losses")
    return last.truth


def _checked_labels(labels: object, image: int) -> Array:
    return np.zeros((0, _LABEL), np.float32) if np.size(labels) == 0 else _labels_array(labels, image)  # type: ignore[arg-type]


def _labels_array(labels: object, image: int) -> Array:
    array = np.asarray(labels, np.float32)
    if array.ndim != 2 or array.shape[1] != _LABEL:
        raise ShapeError(f"expected labels of image {image} of shape (n, 5), class x y w h, got {array.shape}")
    return array


def _pack_labels(row: Array, labels: Array, wanted: Truth, image: int) -> None:
    if wanted.kind == "cells":
        _fill_cells(row, labels, wanted, image)
        return
    if len(labels) > wanted.boxes:
        raise ShapeError(f"image {image} has {len(labels)} boxes, but the layer reads {wanted.boxes}; raise max= in the cfg")
    if not np.all(labels[:, 1] != 0):
        raise ShapeError(f"box {int(np.argmin(labels[:, 1] != 0))} of image {image} has x = 0, which ends the list of boxes")
    rows = row.reshape(wanted.boxes, wanted.row)[: len(labels)]
    rows[:, :4] = labels[:, 1:]
    rows[:, wanted.class_at] = labels[:, 0]


def _fill_cells(row: Array, labels: Array, wanted: Truth, image: int) -> None:
    """The first box of a cell counts. Source: pjreddie/darknet src/data.c fill_truth_region."""
    side = np.float32(wanted.side)
    cells = row.reshape(wanted.side**2, -1)
    for number, (told, x, y, w, h) in enumerate(labels):
        if not (0 <= told < wanted.classes and 0 <= x < 1 and 0 <= y < 1):
            place = f"box {number} of image {image} is of class {told:g} at x {x:g}, y {y:g}"
            raise ShapeError(f"{place}; expected a class from 0 to {wanted.classes - 1} and a middle of 0 and more, below 1")
        column, line = int(x * side), int(y * side)
        cell = cells[column + line * wanted.side]
        if cell[0]:
            continue
        cell[0] = cell[1 + int(told)] = 1
        cell[1 + wanted.classes : 5 + wanted.classes] = (x * side - np.float32(column), y * side - np.float32(line), w, h)


def _one_hot(classes: np.ndarray[tuple[int, ...], np.dtype[np.integer]], count: int, batch: int) -> Array:
    if classes.shape != (batch,):
        raise ShapeError(f"expected truth of {batch} classes, got {classes.shape}")
    if not np.all((classes >= 0) & (classes < count)):
        raise ShapeError(f"expected classes from 0 to {count - 1} in truth, got {classes.min()} to {classes.max()}")
    packed = np.zeros((batch, count), np.float32)
    packed[np.arange(batch), classes] = 1
    return packed
