"""The bytes of a `.weights` file: a header, then the arrays of each layer in file order, float32, little-endian.

header  major, minor, revision as int32, then the counter of images seen: 64 bits from version 0.2 on, 32 bits before
arrays  convolutional  biases [scales rolling_mean rolling_variance] weights
        connected      biases weights [scales rolling_mean rolling_variance]
        batchnorm      three or four arrays, by dialect
        shortcut       weights, where it has any; implicit weights, local biases weights
        recurrent      the arrays of each connected or convolutional layer inside, in the dialect's order

A major or minor above 1000 means that connected weights are stored transposed, flipped=1 that a convolution's are.

Source: pjreddie/darknet src/parser.c load_weights_upto, AlexeyAB/darknet src/parser.c.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ._native import Array
from .contents import foreign
from .dialect import Dialect
from .errors import WeightsError
from .files import write_atomically
from .layers import Layer

__all__ = [
    "Entry",
    "Header",
    "Source",
    "counter_bytes",
    "entries",
    "header_of",
    "open_weights",
    "read_arrays",
    "read_header",
    "write_file",
    "write_weights",
]

_FLOAT = 4
_VERSION = struct.Struct("<iii")
_SCALES = ("scales", "rolling_mean", "rolling_variance")


@dataclass(frozen=True, slots=True)
class Header:
    """Version and counter of a file.

    Args:
        major, minor, revision: as stored.
        seen: images that the network was trained with.
        seen_bytes: 4 or 8, the counter's size in the file.
    """

    major: int
    minor: int
    revision: int
    seen: int
    seen_bytes: int = 8

    @property
    def nbytes(self) -> int:
        """Bytes of the header in the file."""
        return _VERSION.size + self.seen_bytes

    @property
    def transposed(self) -> bool:
        """Whether connected weights are stored as (inputs, outputs)."""
        return self.major > 1000 or self.minor > 1000

    @property
    def version(self) -> str:
        """Such as "0.2.5"."""
        return f"{self.major}.{self.minor}.{self.revision}"

    def to_bytes(self) -> bytes:
        """The header as stored."""
        counter = (self.seen % (1 << 8 * self.seen_bytes)).to_bytes(self.seen_bytes, "little")
        return _VERSION.pack(self.major, self.minor, self.revision) + counter


class Entry(NamedTuple):
    """An array of the file: its layer, Darknet's name, and a writable view of where it belongs."""

    layer: Layer
    name: str
    array: Array


@dataclass(frozen=True, slots=True)
class Source:
    """An opened file: what messages call it, a stream at its start, and how many bytes it holds."""

    name: str
    stream: BinaryIO
    nbytes: int


def entries(layers: Iterable[Layer], upto: int | None = None, *, writing: bool = False) -> Iterator[Entry]:
    """The arrays of a file that is read, or written, in order, of the layers below number `upto`."""
    for layer in layers:
        filed = layer.file.save if writing else layer.file.load
        if not layer.stored or not filed or (upto is not None and layer.index >= upto):
            continue
        for name, array in layer.params.items():
            if writing or layer.file.scales or name not in _SCALES:
                yield Entry(layer, name, array if writing else array[: layer.file.filters])


def _is_transposed(layer: Layer, name: str, header: Header) -> bool:
    return (name == "weights" and layer.file.flipped) or (header.transposed and layer.is_matrix(name))


def counter_bytes(major: int, minor: int, dialect: Dialect) -> int:
    """Size of the counter in a header of that version: 8 or 4."""
    below_1000 = major < 1000 and minor < 1000
    return 8 if major * 10 + minor >= 2 and (below_1000 or not dialect.seen64_below_1000) else 4


def header_of(numbers: tuple[int, int, int, int], dialect: Dialect) -> Header:
    """The header of (major, minor, revision, seen), its counter as large as the dialect's program has it."""
    major, minor, revision, seen = numbers
    return Header(major, minor, revision, seen, counter_bytes(major, minor, dialect))


# --- reading --------------------------------------------------------------------------------------------------------------------


def open_weights(weights: str | os.PathLike[str] | bytes | BinaryIO) -> Source:
    """Opens a path, bytes or a binary file.

    Raises:
        WeightsError: it does not exist, is a directory or cannot be read.
        TypeError: none of these.
    """
    if isinstance(weights, bytes | bytearray | memoryview):
        return Source("<bytes>", io.BytesIO(weights), len(weights))
    if isinstance(weights, str | os.PathLike):
        name = os.fsdecode(weights)
        if not name:
            raise WeightsError("the path of the weights is empty; pass the path of a .weights file, or its content as bytes")
        try:
            stream = Path(name).open("rb")
            size = os.fstat(stream.fileno()).st_size
        except FileNotFoundError:
            raise WeightsError(f"{name}: does not exist, expected a .weights file; check the path") from None
        except IsADirectoryError:
            raise WeightsError(f"{name}: is a directory, expected a .weights file; name the file in it") from None
        except (OSError, ValueError) as reason:
            raise WeightsError(f"{name}: cannot be read as a .weights file: {reason}") from reason
        return Source(name, stream, size)
    if not hasattr(weights, "read"):
        raise TypeError(f"weights is a path, bytes or a binary file, got {type(weights).__name__}")
    data = weights.read()
    if not isinstance(data, bytes):
        raise TypeError(f"weights has to be a file opened for reading bytes ('rb'), its read() gave {type(data).__name__}")
    return Source("<file>", io.BytesIO(data), len(data))


