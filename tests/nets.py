"""Small networks and the bytes of their files, made in the test or read from `cfg/` and `golden/`."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from pydarknetbn._native import Array

CFG = Path(__file__).parent.parent / "cfg"
TINY = CFG / "tiny-yolo.cfg"
FASTEST = ["yolo-fastest", "yolo-fastest-1.1", "yolo-fastest-1.1-xl", "yolo-fastest-xl", "yolo-fastest-1.1_body"]

# --- made in the test -----------------------------------------------------------------------------------------------------------


def cfg_of(*sections: str, w: int = 8, h: int = 8, c: int = 3, net: str = "") -> bytes:
    """The text of a cfg: `cfg_of("conv filters=2 size=3", "route layers=-1")`; line 1 is [net], layer n on line 5 + n or later."""
    text = [f"[net]\nwidth={w}\nheight={h}\nchannels={c}\n" + net.replace(" ", "\n")]
    for name, *options in (section.split() for section in sections):
        text.append("\n".join([f"[{name}]", *options]))
    return ("\n".join(part.rstrip("\n") for part in text) + "\n").encode()


def numbered(count: int) -> Array:
    """1, 2, 3 …: each value tells its place in the file."""
    return np.arange(1, count + 1, dtype=np.float32)


def weights_of(floats: Array, version: tuple[int, int, int] = (0, 2, 5), seen: int = 0, seen_bytes: int = 8) -> bytes:
    """Header and floats of a .weights file."""
    header = struct.pack("<iii", *version) + seen.to_bytes(seen_bytes, "little")
    return header + np.asarray(floats, "<f4").tobytes()


def ramp(c: int, h: int, w: int, *, batch: int = 1, start: int = 0) -> Array:
    """start, start + 1 … in the order of memory."""
    return np.arange(start, start + batch * c * h * w, dtype=np.float32).reshape(batch, c, h, w)


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(shape, np.float32)


def refusal(kind: type[dn.DarknetError], *arguments: Any, **options: Any) -> str:
    """What `load` says when it refuses, which has to be one line."""
    with pytest.raises(kind) as caught:
        dn.load(*arguments, **options)
    message = str(caught.value)
    assert message.strip()
    assert "\n" not in message
    return message


# --- the little detector --------------------------------------------------------------------------------------------------------


def tiny_yolo(**options: Any) -> dn.Network:
    """cfg/tiny-yolo.cfg with weights from a seed, rolling arrays as after training, and heads that find objects."""
    net = dn.load(TINY, None, seed=7, **options)
    generator = np.random.default_rng(7)
    for layer in net.layers:
        if "rolling_variance" in layer.params:
            layer.rolling_variance[...] = generator.uniform(0.5, 2, layer.rolling_variance.shape)
            layer.rolling_mean[...] = generator.normal(0, 0.1, layer.rolling_mean.shape)
        elif layer.type == "convolutional":
            layer.biases[...] = generator.normal(0, 1, layer.biases.shape)
    return net


def tiny_files(folder: Path) -> tuple[Path, Path, Path]:
    """The detector's cfg with its names beside it, its weights, and a picture of 48 x 32, written into a folder."""
    cfg, weights, picture = (folder / name for name in ("tiny-yolo.cfg", "tiny-yolo.weights", "picture.png"))
    shutil.copyfile(TINY, cfg)
    shutil.copyfile(TINY.with_suffix(".names"), cfg.with_suffix(".names"))
    tiny_yolo().save(weights, header=(0, 2, 5, 6400))
    pixels = np.random.default_rng(3).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(pixels).save(picture)
    return cfg, weights, picture


# --- recorded -------------------------------------------------------------------------------------------------------------------


def load_recorded(weights: Path) -> dn.Network:
    """The network of a recorded .weights file and the cfg beside it, in its own dialect and profile."""
    profile = weights.parent.name
    return dn.load(weights.with_suffix(".cfg"), weights, dialect=profile.removesuffix("-cpu"), profile=profile)


def recorded_run(path: Path) -> tuple[dn.Network, dict[str, Array]]:
    """The network of a recorded `<net>.npz` after a forward of the recorded input, and the recorded arrays."""
    net = load_recorded(path.with_suffix(".weights"))
    with np.load(path) as arrays:
        recorded = dict(arrays)
    x = recorded["input"]
    net.forward(np.ascontiguousarray(x.reshape(len(x), net.c, net.h, net.w)))
    return net, recorded
