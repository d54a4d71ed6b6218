"""Golden bundles as .npz files. A file is believed in nothing: sizes are held against each other before anything is unpacked."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from .. import image
from .._native import Array
from ..doctor.steps import Stage
from ..errors import DarknetError, DumpError
from ..files import write_atomically
from ..npz import METADATA, read_arrays, write_arrays
from .bundle import FORMAT, Golden, GoldenStep
from .given import Given, fitted, seeded, sha256

__all__ = ["INPUT_LIMIT", "read_golden", "stored_input", "write_golden"]

INPUT_LIMIT = 500_000
"""Bytes that an input may take in the file; of a larger one a seed or a small picture is kept, or nothing is made."""

_UNPACKED = 1 << 26  # bytes that a bundle may unpack to
_LARGEST = 1 << 26  # values of one array of a network
_LONGEST = 2_000  # characters of a text
_OCTAVE = 4  # steps of the noise within a factor of two
_FIELDS = ("number", "layer", "type", "line", "stage", "kind", "shape", "count", "sha256")
_MOMENTS = ("mean", "deviation", "least", "most")


# --- the input ------------------------------------------------------------------------------------------------------------------


def stored_input(given: Given) -> dict[str, Any]:
    """The smallest form that gives an input back to the bit: a seed, pixels, a picture's file, or the numbers, compressed.

    Raises:
        DumpError: none of them is small enough.
    """
    x = given.array
    if given.seed is not None:
        return {"kind": "seed", "seed": given.seed}
    pixels = np.clip(np.nan_to_num(x) * 255, 0, 255).round().astype(np.uint8)
    exact = np.array_equal(pixels / np.float32(255), x)
    candidates = [{"kind": "pixels", "data": pixels}] if exact else []
    if given.picture is not None:
        data = np.frombuffer(given.picture, np.uint8)
        candidates.append({"kind": "picture", "data": data, "resize": given.resize})
    candidates.append({"kind": "floats", "data": x})
    sizes = [_packed(candidate["data"]) for candidate in candidates]
    best = int(np.argmin(sizes))
    if sizes[best] > INPUT_LIMIT:
        held = f"the input takes {sizes[best]:,} bytes even compressed, and a golden bundle holds {INPUT_LIMIT:,} of it at most"
        raise DumpError(f"{held}; use a smaller picture file, or seed:0 instead of the input")
    return candidates[best]


def _packed(array: NDArray[Any]) -> int:
    stream = io.BytesIO()
    write_arrays(stream, [("data", array)], packed=True)
    return len(stream.getvalue())


def _input(stored: Mapping[str, Any], shape: tuple[int, ...]) -> Array:
    kind = stored["kind"]
    if kind == "seed":
        return seeded(_whole(stored["seed"]), shape)
    data = stored["data"]
    if kind == "picture":
        if data.dtype != np.uint8 or data.ndim != 1 or stored["resize"] not in ("letterbox", "stretch"):
            raise ValueError("its picture is not told as one")
        return fitted(image.load_image(data.tobytes()), (shape[1], shape[2], shape[3]), stored["resize"])
    wanted = {"pixels": np.uint8, "floats": np.float32}[kind]
    if data.dtype != wanted or data.shape != shape:
        raise ValueError(f"its input is {data.dtype} of shape {data.shape}, told as {kind} of {shape}")
    return np.asarray(data / np.float32(255) if kind == "pixels" else data, np.float32)


# --- writing --------------------------------------------------------------------------------------------------------------------


def write_golden(golden: Golden, path: str | os.PathLike[str]) -> None:
    """See `Golden.save`."""
    try:
        write_atomically(path, lambda stream: write_arrays(stream, _arrays(golden), packed=True))
    except OSError as reason:
        raise DumpError(f"{os.fspath(path)}: cannot be written, and is as it was: {reason}") from reason


def _arrays(golden: Golden) -> Iterator[tuple[str, NDArray[Any]]]:
    told = {name: value for name, value in golden.stored.items() if name != "data"}
    document = {
        "format": FORMAT,
        "about": dict(golden.about),
        "input": told | {"shape": list(golden.input.shape), "sha256": sha256(golden.input)},
        "fields": list(_FIELDS),
        "steps": [_row(step) for step in golden.steps],
    }
    yield METADATA, np.array(json.dumps(document, separators=(",", ":")))
    if "data" in golden.stored:
        yield "input", golden.stored["data"]
    yield "samples", _joined([step.samples for step in golden.steps])
    yield "means", _joined([step.means for step in golden.steps])
    noise = [np.clip(np.ceil(_OCTAVE * np.log2(step.noise)), -(1 << 15), (1 << 15) - 1) for step in golden.steps]
    yield "noise", _joined(noise).astype(np.int16)
    yield "moments", np.array([[getattr(step, name) for name in _MOMENTS] for step in golden.steps], np.float64).reshape(-1, 4)


def _row(step: GoldenStep) -> list[Any]:
    told = {name: getattr(step, name) for name in _FIELDS if name != "count"} | {"count": len(step.samples)}
    return [told[name] for name in _FIELDS]


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.float32)


# --- reading --------------------------------------------------------------------------------------------------------------------


def read_golden(path: str | os.PathLike[str]) -> Golden:
    """Reads a golden bundle.

    Raises:
        DumpError: the file is none, is damaged, of another version, or its input cannot be had again here.
        OSError: it cannot be opened.
    """
    where = os.fspath(path)
    arrays = read_arrays(where, limit=_UNPACKED)
    try:
        document = json.loads(str(arrays.get(METADATA, "{}")))
        found = document.get("format") if isinstance(document, dict) else None
        if found != FORMAT:
            raise DumpError(f"{where}: is no golden bundle of format {FORMAT!r}, but {_other(found, arrays)}")
        return _golden(document, arrays, where)
    except DumpError:
        raise
    except (DarknetError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError) as reason:
        told = " ".join(str(reason).split()) or type(reason).__name__
        raise DumpError(f"{where}: is a damaged golden bundle: {told}; make it again with `pydarknetbn dump --golden`") from None


def _other(found: object, arrays: Mapping[str, Any]) -> str:
    if isinstance(found, str) and len(found) < 100:
        return f"of {found!r}"
    return f"an .npz of {', '.join(sorted(arrays)[:4]) or 'nothing'}; make one with `pydarknetbn dump --golden`"


def _golden(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], where: str) -> Golden:
    about = {name: "".join(filter(str.isprintable, value))[:_LONGEST] for name, value in document["about"].items()}
    steps = tuple(_steps(document, arrays))
    told = document["input"]
    shape = _shape(told["shape"])
    stored = {name: told[name] for name in ("kind", "seed", "resize") if name in told}
    if "input" in arrays:
        stored["data"] = arrays["input"]
    x = _input(stored, shape)
    if sha256(x) != told["sha256"]:
        made = {"picture": "this machine's decoder reads the picture in it otherwise", "seed": "this NumPy draws other numbers"}
        why = made.get(stored["kind"], "it is damaged")
        raise DumpError(f"{where}: its input has another SHA-256 than when it was made: {why}; make it again here")
    return Golden(about, x, steps, stored)


def _steps(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Iterator[GoldenStep]:
    rows = [dict(zip(_FIELDS, row, strict=True)) for row in document["steps"]]
    shapes = [_shape(row["shape"]) for row in rows]
    counts = [_whole(row["count"]) for row in rows]
    if document["fields"] != list(_FIELDS) or any(n > math.prod(shape) for n, shape in zip(counts, shapes, strict=True)):
        raise ValueError("it tells more samples than a value has")
    samples = _parts(arrays, "samples", np.float32, counts)
    means = _parts(arrays, "means", np.float32, [shape[1] for shape in shapes])
    noise = _parts(arrays, "noise", np.int16, [shape[1] for shape in shapes])
    moments = arrays["moments"]
    if moments.dtype != np.float64 or moments.shape != (len(rows), 4) or not np.isfinite(moments).all():
        raise ValueError("its moments are not four numbers a step")
    for at, row in enumerate(rows):
        told: dict[str, Any] = {name: _whole(row[name]) for name in ("number", "layer", "line")}
        told |= {name: _text(row[name]) for name in ("type", "kind", "sha256")} | {"stage": _stage(row["stage"])}
        told |= dict(zip(_MOMENTS, map(float, moments[at]), strict=True))
        rounding = np.exp2(noise[at].astype(np.float64) / _OCTAVE)
        yield GoldenStep(**told, shape=shapes[at], samples=samples[at], means=means[at], noise=rounding)


def _parts(arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, counts: Sequence[int]) -> list[NDArray[Any]]:
    array = arrays[name]
    if array.dtype != dtype or array.shape != (sum(counts),):
        raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}, expected {sum(counts):,} of {np.dtype(dtype)}")
    return np.split(array, np.cumsum(counts)[:-1]) if counts else []


def _shape(value: Any) -> tuple[int, int, int, int]:
    sides = [_whole(side) for side in value]
    if len(sides) != 4 or min(sides) < 1 or math.prod(sides) > _LARGEST:
        raise ValueError(f"it tells a shape of {str(value)[:60]}; expected (batch, c, h, w)")
    return sides[0], sides[1], sides[2], sides[3]


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1 << 53:
        raise ValueError(f"it tells {str(value)[:40]!r} where a whole number stands")
    return value


def _stage(value: Any) -> str:
    if value not in get_args(Stage):
        raise ValueError(f"it tells {str(value)[:40]!r} where one of {', '.join(get_args(Stage))} stands")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 100 or not value.isprintable():
        raise ValueError(f"it tells {str(value)[:40]!r} where a word stands")
    return value
