"""What is measured: a suite is a function from a contender's name to its cases, each a call without arguments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], object]
Cases = Iterator[tuple[str, float, Call]]
"""Name, work (multiplications and additions; 0: only the time counts), what is timed."""

BATCHNORM_SHAPES = ((8, 64, 104, 104), (16, 256, 26, 26), (64, 512, 13, 13))
CONVOLUTIONS = (
    # channels, filters, kernel, side of the output
    (32, 64, 3, 208), (128, 256, 3, 52), (256, 512, 3, 26), (512, 1024, 3, 13), (64, 128, 1, 104), (512, 256, 1, 26),
)  # fmt: skip
ACTIVATIONS = {"leaky": "leaky_relu", "logistic": "sigmoid", "mish": "mish", "swish": "silu", "tanh": "tanh"}  # ours: torch's name
NETWORKS = (("yolo-fastest-1.1", 320), ("yolov3-tiny", 416), ("yolov4-tiny", 416), ("yolov3", 416))


def batchnorm(contender: str) -> Cases:
    """Training forward and backward, inference; contenders: ours, torch, copy."""
    for shape in BATCHNORM_SHAPES:
        rng = np.random.default_rng(0)
        x, delta = (rng.standard_normal(shape, np.float32) for _ in range(2))
        calls = {"ours": _our_batchnorm, "torch": _torch_batchnorm, "copy": _copies}[contender](x, delta)
        for name, call in calls.items():
            yield f"batchnorm {name} {shape}", 0.0, call


def _our_batchnorm(x: Any, delta: Any) -> dict[str, Call]:
    import pydarknetbn

    layer, out = pydarknetbn.BatchNorm(x.shape[1]), np.empty_like(x)
    layer.forward(x, train=True)
    other = layer.snapshot()
    other.rolling_mean, other.rolling_variance = layer.mean, layer.variance
    return {
        "forward": lambda: layer.forward(x, train=True, out=out),
        "backward": lambda: layer.backward(delta, out=out),
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
        "inference": torch.no_grad()(lambda: other(given)),
    }


def _copies(x: Any, delta: Any) -> dict[str, Call]:
    del delta
    out = np.empty_like(x)
    return {"inference": lambda: np.copyto(out, x)}


def convolution(contender: str) -> Cases:
    """One convolution of one image; contenders: ours, torch, numpy (the product of matrices of that size)."""
    for c, n, size, side in CONVOLUTIONS:
        work = 2.0 * c * n * size * size * side * side
        call = {"ours": _our_convolution, "torch": _torch_convolution, "numpy": _product}[contender](c, n, size, side)
        yield f"convolution {size}x{size} {c}-{n}, {side}", work, call


def _our_convolution(c: int, n: int, size: int, side: int) -> Call:
    from pydarknetbn import _native

    shape = _native.ffi.new("convolution_shape *")
    shape.c, shape.n, shape.size, shape.stride_x, shape.stride_y, shape.dilation = c, n, size, 1, 1, 1
    shape.h = shape.w = shape.out_h = shape.out_w = side
    shape.pad_x = shape.pad_y = size // 2
    shape.direct = size == 1
    threads = _native.lib.get_num_threads()
    scratch = _native.lib.convolve_scratch(shape) * threads
    arrays = [_random(c * side * side), _random(n * c * size * size), np.empty(n * side * side, np.float32), _random(scratch)]
    pointers = [_native.floats(array) for array in arrays]
    return lambda: _native.lib.convolve(shape, 1, 1, *pointers, threads)


def _torch_convolution(c: int, n: int, size: int, side: int) -> Call:
    import torch

    image = torch.from_numpy(_random(c * side * side).reshape(1, c, side, side))
    weights = torch.from_numpy(_random(n * c * size * size).reshape(n, c, size, size))
    return torch.no_grad()(lambda: torch.nn.functional.conv2d(image, weights, padding=size // 2))


def _product(c: int, n: int, size: int, side: int) -> Call:
    depth = c * size * size
    left, right = _random(n * depth).reshape(n, depth), _random(depth * side * side).reshape(depth, side * side)
    out = np.empty((n, side * side), np.float32)
    return lambda: np.matmul(left, right, out=out)


def _random(count: int) -> Any:
    return np.random.default_rng(0).standard_normal(count, np.float32)


def activation(contender: str) -> Cases:
    """Ten million values, from one array into another; contenders: ours, torch, system (ours with the machine's libm)."""
    x = _random(10_000_000) * 3
    for ours, theirs in ACTIVATIONS.items():
        call = _torch_activation(theirs, x) if contender == "torch" else _our_activation(ours, x, contender)
        yield f"activation {ours}", 0.0, call


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


def network(contender: str) -> Cases:
    """One image through a whole network with seeded weights; contenders: ours, torch (where `convert.to_torch` is there)."""
    for name, size in NETWORKS:
        path = _cfg_named(name)
        if path is None:
            continue
        net = seeded(path, size)
        image = np.random.default_rng(0).random((1, net.c, size, size), np.float32)
        work = sum(layer.operations for layer in net.layers)
        yield f"network {name}, {size}", work, _forward(contender, net, image)


def _forward(contender: str, net: Any, image: Any) -> Call:
    if contender == "ours":
        return lambda: net.forward(image)
    import torch

    from pydarknetbn.convert import to_torch  # type: ignore[import-not-found]

    module, given = to_torch(net), torch.from_numpy(image)
    return torch.no_grad()(lambda: module(given))


def _cfg_named(name: str) -> Path | None:
    for variable in ("PYDARKNETBN_CFGS", "PYDARKNETBN_MODELS"):
        folder = os.environ.get(variable)
        for path in sorted(Path(folder).rglob(f"{name}.cfg")) if folder else ():
            return path
    return None


def seeded(path: Path, size: int | None = None) -> Any:
    """The network of a cfg with random weights that keep the spread of values; size: width and height, where not the cfg's."""
    import pydarknetbn

    text = path.read_text(encoding="utf-8", errors="replace")
    sides = (("width", size), ("height", size)) if size else ()
    for key, value in (*sides, ("batch", 1), ("subdivisions", 1)):
        text = re.sub(rf"(?m)^\s*{key}\s*=.*", f"{key}={value}", text, count=1)
    with tempfile.TemporaryDirectory() as folder:
        cfg = Path(folder) / path.name
        cfg.write_text(text, encoding="utf-8")
        net = pydarknetbn.load(cfg)
    rng = np.random.default_rng(0)
    for layer in net.layers:
        for name, array in layer.params.items():
            if name.endswith("weights"):
                array[...] = rng.standard_normal(array.shape, np.float32) * np.sqrt(2 / np.prod(array.shape[1:]))
            elif name.endswith(("scales", "rolling_variance")):
                array[...] = 1
    return net


def alternate(contender: str) -> Cases:
    """Calls of ours, of torch's, and of both in turn: neither may keep the processors from the other."""
    x = np.random.default_rng(0).standard_normal((8, 64, 104, 104), np.float32)
    makers: dict[str, tuple[Callable[[], Call], Callable[[], Call]]] = {
        "convolution": (lambda: _our_convolution(128, 256, 3, 52), lambda: _torch_convolution(128, 256, 3, 52)),
        "batchnorm": (lambda: _our_batchnorm(x, x)["forward"], lambda: _torch_batchnorm(x, x)["forward"]),
    }
    for name, (ours, theirs) in makers.items():
        made = [make() for make, of in ((ours, "ours"), (theirs, "torch")) if contender in (of, "both")]
        yield f"alternate {name}", 0.0, lambda calls=made: [call() for call in calls]  # type: ignore[misc]


def startup(contender: str) -> Cases:
    """A process of its own that imports NumPy, or this package, or shows a network."""
    cfg = Path(__file__).parent.parent / "cfg" / "tiny-yolo.cfg"
    command = {
        "numpy": ["-c", "import numpy"],
        "import": ["-c", "import numpy, pydarknetbn"],
        "info": ["-m", "pydarknetbn", "info", str(cfg)],
    }[contender]
    with tempfile.TemporaryDirectory() as folder:  # here the source tree would be imported
        line = [sys.executable, *command]
        yield "start-up", 0.0, lambda: subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL)


SUITES: dict[str, tuple[Callable[[str], Cases], tuple[str, ...]]] = {
    "batchnorm": (batchnorm, ("ours", "torch", "copy")),
    "convolution": (convolution, ("ours", "torch", "numpy")),
    "activation": (activation, ("ours", "torch", "system")),
    "network": (network, ("ours", "torch")),
    "alternate": (alternate, ("ours", "torch", "both")),
    "startup": (startup, ("numpy", "import", "info")),
}
