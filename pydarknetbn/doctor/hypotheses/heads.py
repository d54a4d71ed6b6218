"""What ports do otherwise in a [yolo] layer: in its values, and in the boxes made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ..situation import Hypothesis, Place, Trial, fit

__all__ = ["boxes", "yolo"]

Doubles = npt.NDArray[np.float64]
_SCALES = (1.0, 1.05, 1.1, 1.2, 1.5, 2.0)
_SNAP = 2e-3


def _sigmoid(x: Doubles) -> Doubles:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def _hypothesis(
    kind: str, step: str, words: str, fix: str, run: Callable[[Place], Array | None], **values: float | int | str
) -> Hypothesis:
    return Hypothesis(kind, words, {step: run}, {"": fix}, values)


# --- values --------------------------------------------------------------------------------------------------------------------


def yolo(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Another spread of the centers, other or further logistics."""
    head = place.layer.head
    if head is None:
        return
    scale = head.scale_x_y
    yield from _spreads(scale, trial)
    for kind, words, changes in _LOGISTICS:

        def run(place: Place, changes: _Changes = changes) -> Array:
            return _values(place, changes)

        told = "applies no logistic (new_coords=1)" if head.new_coords else "applies one logistic to x, y, objectness and classes"
        fix = f"of the values of [yolo] Darknet {told}, nothing else"
        yield _hypothesis(kind, "yolo", f"[yolo] {words}; Darknet {told}", fix, run, variant=words)


_Changes = Mapping[str, str]
"""Of each part (xy, wh, objectness, classes) what is done: "none", "once", "twice" (logistics), "softmax", or "right"."""

_PARTS = ("xy", "wh", "objectness", "classes")


def _changes(**changes: str) -> _Changes:
    return MappingProxyType(dict.fromkeys(_PARTS, "right") | changes)


_LOGISTICS: tuple[tuple[str, str, _Changes], ...] = (
    ("yolo.double_sigmoid", "applies the logistic twice to x, y, objectness and classes",
     _changes(xy="twice", objectness="twice", classes="twice")),
    ("yolo.double_sigmoid", "applies the logistic twice to objectness and classes", _changes(objectness="twice", classes="twice")),
    ("yolo.double_sigmoid", "applies the logistic twice to objectness", _changes(objectness="twice")),
    ("yolo.double_sigmoid", "applies the logistic twice to the classes", _changes(classes="twice")),
    ("yolo.double_sigmoid", "applies the logistic twice to x and y", _changes(xy="twice")),
    ("yolo.class_softmax", "takes the softmax of the classes", _changes(classes="softmax")),
    ("yolo.class_softmax", "takes the softmax of the classes' logistics", _changes(classes="softmax of once")),
    ("yolo.new_coords", "applies no logistic", _changes(xy="none", wh="none", objectness="none", classes="none")),
    ("yolo.new_coords", "applies the logistic to every value, width and height too",
     _changes(xy="once", wh="once", objectness="once", classes="once")),
    ("yolo.new_coords", "applies the logistic to x, y, objectness and classes",
     _changes(xy="once", wh="none", objectness="once", classes="once")),
    ("yolo.new_coords", "leaves objectness and classes without the logistic", _changes(objectness="none", classes="none")),
    ("yolo.new_coords", "leaves x and y without the logistic", _changes(xy="none")),
)  # fmt: skip


def _values(place: Place, changes: _Changes, scale: float | None = None) -> Array:
    head = place.layer.head
    assert head is not None
    x = place.inputs[0]
    entries = x.reshape(len(x), len(head.mask), -1, *x.shape[2:]).astype(np.float64)
    cuts = dict(zip(_PARTS, (slice(0, 2), slice(2, 4), slice(4, 5), slice(5, None)), strict=True))
    made = np.empty_like(entries)
    for part, cut in cuts.items():
        how = changes[part]
        if how == "right":
            how = "none" if part == "wh" or head.new_coords else "once"
        made[:, :, cut] = _FUNCTIONS[how](entries[:, :, cut])
    factor = head.scale_x_y if scale is None else scale
    made[:, :, :2] = made[:, :, :2] * factor - 0.5 * (factor - 1)
    return made.reshape(x.shape).astype(np.float32)


def _softmax(x: Doubles) -> Doubles:
    shifted = np.exp(x - x.max(axis=2, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=2, keepdims=True))


_FUNCTIONS: Mapping[str, Callable[[Doubles], Doubles]] = MappingProxyType(
    {
        "none": lambda x: x,
        "once": _sigmoid,
        "twice": lambda x: _sigmoid(_sigmoid(x)),
        "softmax": _softmax,
        "softmax of once": lambda x: _softmax(_sigmoid(x)),
    }
)


