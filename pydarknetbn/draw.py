"""Detections drawn on their picture: a frame and a tag with name and probability for each box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .errors import DtypeError
from .image import from_array, load_image

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    from .detections import Detections
    from .image import Picture

__all__ = ["draw"]

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Colour: TypeAlias = tuple[int, int, int]
Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
Rectangle: TypeAlias = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; right and bottom are the first ones outside."""

# Okabe and Ito's colours, told apart with any colour vision, neighbours far apart; class 7 has class 0's again.
_PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
    (0, 114, 178),
)
_DARK: Colour = (16, 16, 16)
_LIGHT: Colour = (255, 255, 255)
_CASING = (0, 0, 0, 110)


@dataclass(frozen=True, slots=True)
class _Style:
    """Sizes in pixels, from the picture's."""

    line: int
    padding: int
    font: Font


@dataclass(frozen=True, slots=True)
class _Mark:
    """What is drawn of one detection."""

    box: Rectangle
    label: str
    colour: Colour


def draw(image: Picture | Bytes, detections: Detections, *, names: Sequence[str] = ()) -> Image.Image:
    """Draws the detections on a copy of the picture, the most probable on top.

    Rows without a probability left are not drawn. A box is cut at the picture's edge, so that its frame stays visible;
    a tag lies above its box where there is room, and within the picture always.

    Args:
        image: a picture, see `pydarknetbn.image`, or uint8 pixels (h, w, 3).
        detections: boxes in pixels of that picture.
        names: of the classes, by default those of the detections; a class without one is told by its number.

    Returns:
        A new RGB picture of the same size.

    Raises:
        DtypeError, ShapeError: an array that is no picture.
        ImageError: a source that cannot be read.
    """
    from PIL import ImageDraw  # noqa: PLC0415 Pillow takes as long to import as this package

    canvas = _canvas(image)
    style = _style(canvas.size)
    marks = _marks(detections, tuple(names) or detections.names, canvas.size)
    pencil = ImageDraw.Draw(canvas, "RGBA")
    for mark in reversed(marks):
        _frame(pencil, mark, style.line)
    tags = _place_tags(marks, style, canvas.size)
    for mark, (tag, label) in reversed(list(zip(marks, tags, strict=True))):
        _tag(pencil, tag, label, mark.colour, style)
    return canvas


