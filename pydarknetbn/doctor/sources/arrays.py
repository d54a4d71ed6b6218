"""Activations that another program wrote: a dict, an .npz, a folder of .npy."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DtypeError, WeightsError
from ..trace import Trace
from .collecting import Collector, Floats, as_array

__all__ = ["trace_of_arrays", "trace_of_folder", "trace_of_npz"]

_INPUT = "input"


def trace_of_arrays(arrays: Mapping[Any, Any], batch: int, *, source: str, given: Any = None, framework: str = "arrays") -> Trace:
    """Of arrays by name, in the order of the mapping.

    Args:
        arrays: of NumPy or PyTorch; of a single image also without the batch's axis. "input" is what was computed from.
        batch: images.
        source: how the trace is called.
        given: the input, where it is not among the arrays.
        framework: of the trace.

    Raises:
        DtypeError: something else is among them.
        StateError: none has floats of that batch.
    """
    collector = Collector(batch)
    for name, value in arrays.items():
        array = as_array(value)
        if array is None:
            raise DtypeError(f"{source}: {name!r} is a {type(value).__name__}; expected an array")
        array = _with_batch(array, batch)
        if name == _INPUT:
            given = array if given is None else given
        else:
            collector.add(str(name), array)
    return collector.trace(source, framework, given=_floats(given))


def trace_of_npz(path: Path, batch: int, *, given: Any = None) -> Trace:
    """Of an .npz, in the order of the file.

    Raises:
        WeightsError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return trace_of_arrays({name: arrays[name] for name in arrays.files}, batch, source=path.name, given=given)
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, EOFError) as reason:
        if isinstance(reason, WeightsError):
            raise
        raise WeightsError(f"{path}: cannot be read as an .npz of arrays: {_line(reason)}") from reason


def trace_of_folder(path: Path, batch: int, *, given: Any = None) -> Trace:
    """Of the .npy files of a folder, in the order of their names, numbers in these as numbers.

    Raises:
        WeightsError: there are none, or one cannot be read.
    """
    files = sorted(
        path.glob("*.npy"), key=lambda file: [(part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", file.stem)]
    )
    if not files:
        raise WeightsError(f"{path}: holds no .npy files")
    arrays = {}
    for file in files:
        try:
            arrays[file.stem] = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as reason:
            raise WeightsError(f"{file}: cannot be read as an array: {_line(reason)}") from reason
    return trace_of_arrays(arrays, batch, source=path.name, given=given)


def _with_batch(array: npt.NDArray[Any], batch: int) -> npt.NDArray[Any]:
    """One image, as (c, h, w), as a batch."""
    alone = batch == 1 and array.ndim in (1, 3) and array.shape[0] != 1
    return array[None] if alone else array


def _floats(value: Any) -> Floats | None:
    array = as_array(value)
    return None if array is None or array.dtype.kind != "f" else array


def _line(reason: BaseException) -> str:
    return (str(reason).splitlines() or [type(reason).__name__])[0]
