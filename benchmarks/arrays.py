"""Suites of single kernels: batch normalization, convolutions, activations, pictures, and calls in turn with PyTorch's."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .common import Call, Cases, Setting, random
from .peak import loop

BATCHNORM_SHAPES = ((8, 64, 104, 104), (16, 256, 26, 26), (64, 512, 13, 13))
CONVOLUTIONS = (
    # channels, filters, kernel, side of the output: those of yolov3 at 416
    (32, 64, 3, 208), (128, 256, 3, 52), (256, 512, 3, 26), (512, 1024, 3, 13), (64, 128, 1, 104), (512, 256, 1, 26),
)  # fmt: skip
ACTIVATIONS = {"leaky": "leaky_relu", "logistic": "sigmoid", "mish": "mish", "swish": "silu", "tanh": "tanh"}  # ours: torch's name


def batchnorm(contender: str, setting: Setting) -> Cases:
    """Training forward, backward, both, and inference; contenders: ours, torch, copy (of the array: the limit of memory)."""
    for shape in BATCHNORM_SHAPES:
        rng = np.random.default_rng(0)
        x, delta = (rng.standard_normal(shape, np.float32) for _ in range(2))
        if contender == "copy":
            calls = {"inference": _copy(x, setting.threads)}
        else:
            calls = {"ours": our_batchnorm, "torch": _torch_batchnorm}[contender](x, delta)
        for name, call in calls.items():
            yield f"{name} {shape}", 0.0, call


def our_batchnorm(x: Any, delta: Any) -> dict[str, Call]:
    """Calls of the layer, named."""
    import pydarknetbn

    layer, out = pydarknetbn.BatchNorm(x.shape[1]), np.empty_like(x)

    def train() -> None:
        layer.forward(x, train=True, out=out)
        layer.backward(delta, out=out)

    train()
    other = layer.snapshot()
    other.rolling_mean, other.rolling_variance = layer.mean, layer.variance
    return {
        "forward": lambda: layer.forward(x, train=True, out=out),
        "backward": lambda: layer.backward(delta, out=out),
        "training": train,
        "inference": lambda: other.forward(x, train=False, out=out),
    }


def _torch_batchnorm(x: Any, delta: Any) -> dict[str, Call]:
    import torch

    layer, given = torch.nn.BatchNorm2d(x.shape[1]), torch.from_numpy(x).requires_grad_()
    gradient, wanted = torch.from_numpy(delta), (given, layer.weight, layer.bias)
    output = layer(given)
    other = torch.nn.BatchNorm2d(x.shape[1]).eval()
    return {
        "forward": lambda: layer(given),
        "backward": lambda: torch.autograd.grad(output, wanted, gradient, retain_graph=True),
        "training": lambda: torch.autograd.grad(layer(given), wanted, gradient),
        "inference": torch.no_grad()(lambda: other(given)),
    }


def _copy(x: Any, threads: int) -> Call:
    """Each thread its part."""
    executor, parts = ThreadPoolExecutor(threads), np.array_split(x.reshape(-1), threads)
    outs = np.array_split(np.empty(x.size, np.float32), threads)
    if threads == 1:
        return lambda: np.copyto(outs[0], parts[0])
    return lambda: list(executor.map(np.copyto, outs, parts))


def convolution(contender: str, setting: Setting) -> Cases:
    """One convolution of one image; contenders: ours, torch, numpy (matrices of that size), peak (as much in registers alone)."""
    for c, n, size, side in CONVOLUTIONS:
        work = 2.0 * c * n * size * size * side * side
        if contender == "peak":
            call = loop("apart", setting.threads, work)
        else:
            call = {"ours": _our_convolution, "torch": _torch_convolution, "numpy": _product}[contender](c, n, size, side)
        yield f"{size}x{size} {c}-{n}, {side}", work, call


def _our_convolution(c: int, n: int, size: int, side: int) -> Call:
    from pydarknetbn import _native

    shape = _native.ffi.new("convolution_shape *")
    shape.c, shape.n, shape.size, shape.stride_x, shape.stride_y, shape.dilation = c, n, size, 1, 1, 1
    shape.h = shape.w = shape.out_h = shape.out_w = side
    shape.pad_x = shape.pad_y = size // 2
    shape.direct = size == 1
    threads = _native.lib.get_num_threads()
    scratch = _native.lib.convolve_scratch(shape) * threads
    arrays = [random(c * side * side), random(n * c * size * size), np.empty(n * side * side, np.float32), random(scratch)]
    pointers = [_native.floats(array) for array in arrays]
    return lambda: _native.lib.convolve(shape, 1, 1, *pointers, threads)


def _torch_convolution(c: int, n: int, size: int, side: int) -> Call:
    import torch

    image, weights = torch.from_numpy(random(1, c, side, side)), torch.from_numpy(random(n, c, size, size))
    return torch.no_grad()(lambda: torch.nn.functional.conv2d(image, weights, padding=size // 2))


def _product(c: int, n: int, size: int, side: int) -> Call:
    depth = c * size * size
    left, right, out = random(n, depth), random(depth, side * side), np.empty((n, side * side), np.float32)
    return lambda: np.matmul(left, right, out=out)


def threads(contender: str, setting: Setting) -> Cases:
    """Ours with one thread and with two; contenders are these numbers."""
    del contender, setting
    for c, n, size, side in CONVOLUTIONS:
        yield (
            f"convolution {size}x{size} {c}-{n}, {side}",
            2.0 * c * n * size * size * side * side,
            _our_convolution(c, n, size, side),
        )
    for shape in BATCHNORM_SHAPES:
        calls = our_batchnorm(random(*shape), random(*shape))
        for name in ("training", "inference"):
            yield f"batchnorm {name} {shape}", 0.0, calls[name]


def activation(contender: str, setting: Setting) -> Cases:
    """Ten million values, from one array into another; contenders: ours, torch, system (ours with the machine's libm)."""
    del setting
    x = random(10_000_000) * 3
    for ours, theirs in ACTIVATIONS.items():
        yield ours, 0.0, _torch_activation(theirs, x) if contender == "torch" else _our_activation(ours, x, contender)


def _our_activation(name: str, x: Any, contender: str) -> Call:
    from pydarknetbn import _native
    from pydarknetbn.dialect import PROFILES

    _native.lib.set_libm(b"system" if contender == "system" else b"own")
    rule = _native.rule("arithmetic_rule", PROFILES["alexeyab-cpu"].layers.arithmetic)
    kind, out = _native.enum("activation", name), np.empty_like(x)

    def call() -> None:
        np.copyto(out, x)
        _native.lib.activate_array(_native.floats(out), out.size, kind, rule, 1)

    return call


def _torch_activation(name: str, x: Any) -> Call:
    import torch

    function, given = getattr(torch.nn.functional, name), torch.from_numpy(x)
    return torch.no_grad()(lambda: function(given))


def picture(contender: str, setting: Setting) -> Cases:
    """From 1080p bytes to the input of a network of 416 x 416; contenders: ours, opencv (which computes in 8 bits)."""
    del setting
    frame = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), np.uint8)
    if contender == "opencv":
        import cv2

        yield "stretch 1080p to 416", 0.0, lambda: cv2.dnn.blobFromImage(frame, 1 / 255, (416, 416), swapRB=True)
        return
    import pydarknetbn as dn

    yield "stretch 1080p to 416", 0.0, lambda: dn.resize(dn.image.from_array(frame), 416, 416)
    yield "letterbox 1080p to 416", 0.0, lambda: dn.letterbox(dn.image.from_array(frame), 416, 416)


