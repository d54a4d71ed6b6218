"""What the tests of calibration share: small networks, batches, and ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import pydarknetbn as dn
from nets import cfg_of, noise
from pydarknetbn import sync
from pydarknetbn._native import Array

SIZES = (4, 4, 4, 4, 3)

MIXED = cfg_of(
    "batchnorm",
    "conv filters=4 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky",
    "conv filters=6 size=3 stride=2 pad=1 batch_normalize=1 activation=elu",
    "deconvolutional filters=3 size=2 stride=2 batch_normalize=1 activation=linear",
    "connected output=5 batch_normalize=1 activation=linear",
)
LINEAR = cfg_of(
    "conv filters=4 size=3 stride=1 pad=1 batch_normalize=1 activation=linear",
    "conv filters=6 size=3 stride=2 pad=1 batch_normalize=1 activation=linear",
    "connected output=5 batch_normalize=1 activation=linear",
)


def mixed(cfg: bytes = MIXED, **options: Any) -> dn.Network:
    """Every kind of layer that has a batchnorm, with parameters of a seed."""
    net = dn.load(cfg, None, seed=3, **({"dialect": "pjreddie"} | options))
    rng = np.random.default_rng(5)
    for layer in net.layers:
        for name in ("scales", "biases", "rolling_mean"):
            if name in layer.params:
                getattr(layer, name)[...] = rng.normal(0.7, 0.4, layer.params[name].shape)
        if "rolling_variance" in layer.params:
            layer.rolling_variance[...] = rng.uniform(0.5, 2, layer.rolling_variance.shape)
    return net


def batches(sizes: tuple[int, ...] = SIZES, c: int = 3) -> list[Array]:
    """Batches that differ in mean and spread, the last one smaller."""
    return [noise(n, c, 8, 8, seed=number) * (1 + number) - number for number, n in enumerate(sizes)]


def rolling(net: dn.Network) -> dict[str, Array]:
    """Copies of all rolling arrays."""
    return {
        f"{layer.index}.{name}": array.copy()
        for layer in net.layers
        for name, array in layer.params.items()
        if name.startswith("rolling")
    }


def on_ranks(size: int, work: Callable[[Any], Any], *, timeout: float = 20) -> list[Any]:
    """What `work` gives each rank, or the error that it raised there."""
    results: list[Any] = [None] * size

    def run(comm: Any) -> None:
        try:
            results[comm.rank] = work(comm)
        except Exception as error:
            results[comm.rank] = error

    threads = [threading.Thread(target=run, args=(comm,)) for comm in sync.local(size, timeout=timeout)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
