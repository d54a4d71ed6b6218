"""What a network was given: numbers, a picture brought to its size, or a seed; so that it can be had again to the bit."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from .. import _native, image
from .._native import Array
from ..network import Network

__all__ = ["Fit", "Given", "Source", "fitted", "given_to", "seeded", "sha256"]

Fit = Literal["letterbox", "stretch"]


@dataclass(frozen=True, slots=True)
class Given:
    """The input of a network.

    Args:
        array: (batch, c, h, w).
        words: where it comes from, such as "dog.jpg (768 x 576), stretch to 416 x 416".
        seed: it was drawn from, see `seeded`; None.
        picture: the bytes of the file that it was made of; None.
        resize: how that was brought to the network's size; None for numbers.
    """

    array: Array = field(repr=False)
    words: str
    seed: int | None = None
    picture: bytes | None = field(default=None, repr=False)
    resize: Fit | None = None


Source: TypeAlias = Array | int | str | os.PathLike[str] | bytes | Given


def given_to(net: Network, x: Source, *, resize: Fit | None = None) -> Given:
    """What a network is to be run on.

    Args:
        net: the network.
        x: (batch, c, h, w), float32; a picture's path or bytes; a seed; or what this function gave for one of these.
        resize: of a picture; None takes the dialect's way.

    Raises:
        DtypeError, ShapeError, ImageError: x does not fit the network, or is no picture.
        ValueError: a seed below 0.
    """
    if isinstance(x, Given):
        return x
    shape = (net.c, net.h, net.w)
    if isinstance(x, int | np.integer):
        full = (max(1, net.time_steps), *shape)
        return Given(seeded(int(x), full), f"seed {x}: numpy.random.default_rng({x}).random({full}, numpy.float32)", seed=int(x))
    if isinstance(x, str | os.PathLike | bytes):
        return _of_picture(x, shape, resize or net.default_resize)
    if isinstance(x, np.ndarray) and x.ndim == 2 and shape[1:] == (1, 1):
        x = x.reshape(*x.shape, 1, 1)
    return Given(_native.input_array(x, "x", ("batch", *shape)), "numbers, not resized here")


def _of_picture(x: str | os.PathLike[str] | bytes, shape: tuple[int, int, int], how: Fit) -> Given:
    data = x if isinstance(x, bytes) else Path(x).read_bytes()
    name = f"a picture of {len(data):,} bytes" if isinstance(x, bytes) else Path(x).name
    picture = image.load_image(x)
    array = fitted(picture, shape, how)
    words = f"{name} ({picture.shape[2]} x {picture.shape[1]}), {how} to {shape[2]} x {shape[1]}"
    return Given(array, words, picture=data, resize=how)


def fitted(picture: Array, shape: tuple[int, int, int], how: Fit) -> Array:
    """(1, c, h, w) of a picture."""
    array = image.fit(picture, shape[2], shape[1], how=how)[np.newaxis]
    return _native.input_array(array, "the picture", ("batch", *shape))


def seeded(seed: int, shape: tuple[int, ...]) -> Array:
    """Numbers from 0 to 1: `numpy.random.default_rng(seed).random(shape, numpy.float32)`."""
    if seed < 0:
        raise ValueError(f"expected a seed of 0 or more, got {seed}")
    return np.random.default_rng(seed).random(shape, np.float32)


def sha256(array: Array) -> str:
    """Of the values as little-endian float32, in the order (batch, c, h, w)."""
    return hashlib.sha256(np.ascontiguousarray(array, "<f4").tobytes()).hexdigest()
