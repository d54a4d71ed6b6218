"""The array of detections that a network gives for a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

    from .image import Picture

__all__ = ["Detections", "detections_dtype"]


def detections_dtype(classes: int, *, uncertainty: bool = False) -> np.dtype[np.void]:
    """The row of a detection.

    Args:
        classes: number of classes of the network.
        uncertainty: a head tells how uncertain the sides of a box are.

    Returns:
        Fields `box` (x, y, w, h: centre and size), `objectness`, `class_id` (the most probable class, -1 where no
        probability is left), `prob` (its probability), `probs` (classes), `layer` (index of the head), `anchor`
        (position in the head's mask) and `cell` (row * w + column); and with [Gaussian_yolo] `uncertainty` (of x, y, w, h: 0 to 1).
    """
    fields: list[Any] = [
        ("box", np.float32, (4,)),
        ("objectness", np.float32),
        ("class_id", np.int32),
        ("prob", np.float32),
        ("probs", np.float32, (classes,)),
        ("layer", np.int32),
        ("anchor", np.int32),
        ("cell", np.int32),
    ]
    return np.dtype(fields + [("uncertainty", np.float32, (4,))] * uncertainty)


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
        return [self._json_of(row) for row in self]

    def _json_of(self, row: np.void) -> dict[str, Any]:
        told = {
            "class_id": int(row["class_id"]),
            "name": self.name_of(int(row["class_id"])),
            "prob": float(row["prob"]),
            "objectness": float(row["objectness"]),
            "box": dict(zip("xywh", row["box"].tolist(), strict=True)),
            "layer": int(row["layer"]),
            "anchor": int(row["anchor"]),
            "cell": int(row["cell"]),
        }
        if "uncertainty" in (self.dtype.names or ()):
            told["uncertainty"] = dict(zip("xywh", row["uncertainty"].tolist(), strict=True))
        return told

    def draw(self, image: Picture) -> Image.Image:
        """The picture with these boxes on it, see `pydarknetbn.draw.draw`."""
        from .draw import draw  # noqa: PLC0415 few need it

        return draw(image, self, names=self.names)
