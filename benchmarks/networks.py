"""Suites of whole networks: forward, growth with batch and size, loading, folding; and what their contenders read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .common import Call, Cases, LeftOut, Setting

NETWORKS = (("yolo-fastest-1.1", 320), ("yolov3-tiny", 416), ("yolov4-tiny", 416), ("yolov3", 416), ("yolov4", 416))
LARGE = ("yolov3", "yolov4")
BATCHES, SIZES = (1, 2, 4, 8, 16, 32, 64), (160, 224, 320, 416, 512, 608)
VARIABLES = ("PYDARKNETBN_MODELS", "PYDARKNETBN_CFGS")


def cfg_named(name: str) -> Path | None:
    """In the folders that the variables name."""
    for variable in VARIABLES:
        folder = os.environ.get(variable)
        for path in sorted(Path(folder).rglob(f"{name}.cfg")) if folder else ():
            return path
    return None


def seeded(path: Path, size: int | None = None) -> Any:
    """The network of a cfg with random weights that keep the spread of values; size: width and height, where not the cfg's."""
    import pydarknetbn

    net = pydarknetbn.load(cfg_text(path, size))
    rng = np.random.default_rng(0)
    for layer in net.layers:
        for name, array in layer.params.items():
            if name.endswith("weights"):
                array[...] = rng.standard_normal(array.shape, np.float32) * np.sqrt(2 / np.prod(array.shape[1:]))
            elif name.endswith(("scales", "rolling_variance")):
                array[...] = 1
    return net


def cfg_text(path: Path, size: int | None) -> bytes:
    """A cfg for one image of that size."""
    text = path.read_text(encoding="utf-8", errors="replace")
    sides = (("width", size), ("height", size)) if size else ()
    for key, value in (*sides, ("batch", 1), ("subdivisions", 1)):
        text = re.sub(rf"(?m)^\s*{key}\s*=.*", f"{key}={value}", text, count=1)
    return text.encode()


def image_for(net: Any, batch: int = 1) -> Any:
    """Noise from 0 to 1, seeded."""
    return np.random.default_rng(0).random((batch, net.c, net.h, net.w), np.float32)


# --- what all contenders read ---------------------------------------------------------------------------------------------------


def prepare(setting: Setting) -> None:
    """Writes cfg, weights and folded ONNX of each network.

    Where there is no .weights beside a cfg they are random, and each batchnorm has the statistics of one image of noise, so that
    values have the spread that a trained network's have.
    """
    import pydarknetbn as dn

    for name, size in NETWORKS:
        path = None if setting.quick and name in LARGE else cfg_named(name)
        if path is None:
            continue
        target = setting.prepared / f"{name}.cfg"
        target.write_bytes(cfg_text(path, size))
        if path.with_suffix(".weights").exists():
            shutil.copy(path.with_suffix(".weights"), target.with_suffix(".weights"))
        else:
            net = seeded(target)
            _take_statistics(net)
            net.save(target.with_suffix(".weights"))
        net = dn.load(target, target.with_suffix(".weights"))
        try:
            dn.convert.to_onnx(net, target.with_suffix(".onnx"), batch=1, verify=False)
        except dn.MissingExtraError:
            continue


def _take_statistics(net: Any) -> None:
    import pydarknetbn as dn

    try:
        net.forward(image_for(net), train=True)
    except dn.UnsupportedError:  # dropout draws random numbers in training; as seeded, the spread is kept well enough
        return
    for layer in net.layers:
        if "rolling_mean" in layer.params:
            layer.params["rolling_mean"][...], layer.params["rolling_variance"][...] = layer.mean, layer.variance


def prepared_files(setting: Setting) -> Iterator[Path]:
    """The cfg of each network that is there."""
    for name, _ in NETWORKS:
        path = setting.prepared / f"{name}.cfg"
        if path.exists():
            yield path


# --- suites ---------------------------------------------------------------------------------------------------------------------


