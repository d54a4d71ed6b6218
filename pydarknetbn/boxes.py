"""Detections: boxes out of the heads of a network, and non-maximum suppression, to the bit of the named fork."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._native import check, choices, enum, ffi, lib
from .detections import Detections, detections_dtype
from .errors import DtypeError, ShapeError, StateError, UnsupportedError

if TYPE_CHECKING:
    from .dialect import LayerRule

__all__ = ["Detections", "Head", "Limits", "NmsKind", "decode", "detections_dtype", "kept", "nms", "suppress"]

NmsKind = Literal["default", "sort", "obj", "greedynms", "diounms", "cornersnms"]
Head = tuple[int, Any, str]
Floats = npt.NDArray[np.float32]

_ORIGIN = np.dtype([("anchor", np.int32), ("cell", np.int32)])
_NMS = choices("nms") | {"default": enum("nms", "sort")}
_COUNTED = ("yolo", "gaussian_yolo")  # kinds of head whose rows are those over the threshold


@dataclass(frozen=True, slots=True)
class Limits:
    """Which rows and classes are asked for, see `decode`."""

    thresh: float
    hier: float
    class_map: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of each head."""

    image: int
    limits: Limits
    net_size: tuple[int, int]
    picture_size: tuple[int, int]

    def map_for(self, layer: Any) -> tuple[int, ...]:
        return self.limits.class_map if layer.softmax_tree else ()

    def classes(self, layer: Any) -> int:
        return len(self.map_for(layer)) or int(layer.classes)


@dataclass(frozen=True, slots=True)
class _HeadArrays:
    """What C fills for one head: (n, 4), (n), (n, classes), (n, 4) and (n)."""

    boxes: Floats
    objectness: Floats
    probs: Floats
    uncertainty: Floats
    origins: npt.NDArray[np.void]

    @classmethod
    def empty(cls, count: int, classes: int) -> _HeadArrays:
        return cls(
            np.empty((count, 4), np.float32),
            np.empty(count, np.float32),
            np.empty((count, classes), np.float32),
            np.zeros((count, 4), np.float32),
            np.empty(count, _ORIGIN),
        )

    def rows(self) -> Any:
        """The core's struct, valid while these arrays and what it holds live."""
        rows = ffi.new("detection_rows *")
        rows.boxes = ffi.from_buffer("box[]", self.boxes)
        rows.objectness = ffi.from_buffer("float[]", self.objectness)
        rows.probs = ffi.from_buffer("float[]", self.probs)
        rows.uncertainty = ffi.from_buffer("float[]", self.uncertainty)
        rows.origins = ffi.from_buffer("detection_origin[]", self.origins)
        return rows


