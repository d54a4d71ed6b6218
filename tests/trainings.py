"""Small trainings, with batches that depend on nothing but the number of the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


# --- three layers and a softmax ------------------------------------------------------------------------------------------------

LAYERS = (
    "convolutional batch_normalize=1 filters=4 size=3 pad=1 activation=leaky",
    "convolutional batch_normalize=1 filters=4 size=1 activation=leaky",
    "connected output=3 activation=linear",
    "softmax",
)
RATES = "batch=8 learning_rate=.1 momentum=.9 decay=0"


def network(*extra: str, net: str = RATES, **options: Any) -> dn.Network:
    """The network, with an option for layer n as extra n."""
    sections = [f"{section} {more}" for section, more in zip(LAYERS, (*extra, "", "", "", ""), strict=False)]
    return dn.load(cfg_of(*sections, net=net), **({"profile": "textbook", "seed": 5} | options))


def moved(net: dn.Network, steps: int = 1) -> list[set[str]]:
    """Of each layer, the arrays that so many steps change."""
    before = [{name: array.copy() for name, array in layer.params.items()} for layer in net.layers]
    for step in range(steps):
        net.train_step(*batch(step))
    return [
        {name for name, array in layer.params.items() if not np.array_equal(array, old[name])}
        for layer, old in zip(net.layers, before, strict=True)
    ]


ROLLING = {"rolling_mean", "rolling_variance"}
ALL = ROLLING | {"weights", "biases", "scales"}