def _spreads(right: float, trial: Trial) -> Iterator[Hypothesis]:
    def make(scale: float) -> Hypothesis:
        def run(place: Place) -> Array:
            return _values(place, _changes(), scale)

        ignored = " (ignored)" if scale == 1 else ""
        words = f"[yolo] spreads the centers with scale_x_y={scale:g}{ignored}; Darknet with {right:g}"
        fix = {"": f"x * {right:g} - {0.5 * (right - 1):g} after the logistic"}
        return Hypothesis("yolo.scale_x_y", words, {"yolo": run}, fix, {"scale_x_y": scale}, 0 if scale in _SCALES else 1)

    for scale in _SCALES:
        if scale != right:
            yield make(scale)

    def unshifted(place: Place) -> Array:
        made = _values(place, _changes(), 1.0).reshape(len(place.inputs[0]), -1, *place.inputs[0].shape[2:])
        head = place.layer.head
        assert head is not None
        entries = made.reshape(len(made), len(head.mask), -1, *made.shape[2:])
        entries[:, :, :2] *= np.float32(right)
        return np.asarray(made)

    if right != 1:
        offset = f"{0.5 * (right - 1):g}"
        words = f"[yolo] multiplies the centers by scale_x_y={right:g} without moving them back; Darknet subtracts {offset}"
        yield Hypothesis("yolo.scale_x_y", words, {"yolo": unshifted}, {"": f"x * {right:g} - {offset}"}, {"offset": 0})
    found = fit(make, trial, (0.5, *_SCALES, 4.0))
    if all(abs(float(found.values["scale_x_y"]) - known) > _SNAP for known in (*_SCALES, right)):
        yield found


# --- boxes ---------------------------------------------------------------------------------------------------------------------


def boxes(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Other anchors, in another order or unit, other formulas of width, height and center."""
    head = place.layer.head
    if head is None:
        return
    right = ", ".join(str(number) for number in head.mask)
    for mask in _masks(len(head.anchors), head.mask):

        def run(place: Place, mask: tuple[int, ...] = mask) -> Array:
            return _boxes(place, mask=mask)

        found = ", ".join(str(number) for number in mask)
        words = f"the boxes are made with anchors {found}; Darknet's mask takes {right}"
        yield _hypothesis("yolo.anchors", "boxes", words, f"anchors {right}, as mask= says", run, mask=found)
    yield from _factors(place, trial)
    for words, options in _FORMULAS.items():

        def changed(place: Place, options: Mapping[str, object] = options) -> Array:
            return _boxes(place, **options)  # type: ignore[arg-type]

        kind = "yolo.new_coords" if "squared" in options or "exponential" in options else "yolo.anchors"
        yield _hypothesis(kind, "boxes", f"{words}; Darknet does not", _BOX_FIX, changed, variant=words)


def _factors(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """Anchors in another unit, such as cells, or pixels of another size of the input."""

    def make(factor: float) -> Hypothesis:
        def run(place: Place) -> Array:
            return _boxes(place, factor=factor)

        words = f"the anchors are {factor:g} times the cfg's (as in cells, or for another size of the input); Darknet takes pixels"
        return Hypothesis("yolo.anchors", words, {"boxes": run}, {"": _BOX_FIX}, {"factor": factor}, int(factor not in known))

    known = {2.0**power for power in range(-6, 7) if power}
    yield from map(make, sorted(known, reverse=True))
    yield fit(make, trial, sorted({*known, 1.0}))


_BOX_FIX = (
    "x = (column + x) / columns, w = exp(w) * anchor_w / width of the network's input; with new_coords w = (2w)² * anchor_w / width"
)

_FORMULAS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "width and height are (2w)² times the anchor, as with new_coords": {"squared": True},
        "width and height are exp(w) times the anchor": {"exponential": True},
        "width and height of the anchors are exchanged": {"exchanged": True},
        "the centers are counted without their cell": {"without_cell": True},
        "rows and columns of the cells are exchanged": {"turned": True},
    }
)


def _masks(total: int, own: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Runs of neighboring anchors, from the first on and backwards, and the own ones in another order."""
    n = len(own)
    seen = {own}
    runs = [tuple(range(first, first + n)) for first in range(total - n + 1)]
    own_orders = list(permutations(own)) if n <= 4 else [own[::-1]]
    for mask in [*runs, *(run[::-1] for run in runs), *own_orders]:
        if mask not in seen:
            seen.add(mask)
            yield mask


def _boxes(
    place: Place,
    *,
    mask: tuple[int, ...] | None = None,
    squared: bool | None = None,
    exponential: bool | None = None,
    exchanged: bool = False,
    factor: float = 1.0,
    without_cell: bool = False,
    turned: bool = False,
) -> Array:
    head, net = place.layer.head, place.runner.net
    assert head is not None
    output = place.inputs[0]
    batch, _, h, w = output.shape
    entries = output.reshape(batch, len(head.mask), -1, h, w).astype(np.float64)
    columns, rows = np.arange(w)[None, :] + np.zeros((h, 1)), np.arange(h)[:, None] + np.zeros((1, w))
    if turned and h == w:
        columns, rows = rows, columns
    if without_cell:
        columns, rows = columns * 0, rows * 0
    square = squared or (head.new_coords and not exponential)
    anchors = np.array([head.anchors[number] for number in mask or head.mask])[:, :: -1 if exchanged else 1]
    sides = entries[:, :, 2:4]
    with np.errstate(over="ignore"):
        spread = sides * sides * 4 if square else np.exp(sides)
    parts = [(entries[:, :, 0] + columns) / w, (entries[:, :, 1] + rows) / h]
    parts += [spread[:, :, axis] * anchors[:, axis, None, None] * factor / (net.w, net.h)[axis] for axis in (0, 1)]
    return np.concatenate([np.stack(parts, 2), entries[:, :, 4:]], 2).reshape(output.shape).astype(np.float32)