def read_header(source: Source, dialect: Dialect, seen_bytes: int | None = None) -> Header:
    """Reads the header at the stream's start, as that dialect's program would, or with a counter of `seen_bytes`.

    Raises:
        WeightsError: the file is too short for one, or it is of another kind, such as a saved web page.
    """
    start = source.stream.read(_VERSION.size)
    if not start:
        raise WeightsError(f"{source.name}: is empty, expected a header of 16 or 20 bytes; download or copy it again", offset=0)
    if other := foreign(start):
        raise WeightsError(f"{source.name}: is {other.kind}, not Darknet weights; {other.advice}", offset=0)
    if len(start) < _VERSION.size:
        raise _short_header(source, 16)
    major, minor, revision = _VERSION.unpack(start)
    size = seen_bytes or counter_bytes(major, minor, dialect)
    counter = source.stream.read(size)
    if len(counter) < size:
        raise _short_header(source, _VERSION.size + size)
    seen = int.from_bytes(counter, "little", signed=size == 4 and dialect.seen32_signed)
    return Header(major, minor, revision, seen, size)


def _short_header(source: Source, size: int) -> WeightsError:
    message = f"{source.name}: ends inside the header after {source.nbytes} of {size} bytes; download or copy it again"
    return WeightsError(message, offset=source.nbytes)


def read_arrays(source: Source, header: Header, layers: Sequence[Layer], cfg_name: str, upto: int | None = None) -> int:
    """Fills the arrays of the layers from the stream, which stands behind the header.

    Sizes are compared before anything is written.

    Returns:
        How many bytes of the file were used, the header included.

    Raises:
        WeightsError: the file holds fewer or more bytes than the layers take; it names where it ends, or what is left over.
    """
    wanted, beyond = list(entries(layers, upto)), 0
    if upto is not None:
        beyond = sum(entry.array.nbytes for entry in entries(layer for layer in layers if layer.index >= upto))
    check_size(source, header, wanted, beyond, cfg_name)
    for layer, name, array in wanted:
        target = array
        if _is_transposed(layer, name, header):
            target = np.empty((array[0].size, len(array)), np.float32)
        _read_into(source, target)
        if target is not array:
            array[...] = target.T.reshape(array.shape)
    return header.nbytes + sum(entry.array.nbytes for entry in wanted)


def _read_into(source: Source, array: Array) -> None:
    view, done = memoryview(array.data).cast("B"), 0
    while done < len(view):
        got = source.stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise WeightsError(f"{source.name}: became shorter while it was read; nothing was loaded")
        done += got


def check_size(source: Source, header: Header, wanted: list[Entry], beyond: int, cfg_name: str) -> None:
    """Raises a WeightsError that says where the file ends, unless header and arrays fill it exactly.

    After the wanted arrays there may be those of all other layers, `beyond` bytes.
    """
    floats = sum(entry.array.size for entry in wanted)
    difference = source.nbytes - header.nbytes - floats * _FLOAT
    if difference in (0, beyond):
        return
    held, rest = divmod(source.nbytes - header.nbytes, _FLOAT)
    odd = f" and {rest} bytes" if rest else ""
    message = f"{source.name}: holds {held:,} floats{odd} after a {header.nbytes}-byte header of version {header.version}"
    message += f", but {cfg_name} takes {floats:,}"
    if difference > 0:
        extra = f"{difference:,} bytes are left over after the last array"
        hint = "it belongs to another cfg, or to one with other classes or filters"
        raise WeightsError(f"{message}: {extra}; {hint}{_counter_hint(header, difference)}", offset=source.nbytes - difference)
    if not held and not rest:
        raise WeightsError(f"{message}: it is a header with zero parameters; take the whole file", offset=source.nbytes)
    raise _too_short(source, header, wanted, f"{message}, {-difference:,} bytes more", _counter_hint(header, difference))


def _counter_hint(header: Header, difference: int) -> str:
    other = 12 - header.seen_bytes
    if header.seen_bytes + difference != other:
        return ""
    return f"; or its counter has {other} bytes, as some programs wrote it: then load it with seen_bytes={other}"


def _too_short(source: Source, header: Header, wanted: list[Entry], message: str, hint: str) -> WeightsError:
    offset = header.nbytes
    for entry in wanted:
        layer, name, array = entry
        if offset + array.nbytes > source.nbytes:
            break
        offset += array.nbytes
    held = (source.nbytes - offset) // _FLOAT
    place = f"layer {layer.index} [{layer.type}] {name} (line {layer.line})"
    first = offset == source.nbytes and next(iter(layer.params)) == name
    if first:
        message += f": it ends exactly before layer {layer.index} [{layer.type}], as a file of the layers before it does"
        message += f"; load those with upto={layer.index}, or take the whole file"
    else:
        message += f": it ends in {place} after {held:,} of {array.size:,} values; it is cut off, or of another model"
    return WeightsError(message + hint, offset=source.nbytes, layer=layer.index, array=name)


# --- writing --------------------------------------------------------------------------------------------------------------------


def write_weights(stream: BinaryIO, header: Header, layers: Iterable[Layer], upto: int | None = None) -> None:
    """Writes header and arrays to a binary stream."""
    stream.write(header.to_bytes())
    for layer, name, array in entries(layers, upto, writing=True):
        stored = array.reshape(len(array), -1).T if _is_transposed(layer, name, header) else array
        stream.write(np.ascontiguousarray(stored).data)


def write_file(path: str | os.PathLike[str], header: Header, layers: Iterable[Layer], upto: int | None = None) -> None:
    """Writes a file as `files.write_atomically` does.

    Raises:
        WeightsError: it cannot be written; an old file is as it was.
    """
    try:
        write_atomically(path, lambda stream: write_weights(stream, header, layers, upto))
    except OSError as reason:
        raise WeightsError(f"{os.fspath(path)}: cannot be written, and is as it was: {reason}") from reason