def decode(
    heads: Sequence[Head],
    image_index: int,
    *,
    picture_size: tuple[int, int],
    net_size: tuple[int, int],
    thresh: float,
    letter: bool,
    rule: LayerRule,
    relative: bool = False,
    hier: float = 0.5,
    class_map: Sequence[int] = (),
) -> Detections:
    """Reads the boxes of one image out of the heads' outputs.

    A row is there for every box whose objectness is over thresh ([yolo], [Gaussian_yolo]) or for every cell and anchor
    ([region], [detection]); rows stand head after head, in the fork's order. A probability up to thresh is 0. A NaN is over no
    threshold. Boxes of [detection] are parts of the picture as the network saw it, in pixels: no fork undoes a letterbox there.

    Args:
        heads: index in the network, C layer and kind of each head (its section's name); they have had a forward.
        image_index: which image of the batch.
        picture_size: width and height of the picture in pixels.
        net_size: width and height of the network's input in pixels.
        thresh: lower limit of objectness and of a class's probability, 0 to 1.
        letter: the picture was letterboxed into the input, not stretched.
        rule: of the profile.
        relative: boxes in parts of the picture's width and height instead of pixels, but those of [detection].
        hier: with a tree of classes, the lower limit of the probability along a branch.
        class_map: with a tree, the nodes that the rows have as classes; () for all nodes, of which only the one that the
            branches lead to has a probability.

    Raises:
        StateError: a head holds no output for that image.
        ShapeError: a side of the picture or of the network is not over 0.
        ValueError: class_map has a number that is no node's.
        UnsupportedError: there is no head, or heads differ in the number of classes.

    Source: AlexeyAB/darknet network.c get_network_boxes.
    """
    if min(*picture_size, *net_size) < 1:
        raise ShapeError(f"expected picture and network sides of 1 pixel or more, got {picture_size} and {net_size}")
    asked = _Question(image_index, Limits(thresh, hier, tuple(class_map)), net_size, picture_size)
    classes = _common_classes(heads, asked)
    dtype = detections_dtype(classes, uncertainty=any(kind.lower() == "gaussian_yolo" for _, _, kind in heads))
    parts = [np.empty(0, dtype)]
    for index, layer, name in heads:
        kind = name.lower()
        if not layer.output or not 0 <= image_index < layer.batch:
            held = f"layer {index} holds outputs of {layer.batch} images"
            raise StateError(f"{held}, not image {image_index}: run forward first")
        arrays = _read_head(layer, kind, asked)
        _unbox(arrays, kind, asked, letter, relative, rule)
        parts.append(_rows(arrays, index, dtype))
    return np.concatenate(parts).view(Detections)


def _common_classes(heads: Sequence[Head], asked: _Question) -> int:
    if not heads:
        raise UnsupportedError("boxes need a [yolo], [region] or other head, this network has none: use forward for its output")
    counts = {index: asked.classes(layer) for index, layer, _ in heads}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"layer {index}: {classes}" for index, classes in counts.items())
        raise UnsupportedError(f"all heads must have the same number of classes, got {told}")
    for _, layer, _ in heads:
        if strange := [node for node in asked.map_for(layer) if not 0 <= node < layer.classes]:
            raise ValueError(f"expected class_map to name nodes 0 to {layer.classes - 1}, got {strange[0]}")
    return next(iter(counts.values()))


def _read_head(layer: Any, kind: str, asked: _Question) -> _HeadArrays:
    question = ffi.new("decoding *")
    question.thresh, question.hier = asked.limits.thresh, asked.limits.hier
    question.w, question.h = asked.picture_size if kind == "detection" else asked.net_size
    numbers, scratch = ffi.new("int[]", asked.map_for(layer)), ffi.new("float[]", layer.classes + 1)
    question.n_map, question.scratch = len(numbers), scratch
    question.map = numbers if len(numbers) else ffi.NULL
    if kind in _COUNTED:
        count = lib.yolo_num_detections(layer, asked.image, question.thresh)
    else:
        count = (layer.side**2 or layer.h * layer.w) * layer.n
    arrays = _HeadArrays.empty(count, asked.classes(layer))
    getattr(lib, f"get_{kind}_detections")(layer, asked.image, question, arrays.rows())
    return arrays


def _unbox(arrays: _HeadArrays, kind: str, asked: _Question, letter: bool, relative: bool, rule: LayerRule) -> None:
    """From the network's input to the picture; the forks that have [Gaussian_yolo] divide there, whatever they do elsewhere."""
    if kind == "detection":
        return
    how = enum("unbox", "divide ratio" if kind == "gaussian_yolo" else rule.unbox)
    pointer = ffi.from_buffer("box[]", arrays.boxes)
    lib.correct_yolo_boxes(pointer, len(arrays.boxes), *asked.picture_size, *asked.net_size, letter, relative, how)


