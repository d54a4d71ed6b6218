"""The .safetensors format: 8 bytes with the length of a JSON header, the header, then the arrays one after another.

Source: huggingface/safetensors README.md "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_tensors", "write_tensors"]

_METADATA = "__metadata__"
_TO_NAME = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_FROM_NAME = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
_LONGEST_HEADER = 100_000_000
_ALIGNED = 8


def write_tensors(stream: BinaryIO, arrays: Iterable[tuple[str, NDArray[Any]]], metadata: Mapping[str, str]) -> None:
    """Writes arrays of float32, float16 or bfloat16 in their order."""
    arrays = list(arrays)
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, array in arrays:
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _TO_NAME[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    stream.write(len(text).to_bytes(8, "little") + text)
    for _, array in arrays:
        stream.write(np.ascontiguousarray(array).tobytes())


def read_tensors(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays, those of bfloat16 as float32, and the metadata.

    Raises:
        ValueError: it is no such file.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, _LONGEST_HEADER):
        raise ValueError(f"its first 8 bytes tell a header of {size:,} bytes, and it has {len(data):,}")
    header = json.loads(data[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    metadata = header.pop(_METADATA, {})
    body = memoryview(data)[8 + size :]
    return {name: _array(name, entry, body) for name, entry in header.items()}, metadata


def _array(name: str, entry: Any, body: memoryview) -> NDArray[Any]:
    try:
        kind, shape, (start, end) = entry["dtype"], [int(side) for side in entry["shape"]], entry["data_offsets"]
        dtype = np.dtype(_FROM_NAME[kind])
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{name} is not of a type, shape and offsets that can be read") from None
    if min(shape, default=1) < 0 or not 0 <= start <= end <= len(body) or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} is of shape {shape} and {kind}, which its bytes {start} to {end} of {len(body)} are not")
    array = np.frombuffer(body[start:end], dtype).reshape(shape)
    if kind == "BF16":  # the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