def _canvas(image: Picture | Bytes) -> Image.Image:
    from PIL import Image  # noqa: PLC0415

    if not isinstance(image, np.ndarray):
        floats = load_image(image)
    else:
        floats = from_array(cast(Bytes, image)) if image.dtype == np.uint8 else cast(Floats, image)
    if floats.dtype != np.float32 or floats.ndim != 3 or floats.shape[0] not in (1, 3):
        expected = "expected a float32 picture (3, h, w) or (1, h, w) in 0..1, or uint8 pixels (h, w, 3)"
        raise DtypeError(f"draw: {expected}, got {floats.dtype} {floats.shape}")
    levels = np.rint(np.clip(np.nan_to_num(floats), 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(np.broadcast_to(levels, (3, *levels.shape[1:])).transpose(1, 2, 0)))


def _style(size: tuple[int, int]) -> _Style:
    from PIL import ImageFont  # noqa: PLC0415

    short = min(size)
    text = min(max(round(short / 32), 11), 64)
    line = min(max(round(short / 230), 1), 12)
    return _Style(line=line, padding=max(text // 5, 2), font=ImageFont.load_default(text))


def _marks(detections: Detections, names: Sequence[str], size: tuple[int, int]) -> list[_Mark]:
    """The rows to draw, most probable first."""
    rows = detections[(detections["class_id"] >= 0) & np.isfinite(detections["box"]).all(axis=1)]
    marks = []
    for row in rows[np.argsort(-rows["prob"], kind="stable")]:
        box = _visible(row["box"].astype(float), size)
        if box is None:
            continue
        index = int(row["class_id"])
        name = " ".join(names[index].split()) if index < len(names) else f"class {index}"
        marks.append(_Mark(box, f"{name} {row['prob']:.0%}", _PALETTE[index % len(_PALETTE)]))
    return marks


def _visible(box: npt.NDArray[np.float64], size: tuple[int, int]) -> Rectangle | None:
    """The part of a centre-and-size box inside the picture, at least one pixel; None where all is outside."""
    low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
    if (high < 0).any() or (low > size).any():
        return None
    left, top = (int(v) for v in np.clip(np.rint(low), 0, np.subtract(size, 1)))
    right, bottom = (int(v) for v in np.clip(np.rint(high), (left + 1, top + 1), size))
    return left, top, right, bottom


def _frame(pencil: ImageDraw.ImageDraw, mark: _Mark, line: int) -> None:
    """Four bars inside the box, with a dark casing on both sides that keeps them visible on any ground."""
    left, top, right, bottom = mark.box
    line = max(1, min(line, (right - left) // 4, (bottom - top) // 4))
    _hollow(pencil, (left - 1, top - 1, right + 1, bottom + 1), 1, _CASING)
    _hollow(pencil, mark.box, line, (*mark.colour, 255))
    inner = (left + line, top + line, right - line, bottom - line)
    _hollow(pencil, inner, 1, _CASING)


def _hollow(pencil: ImageDraw.ImageDraw, box: Rectangle, line: int, colour: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    if right - left <= 2 * line or bottom - top <= 2 * line:
        _fill(pencil, box, colour)
        return
    _fill(pencil, (left, top, right, top + line), colour)
    _fill(pencil, (left, bottom - line, right, bottom), colour)
    _fill(pencil, (left, top + line, left + line, bottom - line), colour)
    _fill(pencil, (right - line, top + line, right, bottom - line), colour)


def _fill(pencil: ImageDraw.ImageDraw, box: Rectangle, colour: tuple[int, ...]) -> None:
    left, top, right, bottom = box
    if right > left and bottom > top:
        pencil.rectangle((left, top, right - 1, bottom - 1), fill=colour)


def _place_tags(marks: Sequence[_Mark], style: _Style, size: tuple[int, int]) -> list[tuple[Rectangle, str]]:
    """A place for each tag, the first that covers no tag before it, else the one that covers least."""
    placed = np.empty((len(marks), 4), np.int64)
    labels = []
    for i, mark in enumerate(marks):
        label, width, height = _measure(mark.label, style, size)
        places = _places(mark.box, width, height, size)
        covered = _shared(places, placed[:i])
        placed[i] = places[int(covered.argmin())]
        labels.append(label)
    return [((int(a), int(b), int(c), int(d)), label) for (a, b, c, d), label in zip(placed, labels, strict=True)]


def _measure(label: str, style: _Style, size: tuple[int, int]) -> tuple[str, int, int]:
    """The label, cut until its tag fits into the picture, and the tag's width and height."""
    whole = label
    while label and _width(label, style) > size[0]:
        whole = whole[:-1]
        label = f"{whole}…" if whole else ""
    ascent, descent = _metrics(style.font)
    return label, min(_width(label, style), size[0]), min(ascent + descent + style.padding, size[1])


def _width(label: str, style: _Style) -> int:
    return int(np.ceil(style.font.getlength(label))) + 2 * style.padding


def _metrics(font: Font) -> tuple[int, int]:
    from PIL import ImageFont  # noqa: PLC0415

    if isinstance(font, ImageFont.FreeTypeFont):
        return font.getmetrics()
    return int(font.getbbox("Ag")[3]), 0


def _places(box: Rectangle, width: int, height: int, size: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Where a tag may lie in the picture, best first: above its box, inside at the top, below, down its sides."""
    left, top, right, bottom = box
    corners = [(left, top - height)] if top >= height else []
    corners += [(left, top), (right - width, top - height), (right - width, top)]
    corners += [(left, bottom), (right - width, bottom)]
    steps = range(top + height, max(bottom - height, top + height) + 1, height)
    corners += [(x, y) for y in steps for x in (left, right - width)]
    corners += [(x, top - height) for x in range(left + width, right - width, width)]
    extent = np.array([width, height])
    low = np.clip(np.array(corners), 0, np.array(size) - extent)
    return np.concatenate([low, low + extent], axis=1)


def _shared(places: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Pixels that each place (k, 4) shares with the others (m, 4): (k)."""
    low = np.maximum(places[:, None, :2], others[None, :, :2])
    high = np.minimum(places[:, None, 2:], others[None, :, 2:])
    shared: npt.NDArray[np.int64] = np.clip(high - low, 0, None).prod(axis=2).sum(axis=1)
    return shared


def _tag(pencil: ImageDraw.ImageDraw, tag: Rectangle, label: str, colour: Colour, style: _Style) -> None:
    if not label:
        return
    _fill(pencil, tag, (*colour, 255))
    ascent, descent = _metrics(style.font)
    top = tag[1] + (tag[3] - tag[1] - ascent - descent) / 2
    pencil.text((tag[0] + style.padding, top), label, font=style.font, fill=_ink(colour))


def _ink(ground: Colour) -> Colour:
    """Dark or light, whichever has the larger contrast (WCAG's relative luminance)."""
    red, green, blue = (v / 3294.6 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in ground)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return _DARK if (luminance + 0.05) ** 2 > 0.05 * 1.05 else _LIGHT
