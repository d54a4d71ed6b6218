"""Detections: boxes out of the heads of a network, and non-maximum suppression, to the bit of the named fork."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from ._native import check, choices, enum, ffi, lib
from .draw import draw
from .errors import DtypeError, ShapeError, StateError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

    from .dialect import LayerRule
    from .image import Picture

__all__ = ["Detections", "Head", "NmsKind", "decode", "detections_dtype", "kept", "nms", "suppress"]

NmsKind = Literal["default", "sort", "obj", "greedynms", "diounms", "cornersnms"]
Head = tuple[int, Any, Literal["yolo", "region"]]
Floats = npt.NDArray[np.float32]

_ORIGIN = np.dtype([("anchor", np.int32), ("cell", np.int32)])
_NMS = choices("nms") | {"default": enum("nms", "sort")}


def detections_dtype(classes: int) -> np.dtype[np.void]:
    """The row of a detection.

    Args:
        classes: number of classes of the network.

    Returns:
        Fields `box` (x, y, w, h: centre and size), `objectness`, `class_id` (the most probable class, -1 where no
        probability is left), `prob` (its probability), `probs` (classes), `layer` (index of the head), `anchor`
        (position in the head's mask) and `cell` (row * w + column).
    """
    return np.dtype(
        [
            ("box", np.float32, (4,)),
            ("objectness", np.float32),
            ("class_id", np.int32),
            ("prob", np.float32),
            ("probs", np.float32, (classes,)),
            ("layer", np.int32),
            ("anchor", np.int32),
            ("cell", np.int32),
        ]
    )


class Detections(np.ndarray[Any, np.dtype[np.void]]):
    """Detections of one picture: a structured array of `detections_dtype`, with the names of the classes.

    A field, `detections["box"]`, is a plain array; a part, `detections[:3]`, is Detections again and keeps the names.
    """

    names: tuple[str, ...]

    def __array_finalize__(self, obj: object) -> None:
        self.names = getattr(obj, "names", ())

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        return part.view(np.ndarray) if isinstance(part, Detections) and part.dtype.names is None else part

    def __reduce__(self) -> Any:
        function, arguments, state = cast(tuple[Any, Any, tuple[Any, ...]], super().__reduce__())
        return function, arguments, (*state, self.names)

    def __setstate__(self, state: Any) -> None:
        *array_state, self.names = state
        super().__setstate__(tuple(array_state))

    def name_of(self, class_id: int) -> str | None:
        """The name of a class, None where there is none."""
        return self.names[class_id] if 0 <= class_id < len(self.names) else None

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as dicts of plain Python values, for `json.dumps`; the box is a dict of x, y, w, h."""
        return [
            {
                "class_id": int(row["class_id"]),
                "name": self.name_of(int(row["class_id"])),
                "prob": float(row["prob"]),
                "objectness": float(row["objectness"]),
                "box": dict(zip("xywh", row["box"].tolist(), strict=True)),
                "layer": int(row["layer"]),
                "anchor": int(row["anchor"]),
                "cell": int(row["cell"]),
            }
            for row in self
        ]

    def draw(self, image: Picture) -> Image.Image:
        """The picture with these boxes on it, see `pydarknetbn.draw.draw`."""
        return draw(image, self, names=self.names)


@dataclass(frozen=True, slots=True)
class _HeadArrays:
    """What C fills for one head: (n, 4), (n), (n, classes) and (n)."""

    boxes: Floats
    objectness: Floats
    probs: Floats
    origins: npt.NDArray[np.void]

    @classmethod
    def empty(cls, count: int, classes: int) -> _HeadArrays:
        return cls(
            np.empty((count, 4), np.float32),
            np.empty(count, np.float32),
            np.empty((count, classes), np.float32),
            np.empty(count, _ORIGIN),
        )

    def pointers(self) -> tuple[Any, Any, Any, Any]:
        return (
            ffi.from_buffer("box[]", self.boxes),
            ffi.from_buffer("float[]", self.objectness),
            ffi.from_buffer("float[]", self.probs),
            ffi.from_buffer("detection_origin[]", self.origins),
        )


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
) -> Detections:
    """Reads the boxes of one image out of the heads' outputs.

    A row is there for every box whose objectness is over thresh ([yolo]) or for every cell and anchor ([region]); rows
    stand head after head, in the fork's order. A probability, objectness * class, up to thresh is 0. A NaN is over no
    threshold.

    Args:
        heads: index in the network, C layer and kind of each head; they have had a forward.
        image_index: which image of the batch.
        picture_size: width and height of the picture in pixels.
        net_size: width and height of the network's input in pixels.
        thresh: lower limit of objectness and of a class's probability, 0 to 1.
        letter: the picture was letterboxed into the input, not stretched.
        rule: of the profile.
        relative: boxes in parts of the picture's width and height instead of pixels.

    Raises:
        StateError: a head holds no output for that image.
        ShapeError: a side of the picture or of the network is not over 0.
        UnsupportedError: there is no head, or heads differ in the number of classes.

    Source: AlexeyAB/darknet network.c get_network_boxes.
    """
    if min(*picture_size, *net_size) < 1:
        raise ShapeError(f"expected picture and network sides of 1 pixel or more, got {picture_size} and {net_size}")
    classes = _common_classes(heads)
    parts = [np.empty(0, detections_dtype(classes))]
    for index, layer, kind in heads:
        if not layer.output or not 0 <= image_index < layer.batch:
            held = f"layer {index} holds outputs of {layer.batch} images"
            raise StateError(f"{held}, not image {image_index}: run forward first")
        arrays = _read_head(layer, kind, image_index, net_size, thresh)
        lib.correct_yolo_boxes(
            arrays.pointers()[0],
            len(arrays.boxes),
            *picture_size,
            *net_size,
            letter,
            relative,
            enum("unbox", rule.unbox),
        )
        parts.append(_rows(arrays, index))
    return np.concatenate(parts).view(Detections)


