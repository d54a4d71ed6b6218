"""Small trainings, with batches that depend on nothing but the number of the step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array

CLASSIFIER = cfg_of(
    "convolutional batch_normalize=1 filters=4 size=3 pad=1 activation=leaky",
    "dropout probability=.25",
    "connected output=3 activation=linear",
    "softmax",
    net="batch=8 subdivisions=2 learning_rate=.05 momentum=.9 decay=.0005 max_batches=100",
)


def batch(step: int, rows: int = 8) -> tuple[Array, Array]:
    """x and one-hot truth of a step: the class is the channel that is brightest."""
    generator = np.random.default_rng([5, step])
    x = generator.random((rows, 3, 8, 8), np.float32)
    classes = generator.integers(0, 3, rows)
    x[np.arange(rows), classes] += np.float32(0.5)
    return x, np.eye(3, dtype=np.float32)[classes]


def batches(first: int = 0) -> Iterator[tuple[Array, Array]]:
    """Of all steps from that number on."""
    while True:
        yield batch(first)
        first += 1


def parameters(net: dn.Network) -> bytes:
    """All parameters and rolling arrays."""
    return b"".join(array.tobytes() for layer in net.layers for array in layer.params.values())