def network(contender: str, setting: Setting) -> Cases:
    """One image through a whole network.

    Contenders: ours, folded as the others' ONNX is, ours unfolded, torch (`convert.to_torch`), onnxruntime, opencv.
    """
    import pydarknetbn as dn

    for path in prepared_files(setting):
        net = dn.load(path, path.with_suffix(".weights"))
        work, image = sum(layer.operations for layer in net.layers), image_for(net)
        if contender == "ours":
            call = _ours(dn.fold(net)[0], image)
        elif contender == "unfolded":
            call = _ours(net, image)
        elif contender == "torch":
            call = _torch(net, image)
        else:
            net.close()
            if not path.with_suffix(".onnx").exists():
                raise LeftOut("there is no ONNX file, since onnx is not installed")
            call = {"onnxruntime": _onnxruntime, "opencv": _opencv}[contender](path.with_suffix(".onnx"), image, setting.threads)
        yield f"{path.stem}, {net.h}", work, call


def _ours(net: Any, image: Any) -> Call:
    return lambda: net.forward(image, keep="heads")


def _torch(net: Any, image: Any) -> Call:
    import torch

    from pydarknetbn.convert import to_torch

    module, given = to_torch(net).eval(), torch.from_numpy(image)
    return torch.no_grad()(lambda: module(given))


def _onnxruntime(path: Path, image: Any, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"input": image})


def _opencv(path: Path, image: Any, threads: int) -> Call:
    import cv2

    cv2.setNumThreads(threads)
    net = cv2.dnn.readNetFromONNX(str(path))
    names = net.getUnconnectedOutLayersNames()

    def call() -> None:
        net.setInput(image)
        net.forward(names)

    return call


def growth(contender: str, setting: Setting) -> Cases:
    """How yolov3-tiny's time grows with the batch and with the size; contenders: ours with one thread and with two."""
    del contender
    path = cfg_named("yolov3-tiny")
    if path is None:
        return
    for size in SIZES[::3] if setting.quick else SIZES:
        net = seeded(path, size)
        work = sum(layer.operations for layer in net.layers)
        for batch in (BATCHES[:3] if setting.quick else BATCHES) if size == SIZES[0] else (1,):
            yield f"batch {batch}, {size} x {size}", batch * work, _ours(net, image_for(net, batch))


def load(contender: str, setting: Setting) -> Cases:
    """The largest .weights there is; contenders: ours, read (its bytes into an array), torch (a state dict of as much)."""
    import pydarknetbn as dn

    paths = [path.with_suffix(".weights") for path in prepared_files(setting)]
    if not paths:
        return
    path = max(paths, key=lambda path: path.stat().st_size)
    if contender == "torch":
        call = _torch_load(path, setting)
    else:
        call = {
            "ours": lambda: dn.load(path.with_suffix(".cfg"), path).close(),
            "read": lambda: np.fromfile(path, np.float32),
        }[contender]
    yield f"{path.name}, {path.stat().st_size / 1e6:.0f} MB", 0.0, call


def _torch_load(path: Path, setting: Setting) -> Call:
    import torch

    import pydarknetbn as dn

    saved = setting.prepared / "state.pt"
    if not saved.exists():
        torch.save(dn.convert.to_torch(dn.load(path.with_suffix(".cfg"), path)).state_dict(), saved)
    return lambda: torch.load(saved)


def fold(contender: str, setting: Setting) -> Cases:
    """All batchnorms into the weights, in memory; contenders: ours, torch (fuse_conv_bn_weights)."""
    import pydarknetbn as dn

    for path in prepared_files(setting):
        net = dn.load(path.with_suffix(".cfg"), path.with_suffix(".weights"))
        yield path.stem, 0.0, (lambda net=net: dn.fold(net)[0].close()) if contender == "ours" else _torch_fold(net)  # type: ignore[misc]


def _torch_fold(net: Any) -> Call:
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    names = ("weights", "biases", "rolling_mean", "rolling_variance", "scales")
    layers = [{n: torch.from_numpy(layer.params[n]) for n in names} for layer in net.layers if "rolling_mean" in layer.params]

    def call() -> None:
        with torch.no_grad():
            for of in layers:
                zero = torch.zeros_like(of["biases"])
                fuse_conv_bn_weights(
                    of["weights"], zero, of["rolling_mean"], of["rolling_variance"], 1e-5, of["scales"], of["biases"]
                )

    return call