def _common_classes(heads: Sequence[Head]) -> int:
    if not heads:
        raise UnsupportedError("boxes need a [yolo] or [region] layer, this network has none: use forward for its output")
    counts = {index: int(layer.classes) for index, layer, _ in heads}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"layer {index}: {classes}" for index, classes in counts.items())
        raise UnsupportedError(f"all heads must have the same number of classes, got {told}")
    return next(iter(counts.values()))


def _read_head(layer: Any, kind: str, image_index: int, net_size: tuple[int, int], thresh: float) -> _HeadArrays:
    if kind == "region":
        arrays = _HeadArrays.empty(layer.h * layer.w * layer.n, layer.classes)
        lib.get_region_detections(layer, image_index, thresh, *arrays.pointers())
        return arrays
    arrays = _HeadArrays.empty(lib.yolo_num_detections(layer, image_index, thresh), layer.classes)
    lib.get_yolo_detections(layer, image_index, thresh, *net_size, *arrays.pointers())
    return arrays


def _rows(arrays: _HeadArrays, layer: int) -> npt.NDArray[np.void]:
    rows = np.empty(len(arrays.boxes), detections_dtype(arrays.probs.shape[1]))
    rows["box"], rows["objectness"], rows["probs"], rows["layer"] = arrays.boxes, arrays.objectness, arrays.probs, layer
    rows["anchor"], rows["cell"] = arrays.origins["anchor"], arrays.origins["cell"]
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
    return _suppress(detections, kind, thresh, beta, enum("iou", rule.iou))


def _suppress(detections: Detections, kind: NmsKind, thresh: float, beta: float, iou: int) -> Detections:
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
    check(lib.do_nms(_NMS[kind], *pointers, count, classes, thresh, beta, iou))
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
    # No rule to choose: the forks differ in boxes without area only, 0/0 or 0, and neither is over a threshold from 0.
    return kept(_suppress(detections, kind, thresh, beta, enum("iou", "zero guard")))