def alternate(contender: str, setting: Setting) -> Cases:
    """Calls of ours, of torch's, and of both in turn: neither may keep the processors from the other.

    After a call of torch's the threads of its OpenMP wait for the next one without sleeping, for some milliseconds, in which
    ours have one processor less; "passive" is both in turn under OMP_WAIT_POLICY=passive, where they sleep.
    """
    del setting
    x = random(8, 64, 104, 104)
    makers: dict[str, tuple[Callable[[], Call], Callable[[], Call]]] = {
        "convolution": (lambda: _our_convolution(128, 256, 3, 52), lambda: _torch_convolution(128, 256, 3, 52)),
        "batchnorm": (lambda: our_batchnorm(x, x)["forward"], lambda: _torch_batchnorm(x, x)["forward"]),
    }
    for name, (ours, theirs) in makers.items():
        made = [make() for make, of in ((ours, "ours"), (theirs, "torch")) if contender in (of, "both", "passive")]
        yield name, 0.0, lambda calls=made: [call() for call in calls]  # type: ignore[misc]


def startup(contender: str, setting: Setting) -> Cases:
    """A process of its own that imports NumPy, or this package, or shows a network."""
    del setting
    cfg = Path(__file__).parent.parent / "cfg" / "tiny-yolo.cfg"
    command = {
        "numpy": ["-c", "import numpy"],
        "import": ["-c", "import numpy, pydarknetbn"],
        "info": ["-m", "pydarknetbn", "info", str(cfg)],
    }[contender]
    with tempfile.TemporaryDirectory() as folder:  # here the source tree would be imported
        line = [sys.executable, *command]
        yield "a process of its own", 0.0, lambda: subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL)
