"""Inputs of a network from files: pictures, or an array of an .npz; or numbers from a seed."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from .. import image
from .._native import Array
from ..errors import ShapeError
from ..network import Network

__all__ = ["InputOption", "array_of", "batch_of"]

InputOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--input", metavar="PICTURE|NPZ", help="What the networks are run on. Default: numbers from a seed. May be repeated."
    ),
]


def batch_of(net: Network, sources: Sequence[Path] | None) -> Array:
    """A batch for the network.

    Args:
        net: whose input it has to fit.
        sources: pictures, resized as the dialect's detector does, and .npz files with an array `input` or but one array.

    Raises:
        ShapeError: an array that does not fit, or no array.
    """
    if not sources:
        shape = (max(1, net.time_steps), net.c, net.h, net.w)
        return np.random.default_rng(0).random(shape, np.float32)
    return np.ascontiguousarray(np.concatenate([_read(net, source) for source in sources]))


def _read(net: Network, source: Path) -> Array:
    if source.suffix.lower() in (".npz", ".npy"):
        return _array(source, (net.c, net.h, net.w))
    return image.fit(image.load_image(source), net.w, net.h, how=net.default_resize)[np.newaxis]


def array_of(source: Path) -> Array:
    """The array `input` of an .npz, or its only one, as it is.

    Raises:
        ShapeError: there is none, or it holds no numbers.
    """
    try:
        arrays = _arrays_of(source)
    except (ValueError, zipfile.BadZipFile, EOFError) as reason:
        raise ShapeError(f"{source}: cannot be read as a NumPy array: {reason}") from None
    array = arrays.get("input", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if array is None:
        raise ShapeError(f"{source}: holds {', '.join(sorted(arrays)) or 'no array'}; expected an array named input")
    if array.size == 0 or array.dtype.kind not in "fiu":
        raise ShapeError(f"{source}: holds {array.dtype} of shape {array.shape}; expected numbers")
    return array


def _array(source: Path, shape: tuple[int, int, int]) -> Array:
    array = array_of(source)
    if array.size % int(np.prod(shape)):
        raise ShapeError(
            f"{source}: holds {array.dtype} of shape {array.shape}; the network takes (batch, {shape[0]}, {shape[1]}, {shape[2]})"
        )
    return np.ascontiguousarray(array.reshape(-1, *shape), np.float32)


def _arrays_of(source: Path) -> dict[str, Array]:
    loaded = np.load(source, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"": loaded}
    with loaded:
        return {name: loaded[name] for name in loaded.files}
