"""Pictures as Darknet sees them: planar float32 (c, h, w), resized and letterboxed bit for bit like the forks.

The arithmetic is float32 throughout, in the order of the C sources of the three forks, which agree on these functions
(src/image.c: resize_image, letterbox_image, resize_min, crop_image, rgbgr_image, load_image_stb). Every result is a new
array. Where a picture is asked for, a path, bytes, a binary file or a PIL image does as well: see `load_image`.
"""

from __future__ import annotations

import operator
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ._reading import Floats, Source, describe, from_array, load_image
from .errors import DtypeError, ImageError, ShapeError

__all__ = ["crop", "fit", "from_array", "letterbox", "load_image", "resize", "resize_min", "rgbgr"]

Picture: TypeAlias = "Floats | Source"

_ONE = np.float32(1)
_EXPECTED = "expected float32 (c, h, w) in 0..1; for uint8 (h, w, 3) use pydarknetbn.image.from_array(...)"


def resize(image: Picture, w: int, h: int) -> Floats:
    """Stretch a picture to w x h: corner-aligned bilinear, first along rows, then along columns.

    Position c of the target reads the source at c * (source - 1) / (target - 1), so the corners fall together; the last
    column is copied. The last row keeps a habit of all three forks: it is (1 - dy) times one source row without its
    neighbour. Where float32 rounds its position just below the source's last row (about one pair of heights in twenty,
    such as 2 to 42 or 7 to 320), that row comes out almost black, here as there. The same size gives a copy.

    A target of width 1 takes the last column, as the forks do. For a target of height 1 they divide by zero and give
    NaN; here it is the first row.

    Args:
        image: float32 (c, h, w), any number of channels and any strides, or a source of `load_image`.
        w: width of the result in pixels.
        h: height of the result in pixels.

    Returns:
        float32 (c, h, w), C order.

    Raises:
        DtypeError: the array is not float32.
        ShapeError: the array is not (c, h, w), or w or h is no integer of at least 1.
        ImageError: a source that cannot be read.

    Source: AlexeyAB/darknet src/image.c resize_image (pjreddie/darknet differs only in that it computes the copy).
    """
    return _resize(_picture(image, "resize"), _length(w, "resize: w"), _length(h, "resize: h"))


def letterbox(image: Picture, w: int, h: int) -> Floats:
    """Fit a picture into w x h with its aspect ratio kept, in the middle of a field of .5.

    Sizes and offsets are integer divisions: new_h = source_h * w // source_w where the width decides, offset =
    (h - new_h) // 2. So a spare row or column lies below or right.

    A picture so thin that nothing of it would be left (new_w or new_h is 0) is an error: the forks go on with a field
    of plain .5, in which no network finds anything. `resize` takes such a picture.

    Args:
        image: as in `resize`.
        w: width of the result in pixels.
        h: height of the result in pixels.

    Returns:
        float32 (c, h, w), C order.

    Raises:
        DtypeError, ShapeError, ImageError: as `resize`; ShapeError also for a picture too thin for w x h.

    Source: pjreddie/darknet src/image.c letterbox_image, embed_image.
    """
    source = _picture(image, "letterbox")
    w, h = _length(w, "letterbox: w"), _length(h, "letterbox: h")
    c, source_h, source_w = source.shape
    if np.float32(w) / np.float32(source_w) < np.float32(h) / np.float32(source_h):
        new_w, new_h = w, source_h * w // source_w
    else:
        new_w, new_h = source_w * h // source_h, h
    if new_w < 1 or new_h < 1:
        was = f"a picture of {source_w}x{source_h} (w x h)"
        raise ShapeError(f"letterbox to {w}x{h}: {was} would shrink to {new_w}x{new_h}, to nothing; crop it or use resize")
    boxed = np.full((c, h, w), 0.5, dtype=np.float32)
    left, top = (w - new_w) // 2, (h - new_h) // 2
    boxed[:, top : top + new_h, left : left + new_w] = _resize(source, new_w, new_h)
    return boxed


def fit(image: Picture, w: int, h: int, *, how: Literal["letterbox", "stretch"]) -> Floats:
    """Bring a picture to the size of a network in the way that is named; there is no default.

    pjreddie's detector letterboxes, AlexeyAB's and hank-ai's stretch unless told otherwise.

    Args:
        image: as in `resize`.
        w: width of the result in pixels.
        h: height of the result in pixels.
        how: "letterbox" (`letterbox`) or "stretch" (`resize`).

    Returns:
        float32 (c, h, w), C order.

    Raises:
        ImageError: how is neither of the two, or a source that cannot be read.
        DtypeError, ShapeError: as `letterbox` and `resize`.
    """
    if how == "letterbox":
        return letterbox(image, w, h)
    if how == "stretch":
        return resize(image, w, h)
    raise ImageError(f'fit: how: expected "letterbox" or "stretch", got {how!r}')


