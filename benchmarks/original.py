"""The original beside ours: a Darknet that the user has built, called through its library.

Its networks are run by its own `network_predict`, with the cfg and weights that ours reads; a batchnorm's training is the calls
that its `forward_batchnorm_layer` and `backward_batchnorm_layer` make, in their order.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import BATCHNORM_SHAPES, our_batchnorm
from .common import Call, Cases, LeftOut, Setting, random
from .networks import cfg_text, image_for

NETWORKS = (("yolov3-tiny", 416), ("yolov3", 416), ("yolov3", 608))
LIBRARIES = ("libdarknet.so", "darknet.so", "libdarknet.dylib")
ARRAYS = ("mean", "variance", "rolling_mean", "rolling_variance", "scales", "biases")
UPDATES = ("scale_updates", "bias_updates", "mean_delta", "variance_delta")


def original(contender: str, setting: Setting) -> Cases:
    """Contenders: ours, original."""
    if not setting.original:
        raise LeftOut("--original names no folder with a Darknet that you have built")
    library = _library(Path(setting.original)) if contender == "original" else None
    for name, size in NETWORKS:
        if (setting.prepared / f"{name}.cfg").exists():
            yield _network(library, setting.prepared / f"{name}.cfg", size)
    for shape in BATCHNORM_SHAPES:
        x, delta = random(*shape), random(*shape)[::-1].copy()
        call = our_batchnorm(x, delta)["training"] if library is None else _train(library, x, delta)
        yield f"batchnorm training {shape}", 0.0, call


def _network(library: ctypes.CDLL | None, prepared: Path, size: int) -> tuple[str, float, Call]:
    import pydarknetbn as dn

    cfg, weights = prepared.with_name(f"{prepared.stem}-{size}.cfg"), prepared.with_suffix(".weights")
    cfg.write_bytes(cfg_text(prepared, size))
    net = dn.load(cfg, weights)
    image, work = image_for(net), sum(layer.operations for layer in net.layers)
    call = _predict(library, cfg, weights, image) if library else lambda: net.forward(image, keep="heads")
    return f"{prepared.stem}, {size}", work, call


def _library(folder: Path) -> ctypes.CDLL:
    for name in LIBRARIES:
        if (folder / name).exists():
            return ctypes.CDLL(str((folder / name).resolve()))
    raise LeftOut(f"{folder} holds none of {', '.join(LIBRARIES)}; build Darknet there (AlexeyAB's with LIBSO=1)")


def _predict(library: ctypes.CDLL, cfg: Path, weights: Path, image: Any) -> Call:
    library.load_network.restype = ctypes.c_void_p
    library.load_network.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
    of_pointer = getattr(library, "network_predict_ptr", library.network_predict)  # AlexeyAB's other takes the network by value
    of_pointer.restype, of_pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
    net = library.load_network(os.fsencode(cfg), os.fsencode(weights), 0)
    return lambda: of_pointer(net, image.ctypes.data)


def _train(library: ctypes.CDLL, x: Any, delta: Any) -> Call:
    batch, channels, size = x.shape[0], x.shape[1], x[0, 0].size
    sizes, whole = (ctypes.c_int(batch), ctypes.c_int(channels), ctypes.c_int(size)), ctypes.c_int(x.size)
    one, few, keep, add = ctypes.c_int(1), ctypes.c_int(channels), ctypes.c_float(0.99), ctypes.c_float(0.01)
    held = {name: np.zeros(channels, np.float32) for name in (*ARRAYS, *UPDATES)}
    held["scales"][...] = 1
    held |= {"input": x, "delta": delta, **{name: np.empty_like(x) for name in ("output", "x", "x_norm", "below")}}
    at = {name: ctypes.c_void_p(array.ctypes.data) for name, array in held.items()}

    def copy(source: str, target: str) -> None:
        library.copy_cpu(whole, at[source], one, at[target], one)

    def forward() -> None:
        copy("input", "output")
        copy("output", "x")
        library.mean_cpu(at["output"], *sizes, at["mean"])
        library.variance_cpu(at["output"], at["mean"], *sizes, at["variance"])
        for name in ("mean", "variance"):
            library.scal_cpu(few, keep, at[f"rolling_{name}"], one)
            library.axpy_cpu(few, add, at[name], one, at[f"rolling_{name}"], one)
        library.normalize_cpu(at["output"], at["mean"], at["variance"], *sizes)
        copy("output", "x_norm")
        library.scale_bias(at["output"], at["scales"], *sizes)
        library.add_bias(at["output"], at["biases"], *sizes)

    def backward() -> None:
        library.backward_bias(at["bias_updates"], at["delta"], *sizes)
        library.backward_scale_cpu(at["x_norm"], at["delta"], *sizes, at["scale_updates"])
        library.scale_bias(at["delta"], at["scales"], *sizes)
        library.mean_delta_cpu(at["delta"], at["variance"], *sizes, at["mean_delta"])
        library.variance_delta_cpu(at["x"], at["delta"], at["mean"], at["variance"], *sizes, at["variance_delta"])
        of_channels = (at[name] for name in ("mean", "variance", "mean_delta", "variance_delta"))
        library.normalize_delta_cpu(at["x"], *of_channels, *sizes, at["delta"])
        copy("delta", "below")

    def train() -> None:
        forward()
        backward()
        assert held  # the arrays live as long as the call

    return train
