"""What a file of another kind is that stands under the name of a .weights: its first bytes tell."""

from __future__ import annotations

import codecs
from typing import NamedTuple

__all__ = ["START", "Foreign", "foreign"]

START = 12
"""How many bytes are looked at: as many as the version of a .weights takes, whose small numbers no other format begins with."""

_LFS = b"version http"
_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"


class Foreign(NamedTuple):
    """A kind of file that is no .weights, and what to do with it."""

    kind: str
    advice: str


_CONVERT = "write a .weights from it with the program that made it"
_UNPACK = "unpack it and take the .weights in it"
_MAGIC = (
    (b"PK\x03\x04", Foreign("a zip archive, as PyTorch's .pt and NumPy's .npz are", f"{_UNPACK}, or {_CONVERT}")),
    (b"\x1f\x8b", Foreign("a gzip archive", _UNPACK)),
    (b"BZh", Foreign("a bzip2 archive", _UNPACK)),
    (b"\xfd7zXZ\0", Foreign("an xz archive", _UNPACK)),
    (b"7z\xbc\xaf'\x1c", Foreign("a 7-Zip archive", _UNPACK)),
    (b"Rar!\x1a\x07", Foreign("a RAR archive", _UNPACK)),
    (b"\x89HDF\r\n\x1a\n", Foreign("an HDF5 file, as Keras writes", _CONVERT)),
    (b"\x93NUMPY", Foreign("a NumPy array", _CONVERT)),
    (b"\x89PNG\r\n\x1a\n", Foreign("a PNG picture", "name the .weights file")),
    (b"\xff\xd8\xff", Foreign("a JPEG picture", "name the .weights file")),
    (b"\x7fELF", Foreign("a program", "name the .weights file")),
)


def foreign(start: bytes) -> Foreign | None:
    """What the first `START` bytes of a file say that it is; None for what may be a .weights."""
    start = start[:START]
    if start.startswith(_LFS):
        return Foreign("a git-lfs pointer", "get the file itself with `git lfs pull`")
    return _text(start) or next((kind for magic, kind in _MAGIC if start.startswith(magic)), None) or _structured(start)


def _text(start: bytes) -> Foreign | None:
    # The small numbers of a version leave zero bytes, which no text has.
    printable = all(byte >= 32 or byte in b"\t\n\r" for byte in start)
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
    except UnicodeDecodeError:
        return None
    if not printable or len(start) < 8:
        return None
    kind = "an HTML page" if text.lstrip().startswith("<") else "text"
    return Foreign(f"{kind} ({text!r} …)", "download the raw file")


def _structured(start: bytes) -> Foreign | None:
    """Formats that begin with a length or a field instead of a name."""
    if len(start) < START:
        return None
    if start[0] == 0x80 and 2 <= start[1] <= 5 and start[2] != 0:
        return Foreign("a Python pickle, as PyTorch's older .pt are", _CONVERT)
    if start[8:9] == b"{" and start[9:10] in b'"} ' and int.from_bytes(start[:8], "little") > 0:
        return Foreign("a safetensors file", _CONVERT)
    if start[0] == 0x08 and 1 <= start[1] < 0x80 and start[2] in _ONNX_FIELDS:
        return Foreign("an ONNX model", _CONVERT)
    return Foreign("a TensorFlow Lite model", _CONVERT) if start[4:8] == b"TFL3" else None
