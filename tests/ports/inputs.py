"""What ports make of a picture otherwise than the networks' input is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import pydarknetbn as dn

from .graph import Floats

Feed = Callable[[Floats, Floats], Floats]
MEAN, DEVIATION = (np.array(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
CAFFE = np.array([123.68, 116.779, 103.939])[:, None, None]


# --- resizing -------------------------------------------------------------------------------------------------------------------


def linear(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(0, 1 - np.abs(t))


def cubic(a: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Keys' kernel: a = -.75 in OpenCV and PyTorch."""

    def kernel(t: NDArray[np.float64]) -> NDArray[np.float64]:
        t = np.abs(t)
        near, far = (a + 2) * t**3 - (a + 3) * t**2 + 1, a * (t**3 - 5 * t**2 + 8 * t - 4)
        return np.where(t < 1, near, np.where(t < 2, far, 0))

    return kernel


def matrix(source: int, target: int, kernel: Callable[..., NDArray[np.float64]], reach: int) -> NDArray[np.float64]:
    """(target, source) of weights, centres of pixels on centres; beyond the edge its pixels are repeated."""
    step = source / target
    made = np.zeros((target, source))
    for place in range(target):
        centre = (place + 0.5) * step - 0.5
        around = np.arange(int(np.floor(centre - reach)), int(np.ceil(centre + reach)) + 1)
        weights = kernel(around - centre)
        np.add.at(made[place], np.clip(around, 0, source - 1), weights / weights.sum())
    return made


def resized(image: Floats, w: int, h: int, kernel: Callable[..., NDArray[np.float64]], reach: int) -> Floats:
    rows, columns = matrix(image.shape[1], h, kernel, reach), matrix(image.shape[2], w, kernel, reach)
    return (rows @ image.astype(np.float64) @ columns.T).astype(np.float32)


def nearest(image: Floats, w: int, h: int) -> Floats:
    rows, columns = (np.arange(target) * source // target for target, source in ((h, image.shape[1]), (w, image.shape[2])))
    return image[:, rows][:, :, columns]


# --- feeds ----------------------------------------------------------------------------------------------------------------------


def _stretched(kernel: Callable[..., NDArray[np.float64]], reach: int) -> Feed:
    return lambda picture, x: resized(picture, x.shape[3], x.shape[2], kernel, reach)[None]


def _letterboxed(gray: float) -> Feed:
    def feed(picture: Floats, x: Floats) -> Floats:
        made = dn.image.letterbox(picture, x.shape[3], x.shape[2])
        inside = dn.image.letterbox(np.ones_like(picture), x.shape[3], x.shape[2]) == 1
        return np.where(inside, made, np.float32(gray))[None]

    return feed


def _cropped(picture: Floats, x: Floats) -> Floats:
    _, h, w = picture.shape
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    square = np.ascontiguousarray(picture[:, top : top + side, left : left + side])
    return dn.image.resize(square, x.shape[3], x.shape[2])[None]


def _decoded(picture: Floats, x: Floats) -> Floats:
    """Another decoder's rounding: at most two levels, zero on average."""
    levels = np.random.default_rng(11).choice([-2, -1, 0, 1, 2], picture.shape, p=[0.02, 0.13, 0.7, 0.13, 0.02])
    other = np.clip(picture + levels / 255, 0, 1).astype(np.float32)
    return dn.image.resize(other, x.shape[3], x.shape[2])[None]


def _pillow(picture: Floats, x: Floats, kernel: Image.Resampling) -> Floats:
    image = Image.fromarray(np.round(picture * 255).astype(np.uint8).transpose(1, 2, 0))
    resized = np.asarray(image.resize((x.shape[3], x.shape[2]), kernel), np.float32) / 255
    return resized.transpose(2, 0, 1)[None]


def bicubic(picture: Floats, x: Floats) -> Floats:
    """Pillow's BICUBIC."""
    return _pillow(picture, x, Image.Resampling.BICUBIC)


_BOTH = ("input.scale", "input.normalization")
FEEDS: Sequence[tuple[str, Sequence[str], Feed]] = (
    ("input: 0 to 255", ("input.scale",), lambda picture, x: x * 255),
    ("input: divided by 256", ("input.scale",), lambda picture, x: x * (255 / 256)),
    ("input: -1 to 1", _BOTH, lambda picture, x: x * 2 - 1),
    ("input: mean and deviation of ImageNet", ("input.normalization",), lambda picture, x: (x - MEAN) / DEVIATION),
    ("input: 0 to 255 less the mean", ("input.normalization",), lambda picture, x: x * 255 - CAFFE),
    ("input: BGR", ("input.channels",), lambda picture, x: x[:, ::-1]),
    ("input: NHWC read as NCHW", ("input.layout",), lambda picture, x: x.transpose(0, 2, 3, 1).reshape(x.shape)),
    ("input: letterbox", ("input.fit",), _letterboxed(0.5)),
    ("input: letterbox on 114", ("input.fit",), _letterboxed(114 / 255)),
    ("input: centre crop", ("input.fit",), _cropped),
    ("input: resized bilinear, half pixels", ("input.resize",), _stretched(linear, 1)),
    ("input: resized bilinear of Pillow", ("input.resize",), lambda picture, x: _pillow(picture, x, Image.Resampling.BILINEAR)),
    ("input: resized bicubic of OpenCV", ("input.resize",), _stretched(cubic(-0.75), 2)),
    ("input: resized bicubic of Pillow", ("input.resize",), bicubic),
    ("input: resized Lanczos of Pillow", ("input.resize",), lambda picture, x: _pillow(picture, x, Image.Resampling.LANCZOS)),
    ("input: resized nearest", ("input.resize",), lambda picture, x: nearest(picture, x.shape[3], x.shape[2])[None]),
    ("input: another decoder", ("input.decoder",), _decoded),
)