def resize_min(image: Picture, size: int) -> Floats:
    """Resize so that the shorter side becomes `size` and the other follows by integer division.

    Args:
        image: as in `resize`.
        size: length of the shorter side in pixels.

    Returns:
        float32 (c, h, w), C order; a copy where the size is right already.

    Raises:
        DtypeError, ShapeError, ImageError: as `resize`.

    Source: pjreddie/darknet src/image.c resize_min.
    """
    source = _picture(image, "resize_min")
    size = _length(size, "resize_min: size")
    _, h, w = source.shape
    new_w, new_h = (size, h * size // w) if w < h else (w * size // h, size)
    return _resize(source, new_w, new_h)


def crop(image: Picture, dx: int, dy: int, w: int, h: int) -> Floats:
    """Cut out w x h pixels from column dx and row dy on; outside the picture its edge is repeated.

    Args:
        image: as in `resize`.
        dx: first column, in pixels; may be negative or beyond the picture.
        dy: first row, likewise.
        w: width of the result in pixels.
        h: height of the result in pixels.

    Returns:
        float32 (c, h, w), C order.

    Raises:
        DtypeError, ShapeError, ImageError: as `resize`.

    Source: pjreddie/darknet src/image.c crop_image.
    """
    source = _picture(image, "crop")
    columns = _clamped(_integer(dx, "crop: dx"), _length(w, "crop: w"), source.shape[2])
    rows = _clamped(_integer(dy, "crop: dy"), _length(h, "crop: h"), source.shape[1])
    return np.take(np.take(source, rows, axis=1), columns, axis=2)


def rgbgr(image: Picture) -> Floats:
    """Swap channels 0 and 2, so RGB becomes BGR and BGR becomes RGB.

    Args:
        image: as in `resize`, of at least 3 channels; the others stay.

    Returns:
        float32 (c, h, w), C order.

    Raises:
        ShapeError: fewer than 3 channels, or not (c, h, w).
        DtypeError, ImageError: as `resize`.

    Source: pjreddie/darknet src/image.c rgbgr_image.
    """
    swapped = np.array(_picture(image, "rgbgr"), order="C")
    if swapped.shape[0] < 3:
        raise ShapeError(f"rgbgr: expected at least 3 channels, got {swapped.shape[0]}")
    swapped[[0, 2]] = swapped[[2, 0]]
    return swapped


def _resize(source: Floats, w: int, h: int) -> Floats:
    if source.shape[1:] == (h, w):
        return np.array(source, order="C")
    with np.errstate(all="ignore"):  # values that are not finite pass as in C
        return _rows(_columns(source, w), h)


def _columns(source: Floats, w: int) -> Floats:
    """First pass: (c, h, source w) to (c, h, w)."""
    if w == 1 or source.shape[2] == 1:
        return np.repeat(source[:, :, -1:], w, axis=2)
    index, right = _positions(source.shape[2], w)
    part = np.take(source, index, axis=2, mode="clip")
    part *= _ONE - right
    neighbour = np.take(source, index + 1, axis=2, mode="clip")
    neighbour *= right
    part += neighbour
    part[:, :, -1] = source[:, :, -1]
    return part


def _rows(part: Floats, h: int) -> Floats:
    """Second pass: (c, source h, w) to (c, h, w); the last row gets no share of a row below."""
    if h == 1 or part.shape[1] == 1:
        return np.repeat(part[:, :1], h, axis=1)
    index, below = _positions(part.shape[1], h)
    resized = np.take(part, index, axis=1, mode="clip")
    resized *= (_ONE - below)[:, None]
    neighbour = np.take(part, index[:-1] + 1, axis=1, mode="clip")
    neighbour *= below[:-1, None]
    resized[:, :-1] += neighbour
    return resized


def _positions(source: int, target: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """Give for each target position the source index left of it and its distance from there, all in float32."""
    scale = np.float32(source - 1) / np.float32(target - 1)
    position = np.arange(target).astype(np.float32) * scale
    index = position.astype(np.intp)
    return index, position - index.astype(np.float32)


def _clamped(start: int, length: int, source: int) -> npt.NDArray[np.intp]:
    """Indices start .. start + length - 1, each brought into 0 .. source - 1."""
    near = min(max(start, -length), source)  # farther away only the edge is seen, and int64 could overflow
    return np.clip(np.arange(near, near + length), 0, source - 1)


def _picture(image: Picture, place: str) -> Floats:
    if not isinstance(image, np.ndarray):
        return load_image(image)
    if image.dtype != np.float32:
        raise DtypeError(f"{place}: {_EXPECTED}; got {describe(image)}")
    if image.ndim != 3 or image.size == 0:
        raise ShapeError(f"{place}: {_EXPECTED}; got shape {image.shape}")
    return image


def _length(value: int, place: str) -> int:
    number = _integer(value, place)
    if number < 1:
        raise ShapeError(f"{place}: expected an integer of at least 1, got {value!r}")
    return number


def _integer(value: int, place: str) -> int:
    try:
        return operator.index(None if isinstance(value, (bool, np.bool_)) else value)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{place}: expected an integer, got {value!r}") from None
