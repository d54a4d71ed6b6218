"""From pictures to detections, as a fork's own detector goes about it: fit, run, decode, suppress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from . import boxes, image
from ._native import Array
from .boxes import Detections, NmsKind
from .dialect import LayerRule
from .errors import ShapeError, UnsupportedError
from .layers import Layer, Shape

__all__ = ["DetectOptions", "Detector"]


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """The options of `Network.detect`, which explains them."""

    thresh: float
    hier: float
    nms: float
    nms_kind: str | None
    resize: Literal["letterbox", "stretch"]
    names: Sequence[str] | None
    mapped: bool

    def __post_init__(self) -> None:
        for name in ("thresh", "hier", "nms"):
            if not 0 <= getattr(self, name) <= 1:  # a NaN is not either
                raise ValueError(f"expected {name} from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Detector:
    """What of a network its detections depend on.

    Args:
        cfg_name: how messages call it.
        in_shape: of the network's input.
        heads: the layers that make detections.
        names: of the classes.
        rule: of the profile.
    """

    cfg_name: str
    in_shape: Shape
    heads: tuple[Layer, ...]
    names: tuple[str, ...]
    rule: LayerRule

    def detect(
        self, pictures: Any, options: DetectOptions, run: Callable[[Array, Callable[[], Detections]], Detections]
    ) -> Detections | list[Detections]:
        """The detections of a picture, or of each of a list.

        Args:
            pictures: see `Network.detect`.
            options: likewise.
            run: runs the network on one image, then calls the decoding before another thread's call changes the heads.
        """
        if not self.heads:
            raise UnsupportedError(
                f"{self.cfg_name}: has no head, such as a [yolo] or [region] layer, to take boxes from; use forward"
            )
        head = self.heads[-1].head  # the forks' detectors take non-maximum suppression from the last head
        assert head is not None
        several = isinstance(pictures, list | tuple)
        limits = boxes.Limits(options.thresh, options.hier, self._class_map() if options.mapped else ())
        kind, beta = cast(NmsKind, options.nms_kind or head.nms_kind), head.beta_nms
        names = self._names(options.mapped) if options.names is None else tuple(options.names)
        result = []
        for picture in pictures if several else [pictures]:
            found = self._detect(picture, limits, options.resize, run)
            left = boxes.kept(boxes.suppress(found, kind=kind, thresh=options.nms, beta=beta, rule=self.rule))
            left.names = names
            result.append(left)
        return result if several else result[0]

    def _detect(
        self,
        picture: Any,
        limits: boxes.Limits,
        how: Literal["letterbox", "stretch"],
        run: Callable[[Array, Callable[[], Detections]], Detections],
    ) -> Detections:
        pixels = picture if isinstance(picture, np.ndarray) else image.load_image(picture)
        x = image.fit(pixels, self.in_shape.w, self.in_shape.h, how=how)[np.newaxis]
        if pixels.shape[0] != self.in_shape.c:
            raise ShapeError(f"expected a picture of shape ({self.in_shape.c}, height, width), got {pixels.shape}")
        return run(x, lambda: self._decode((pixels.shape[2], pixels.shape[1]), limits, how == "letterbox"))

    def _decode(self, picture_size: tuple[int, int], limits: boxes.Limits, letter: bool) -> Detections:
        return boxes.decode(
            [(layer.index, layer.native, layer.type) for layer in self.heads],
            0,
            picture_size=picture_size,
            net_size=(self.in_shape.w, self.in_shape.h),
            thresh=limits.thresh,
            hier=limits.hier,
            class_map=limits.class_map,
            letter=letter,
            rule=self.rule,
        )

    def _class_map(self) -> tuple[int, ...]:
        heads = [layer.head for layer in self.heads if layer.head and layer.head.tree]
        if not heads or not heads[-1].map:
            raise UnsupportedError(f"{self.cfg_name}: has no [region] with the files of tree= and map= for mapped classes")
        return heads[-1].map

    def _names(self, mapped: bool) -> tuple[str, ...]:
        nodes = self._class_map() if mapped else ()
        return tuple(self.names[node] for node in nodes if node < len(self.names)) if mapped else self.names