def _rows(arrays: _HeadArrays, layer: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    rows = np.empty(len(arrays.boxes), dtype)
    rows["box"], rows["objectness"], rows["probs"], rows["layer"] = arrays.boxes, arrays.objectness, arrays.probs, layer
    rows["anchor"], rows["cell"] = arrays.origins["anchor"], arrays.origins["cell"]
    if "uncertainty" in (dtype.names or ()):
        rows["uncertainty"] = arrays.uncertainty
    _set_best(rows)
    return rows


def _set_best(rows: npt.NDArray[np.void]) -> None:
    """class_id and prob from probs: the largest, the first of equals, -1 and 0 where none is over 0."""
    probs = np.where(rows["probs"] > 0, rows["probs"], np.float32(0))
    if not probs.size:
        rows["class_id"], rows["prob"] = -1, 0
        return
    best = probs.argmax(axis=1)
    rows["prob"] = np.take_along_axis(probs, best[:, None], axis=1)[:, 0]
    rows["class_id"] = np.where(rows["prob"] > 0, best, -1)


def suppress(detections: Detections, *, kind: NmsKind, thresh: float, beta: float = 0.6, rule: LayerRule) -> Detections:
    """Non-maximum suppression as the fork leaves it: nothing is removed, what is suppressed has probability 0.

    Args:
        detections: rows of `decode`; they stay as they are.
        kind: "sort" or "default" (class by class), "obj" (by objectness, whatever the class), "greedynms", "diounms" or
            "cornersnms" (class by class, with the distance of the centres in the first two).
        thresh: overlap over which the less probable box goes.
        beta: exponent of the distance, of "diounms" only.
        rule: of the profile.

    Returns:
        The rows in the order that the fork leaves them in, class_id and prob found anew.

    Raises:
        ValueError: a kind that there is not.
        DtypeError: an array that is no Detections.

    Source: box.c do_nms_sort, do_nms_obj (all forks), diounms_sort (AlexeyAB/darknet).
    """
    power = enum("precision", rule.arithmetic.diou)
    return _suppress(detections, kind, thresh, beta, enum("iou", rule.iou), power)


def _suppress(detections: Detections, kind: NmsKind, thresh: float, beta: float, iou: int, power: int) -> Detections:
    if kind not in _NMS:
        raise ValueError(f"expected a kind of non-maximum suppression ({', '.join(_NMS)}), got {kind!r}")
    if not isinstance(detections, Detections) or "probs" not in (detections.dtype.names or ()):
        raise DtypeError(f"expected Detections, as Network.detect returns them, got {type(detections).__name__}")
    count, classes = len(detections), detections.dtype["probs"].shape[0]
    boxes = np.ascontiguousarray(detections["box"])
    objectness, probs = detections["objectness"].copy(), detections["probs"].copy()
    order = np.empty(count, np.uintp)
    typed = (("box[]", boxes), ("float[]", objectness), ("float[]", probs), ("size_t[]", order))
    pointers = [ffi.from_buffer(kind_of, array) for kind_of, array in typed]
    check(lib.do_nms(_NMS[kind], *pointers, count, classes, thresh, beta, iou, power))
    result: Detections = detections[order]
    result["objectness"], result["probs"] = objectness[order], probs[order]
    _set_best(result)
    return result


def kept(detections: Detections) -> Detections:
    """The rows that have a probability left, in their order."""
    rows: Detections = detections[detections["class_id"] >= 0]
    return rows


def nms(detections: Detections, *, kind: NmsKind = "default", thresh: float, beta: float = 0.6) -> Detections:
    """Non-maximum suppression: the rows that are left, in the fork's final order, suppressed classes at 0.

    Args:
        detections: rows of `Network.detect`; they stay as they are.
        kind: see `suppress`.
        thresh: overlap over which the less probable box goes, 0 to 1.
        beta: exponent of the centres' distance, of "diounms" only.

    Raises:
        ValueError: a kind that there is not, or a threshold outside 0 to 1.
        DtypeError: an array that is no Detections.
    """
    if not 0 <= thresh <= 1:
        raise ValueError(f"expected thresh from 0 to 1, got {thresh!r}")
    # No rule to choose: the forks differ in boxes without area, 0/0 or 0, and neither is over a threshold from 0; and in the last
    # bit of the power of "diounms".
    return kept(_suppress(detections, kind, thresh, beta, enum("iou", "zero guard"), enum("precision", "double")))
