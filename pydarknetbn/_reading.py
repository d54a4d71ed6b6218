"""Reading pictures: 8-bit pixels, files and PIL images to planar float32 RGB, as Darknet's load_image_stb gives it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import DarknetError, DtypeError, ImageError, ShapeError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Floats", "Source", "describe", "from_array", "load_image"]

Floats: TypeAlias = npt.NDArray[np.float32]
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Image.Image"

_PIXELS = "(h, w, 3), (h, w, 4), (h, w, 1) or (h, w)"


def from_array(pixels: npt.NDArray[np.uint8]) -> Floats:
    """Turn 8-bit RGB pixels into a Darknet picture: value / 255, planar.

    Args:
        pixels: uint8 (h, w, 3) in RGB order, (h, w, 4) whose alpha is ignored, (h, w, 1) or (h, w) grey, any strides.
            Pixels in BGR order (OpenCV): `from_array(pixels[:, :, ::-1])`.

    Returns:
        float32 (3, h, w) in 0..1, C order.

    Raises:
        DtypeError: not a uint8 array.
        ShapeError: another shape.

    Source: pjreddie/darknet src/image.c load_image_stb: a division in double, rounded once to float. A float32 division
    of two integers below 256 is the same bits.
    """
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        hint = "floats in 0..1 need no conversion but .transpose(2, 0, 1) and .astype(numpy.float32)"
        raise DtypeError(f"from_array: expected uint8 {_PIXELS}, got {describe(pixels)}; {hint}")
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if planes.ndim != 3 or planes.shape[2] not in (1, 3, 4) or planes.size == 0:
        hint = "planar pixels need .transpose(1, 2, 0) first"
        raise ShapeError(f"from_array: expected {_PIXELS}, got {pixels.shape}; {hint}")
    picture = np.empty((3, *planes.shape[:2]), dtype=np.float32)
    picture[...] = planes[:, :, :3].transpose(2, 0, 1)
    picture /= np.float32(255)
    return picture


def load_image(source: Source) -> Floats:
    """Read a picture as RGB, as Darknet's load_image does without OpenCV.

    Grey is repeated in three channels, palettes are resolved, alpha is dropped without blending, 16 bits lose their
    lower 8. The EXIF orientation is not applied, since Darknet ignores it: boxes refer to the pixels as stored. Of a
    moving picture the first frame is read. Decoders of JPEG differ by a few grey levels from Darknet's own.

    Args:
        source: path, the bytes of a file, a file open for binary reading (from where it stands) or a PIL image.

    Returns:
        float32 (3, h, w) in 0..1, C order.

    Raises:
        OSError: the path cannot be opened (FileNotFoundError and its like).
        ImageError: no picture, a damaged one, one of a kind without 8-bit meaning, or one with more pixels than
            PIL.Image.MAX_IMAGE_PIXELS, a guard against small files that unpack to fill the memory.
        DtypeError: a source of another type.

    Source: pjreddie/darknet src/image.c load_image_stb (stbi_load with 3 channels).
    """
    from PIL import Image  # noqa: PLC0415 Pillow takes as long to import as this package

    if isinstance(source, Image.Image):
        return _decode(source, "PIL image")
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            return _decode(file, os.fspath(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _decode(io.BytesIO(source), f"picture of {memoryview(source).nbytes} bytes")
    data = source.read() if hasattr(source, "read") else None
    if isinstance(data, bytes):
        return _decode(io.BytesIO(data), str(getattr(source, "name", "picture")))
    found = "a file open for text" if isinstance(data, str) else describe(source)
    takes = "a path, bytes, a binary file or a PIL image"
    raise DtypeError(f"load_image: expected {takes}, got {found}; for uint8 arrays use from_array")


def _decode(source: BinaryIO | Image.Image, name: str) -> Floats:
    """Let Pillow decode, and turn whatever it raises into one kind of error."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    limit = f"the limit of {Image.MAX_IMAGE_PIXELS} pixels; if it is trusted, raise PIL.Image.MAX_IMAGE_PIXELS"
    try:
        if isinstance(source, Image.Image):
            return from_array(_pixels(source, name))
        with Image.open(source) as image:
            if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise ImageError(f"{name}: {image.width}x{image.height} pixels are over {limit}")
            return from_array(_pixels(image, name))
    except (DarknetError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{name}: the picture is over {limit}") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: expected a picture (JPEG, PNG, ...), got bytes of no known format") from error
    except Exception as error:  # bad bytes make the decoders raise OSError, SyntaxError, ValueError, struct.error ...
        raise ImageError(f"{name}: expected a whole picture, got a damaged or unreadable one ({error})") from error


def _pixels(image: Image.Image, name: str) -> npt.NDArray[np.uint8]:
    """Give uint8 (h, w, 3) or (h, w) of a PIL image of any mode."""
    # Pillow's own conversion clips 16 bits at 255; older versions read 16-bit grey files as mode I
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return (np.asarray(image) >> 8).astype(np.uint8)
    if image.mode in ("I", "F"):
        raise ImageError(f"{name}: expected 8 or 16 bits a channel, got mode {image.mode}; scale it for from_array")
    if "transparency" in image.info:  # a colour declared transparent would make the conversion warn
        image = image.copy()
        del image.info["transparency"]
    return np.asarray(image.convert("RGB"))


def describe(value: object) -> str:
    """Name the type of a value, and the shape of an array, for a message."""
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
