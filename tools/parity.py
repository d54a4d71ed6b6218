"""Runs the batch normalization of other frameworks on the batches of the README's table: `python tools/parity.py`.

What they gave is written to tests/parity.json, with their versions; `tools/parity_table.py` compares the profiles with that. Each
framework runs in a process of its own; it takes `pip install -e '.[dev,torch]'`.

The batches are those of a published comparison of burn and PyTorch: value (r, c) of batch k is 2·sin(3r + c + 1 + k) + c, r the row
and c the channel, computed in double and rounded once. Batches 0 to 19 train, and the first four rows of batch 100 infer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity_layers import FRAMEWORKS, Floats, Layer, State
from pydarknetbn.dialect import profile_named

__all__ = ["LAYOUTS", "QUANTITIES", "compared", "far_from_zero", "run", "run_apart", "state"]

RECORD = Path(__file__).parent.parent / "tests" / "parity.json"
LAYOUTS: Mapping[int, tuple[int, int, int, int]] = {4: (2, 3, 2, 1), 64: (4, 3, 4, 4)}
"""By the number of values in a channel, the shape of a batch."""

STEPS = 20
QUANTITIES = ("output", "input gradient", "scale gradient", "bias gradient", "rolling mean", "rolling variance", "inference")
"""What is compared: the first four of the last training batch, the others after it."""

PACKAGES = {"torch": ("torch",), "keras": ("keras", "jax"), "keras over torch": ("keras", "torch"), "flax": ("flax", "jax")} | {
    f"onnx-{opset}": ("onnxruntime", "onnx") for opset in (9, 14, 15)
}
"""The packages whose versions are recorded; they have to be installed."""

BURN = {
    "versions": "not run: a published comparison of burn and PyTorch",
    "4": {"rolling variance": [1.850685, 1.994315, 1.785304]},
}
"""Recorded there and not run here."""


def _laid_out(rows: Any, images: int, h: int, w: int) -> Floats:
    """(n, C), rows image by image, as (images, C, h, w)."""
    return np.ascontiguousarray(rows.reshape(images, h, w, -1).transpose(0, 3, 1, 2), np.float32)


def batch(k: int, n: int, *, rows: int | None = None) -> Floats:
    """Batch k of n values in each of three channels; rows: the first of them alone."""
    images, c, h, w = LAYOUTS[n]
    r, channel = np.mgrid[: images * h * w, :c]
    values = (2 * np.sin(3 * r + channel + 1 + k) + channel)[:rows]
    return _laid_out(values, images, h, w) if rows is None else _laid_out(values, *np.delete(LAYOUTS[rows], 1))


def gradient(k: int, n: int) -> Floats:
    """What comes to the output of batch k. Neither its sum over a channel nor that of its products with the batch cancels."""
    images, c, h, w = LAYOUTS[n]
    r, channel = np.mgrid[: images * h * w, :c]
    return _laid_out(np.cos(5 * r + 2 * channel + k) + np.sin(3 * r + channel + 1 + k) / 2 + 0.5, images, h, w)


def state() -> State:
    """Where every layer begins."""
    scales, biases = np.array([0.5, 1, 2], np.float32), np.array([0.25, 0, -1], np.float32)
    return scales, biases, np.zeros(3, np.float32), np.ones(3, np.float32)


def run(layer: Layer, n: int) -> dict[str, Floats]:
    """The quantities that there are, after all training batches."""
    for k in range(STEPS):
        found = layer.train(batch(k, n), gradient(k, n))
    mean, variance = layer.rolling()
    return found | {"rolling mean": mean, "rolling variance": variance, "inference": layer.infer(batch(100, n, rows=4))}


def far_from_zero(make: Callable[[State], Layer], epsilon: float) -> float:
    """How far the training output is off, relative to its largest value, for eight means from 1e4 to 2e4 and a deviation of 1e-2.

    Args:
        make: a layer.
        epsilon: that it normalises with, inside the root.
    """
    mean = 1e4 + 1e4 / 7 * np.arange(8)[:, np.newaxis]
    x = np.float32(mean + 0.01 * np.sqrt(2) * np.sin(3 * np.arange(64))).reshape(1, 8, 8, 8)
    zero, one = np.zeros(8, np.float32), np.ones(8, np.float32)
    output = make((one, zero, zero, one)).train(x, np.zeros_like(x))["output"]
    wide, axes = x.astype(np.float64), (0, 2, 3)
    exact = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + epsilon)
    return distance(output, exact)


def distance(ours: Floats, theirs: NDArray[np.floating[Any]]) -> float:
    """The largest difference, relative to the largest of theirs."""
    return float(np.abs(ours.astype(np.float64) - theirs).max() / np.abs(theirs).max())


def compared(ours: Mapping[str, Floats], theirs: Mapping[str, Floats]) -> dict[str, float]:
    """The distance of each quantity that both have."""
    return {name: distance(ours[name], theirs[name]) for name in QUANTITIES if name in ours and name in theirs}


def _recorded(framework: str) -> dict[str, Any]:
    """Its versions, the quantities by the number of values in a channel, and what `far_from_zero` says: None for no number."""
    make = FRAMEWORKS[framework]
    epsilon = profile_named(framework.removesuffix(" over torch").replace("15", "14")).rule("batchnorm").forward.value
    found: dict[str, Any] = {"versions": " ".join(f"{package} {version(package)}" for package in PACKAGES[framework])}
    for n in LAYOUTS:
        found[str(n)] = {name: [float(str(value)) for value in array.ravel()] for name, array in run(make(state()), n).items()}
    off = far_from_zero(make, epsilon)
    return found | {"far from zero": off if np.isfinite(off) else None}


def run_apart(framework: str) -> dict[str, Any]:
    """What is recorded of a framework, from a process of its own.

    Raises:
        subprocess.CalledProcessError: what it said was printed.
    """
    with TemporaryDirectory() as home:  # where Keras writes its settings
        chosen = {"KERAS_BACKEND": "torch" if "over torch" in framework else "jax", "KERAS_HOME": home, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run([sys.executable, __file__, framework], env=os.environ | chosen, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str]) -> None:
    """Prints what one framework gives, or writes what all give."""
    if arguments:
        print(json.dumps(_recorded(arguments[0])))
        return
    every = {framework: run_apart(framework) for framework in PACKAGES} | {"burn": BURN}
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in every.items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
