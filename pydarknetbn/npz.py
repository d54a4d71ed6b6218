"""NumPy's .npz, written array by array so that no more than one is held, and read with nothing in it believed."""

from __future__ import annotations

import io
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .errors import DumpError

__all__ = ["METADATA", "read_arrays", "read_metadata", "write_arrays"]

METADATA = "__metadata__"
"""The key of what stands beside the arrays, as JSON text; no layer is called so."""

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # equal contents give equal bytes
# what zipfile and NumPy raise at bytes that are none of theirs
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OverflowError),
    *(ValueError, TypeError, KeyError, NotImplementedError, RuntimeError),
)
_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{'descr': '(?P<dtype>[<>|][biufU]\d{1,9})', 'fortran_order': False, "
    r"'shape': \((?P<shape>(?:\d{1,15}(?:, ?|(?=\))))*)\),? *\} *\n"
)
_LONGEST_METADATA = 10_000_000


def write_arrays(stream: BinaryIO, arrays: Iterable[tuple[str, NDArray[Any]]], *, packed: bool = False) -> None:
    """Writes an .npz.

    Args:
        stream: to write to.
        arrays: name and array, in order; each is let go before the next is asked for.
        packed: compressed.
    """
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, allowZip64=True) as archive:
        for name, array in arrays:
            entry = zipfile.ZipInfo(f"{name}.npy", _FIXED_TIME)
            entry.compress_type = method
            with archive.open(entry, "w", force_zip64=True) as file:
                npy.write_array(file, np.asarray(array), allow_pickle=False)


def read_arrays(path: str | os.PathLike[str], *, limit: int) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz whose maker is not known.

    Args:
        path: of the file.
        limit: how many bytes its arrays may take, as its own table of contents says; nothing is unpacked beyond that.

    Raises:
        DumpError: it is no .npz, damaged, or larger.
        OSError: it cannot be opened.
    """
    where = os.fspath(path)
    with Path(where).open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise DumpError(f"{where}: is larger than {limit:,} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > limit:
                raise DumpError(f"{where}: would unpack to {size:,} bytes; expected at most {limit:,}")
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except _DAMAGES as reason:
        if isinstance(reason, DumpError):
            raise
        told = " ".join(str(reason).split())
        raise DumpError(f"{where}: cannot be read as an .npz of arrays: {told}") from None


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """What stands under `METADATA` of an .npz, as far as it is text; {} where nothing does."""
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(f"{METADATA}.npy")
            if entry.file_size > _LONGEST_METADATA:
                return {}
            told = json.loads(str(_array(archive, entry)))
    except (*_DAMAGES, OSError):
        return {}
    return {key: value for key, value in told.items() if isinstance(value, str)} if isinstance(told, dict) else {}


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, whose header has to say what the table of contents says."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} is compressed in a way that NumPy does not write")
    with archive.open(entry) as file:
        start = file.read(len(_MAGIC) + 4)
        length = int.from_bytes(start[len(_MAGIC) + 2 :], "little")
        found = _HEADER.fullmatch(file.read(length).decode("latin-1")) if start.startswith(_MAGIC + b"\x01\x00") else None
        if not found:
            raise ValueError(f"{entry.filename} does not begin as an array of numbers or text that NumPy wrote")
        shape = tuple(int(side) for side in found["shape"].split(",") if side.strip())
        dtype = np.dtype(found["dtype"])
        left = entry.file_size - len(start) - length
        if math.prod(shape) * dtype.itemsize != left:
            raise ValueError(f"{entry.filename} tells {dtype} of shape {shape} and holds {left:,} bytes")
        data = file.read(left)
        if len(data) != left:
            raise ValueError(f"{entry.filename} ends after {len(data):,} of {left:,} bytes")
        array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape).copy()
        return array
