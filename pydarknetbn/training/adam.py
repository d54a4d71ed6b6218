"""Adam as pjreddie's program does it on a GPU (src/blas_kernels.cu adam_update_gpu); the forks' CPU code has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._native import Array
from ..layers import Layer
from .arrays import core_arrays
from .progress import Progress
from .settings import TrainSettings

__all__ = ["adam_step"]

_GRADIENTS = {"weights": "weight_updates", "biases": "bias_updates", "scales": "scale_updates"}


def _with_gradient(layer: Layer) -> Iterator[tuple[str, Array, Array]]:
    arrays = core_arrays(layer)
    for name, values in arrays.items():
        prefix, _, kind = name.rpartition(".")
        gradient = arrays.get(f"{prefix}.{_GRADIENTS[kind]}".removeprefix(".")) if kind in _GRADIENTS else None
        if gradient is not None:
            yield name, values, gradient


@dataclass(frozen=True, slots=True)
class _Step:
    rate: np.float32
    decay: np.float32
    first: np.float32
    second: np.float32
    epsilon: np.float32
    number: int

    def move(self, values: Array, gradient: Array, mean: Array, square: Array) -> None:
        """Mean m = B1 m + (1 - B1) d, square v = B2 v + (1 - B2) d**2, x += rate * mhat / (sqrt(vhat) + eps); then d = 0."""
        one, number = np.float32(1), np.float32(self.number)
        mean *= self.first
        square *= self.second
        gradient -= self.decay * values
        mean += (one - self.first) * gradient
        square += (one - self.second) * (gradient * gradient)
        corrected = mean / (one - self.first**number)
        values += self.rate * corrected / (np.sqrt(square / (one - self.second**number)) + self.epsilon)
        gradient[...] = 0


def adam_step(layers: Sequence[Layer], settings: TrainSettings, progress: Progress, *, batch: int, learning_rate: float) -> None:
    """Moves parameters by their gradients, which become zeros.

    Decay is added to every gradient, that of biases and scales too. A gradient is the sum over the batch, and is not divided by it:
    Adam takes a multiple of a gradient for the same.

    Args:
        layers: those to move.
        settings: decay and Adam's numbers.
        progress: counts the steps and holds the moments.
        batch: rows whose gradients came together.
        learning_rate: of the step.
    """
    progress.updates += 1
    done: set[int] = set()
    numbers = (settings.decay * batch, settings.beta1, settings.beta2, settings.epsilon)
    with np.errstate(all="ignore"):
        for layer in layers:
            rate = np.float32(learning_rate) * np.float32(layer.native.learning_rate_scale if layer.native is not None else 1)
            decay, first, second, epsilon = (np.float32(number) for number in numbers)
            step = _Step(rate, decay, first, second, epsilon, progress.updates)
            for name, values, gradient in _with_gradient(layer):
                if values.ctypes.data not in done:  # two layers may share one
                    key = (layer.index, name)
                    mean, square = progress.moments.setdefault(key, (np.zeros_like(values), np.zeros_like(values)))
                    step.move(values, gradient, mean, square)
                    done.add(values.ctypes.data)
