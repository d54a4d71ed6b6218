"""Many pictures, from folders and lists, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from .. import image
from .._native import Array
from ..errors import ImageError, ShapeError
from ..network import Network

__all__ = ["PictureBatches", "find_pictures"]

_ENDINGS = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
_LISTS = frozenset((".txt", ".list", ".lst"))


def find_pictures(sources: Sequence[Path]) -> tuple[Path, ...]:
    """The pictures of folders (in order of their names, folders within too), of lists (.txt, a path on each line), and files.

    Raises:
        ImageError: a source that is not there, or all together without a picture.
    """
    found = tuple(picture for source in sources for picture in _pictures_of(source))
    if not found:
        raise ImageError(
            f"{', '.join(map(str, sources))}: holds no picture; expected files that end in {', '.join(sorted(_ENDINGS))}"
        )
    return found


def _pictures_of(source: Path) -> Iterator[Path]:
    if source.is_dir():
        yield from sorted(path for path in source.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())
    elif source.suffix.lower() in _LISTS:
        yield from _listed(source)
    elif source.is_file():
        yield source
    else:
        raise ImageError(f"{source}: does not exist, expected a picture, a folder or a list of pictures")


def _listed(source: Path) -> Iterator[Path]:
    """A path of a list counts from where the command runs, as for the forks' programs, else from the list's folder."""
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ImageError(f"{source}: is no text, expected a list with the path of a picture on each line") from None
    for number, line in enumerate(lines, 1):
        path = Path(line.strip())
        if not line.strip():
            continue
        beside = source.parent / path
        if not path.is_file() and not beside.is_file():
            raise ImageError(f"{source}:{number}: {path} does not exist")
        yield path if path.is_file() else beside


@dataclass(frozen=True, slots=True)
class PictureBatches:
    """Pictures as batches of a network: a sequence that reads what is asked for.

    Args:
        net: whose input they fit.
        pictures: their paths.
        rows: of a batch; the last may have less.
        resize: see `image.fit`.
        skip: pictures that cannot be read are left out, and noted in `skipped`; else they are errors.
    """

    net: Network
    pictures: tuple[Path, ...]
    rows: int
    resize: Literal["letterbox", "stretch"]
    skip: bool = False
    skipped: dict[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return (len(self.pictures) + self.rows - 1) // self.rows

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Array:
        chosen = self.pictures[number * self.rows : (number + 1) * self.rows]
        if not chosen:
            raise IndexError(number)
        read = [picture for path in chosen if (picture := self._read(path)) is not None]
        return np.stack(read) if read else np.empty((0, self.net.c, self.net.h, self.net.w), np.float32)

    def _read(self, path: Path) -> Array | None:
        try:
            pixels = image.load_image(path)
            fitted = image.fit(pixels, self.net.w, self.net.h, how=self.resize)
        except (ImageError, ShapeError, OSError) as reason:
            told = str(reason) if str(path) in str(reason) else f"{path}: {reason}"
            if not self.skip:
                raise ImageError(f"{told}; --skip leaves such pictures out") from None
            self.skipped[path] = told
            return None
        if pixels.shape[0] != self.net.c:
            raise ShapeError(f"{path}: has {pixels.shape[0]} channels, the network takes {self.net.c}")
        return fitted

    def about(self) -> str:
        """Everything that their values depend on, but what is in the files."""
        files = [f"{path} {path.stat().st_size if path.is_file() else 0}" for path in self.pictures]
        return "\n".join([self.resize, str(self.rows), *files])
