"""What several ranks have to give, whatever carries their numbers: what one process gives on the joined batch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn import sync
from pydarknetbn._native import Array

PROFILES = ("textbook", "torch", "pjreddie-cpu", "alexeyab-cpu")
CUTS = ((3, 3, 3, 3), (1, 7, 0, 4), (0, 12, 0, 0))
CHANNELS = 5
OF_CHANNELS = "mean variance rolling_mean rolling_variance scale_updates bias_updates scales biases".split()


def assert_within_an_ulp(got: Array, want: Array, what: str) -> None:
    assert got.shape == want.shape, what
    limit = np.spacing(np.maximum(np.abs(got), np.abs(want)))
    off = np.abs(got.astype(np.float64) - want)
    assert (off <= limit).all(), f"{what}: {(off > limit).sum()} values are up to {(off / limit).max():.3g} ulp off"


def assert_equal_on_all_ranks(comm: Any, arrays: Sequence[Array], what: str) -> None:
    """NaNs would be equal by their bits."""
    own = np.concatenate([array.ravel().view(np.uint32) for array in arrays]).astype(np.float64)
    rows = comm.allgather(own)
    assert (rows == rows[0]).all(), f"{what}: ranks differ"


def part_of(comm: Any, cut: Sequence[int], x: Array, order: Sequence[int]) -> Array:
    """The rows that this rank has of a batch that is cut and dealt out in an order."""
    return np.split(x, np.cumsum(cut)[:-1])[order[comm.rank]]


def normal(seed: int, *shape: int, mean: float = 0, deviation: float = 1) -> Array:
    return np.random.default_rng(seed).normal(mean, deviation, shape).astype(np.float32)


# --- a batchnorm of its own -----------------------------------------------------------------------------------------------------


def run_batchnorm(profile: str, comm: Any, x: Array, delta: Array) -> dict[str, Array]:
    """Two training steps and an inference; each array that a rank has rows of is named so."""
    bn = dn.BatchNorm(CHANNELS, profile=profile)
    bn.sync(comm, reduce_params=True)
    bn.scales, bn.biases = normal(7, CHANNELS, mean=1), normal(8, CHANNELS)
    found: dict[str, Array] = {}
    for step in range(2):
        found[f"rows output {step}"] = bn.forward(x * np.float32(1 + step), train=True)
        found[f"rows delta {step}"] = bn.backward(delta)
        found |= {f"{name} {step}": getattr(bn, name).copy() for name in OF_CHANNELS}
        bn.update(learning_rate=0.1, momentum=0.9, decay=0, batch=12)
    if len(x):
        found["rows inference"] = bn.forward(x, train=False)
    return found


def check_batchnorm(comm: Any, profile: str, cut: Sequence[int], order: Sequence[int]) -> None:
    x, delta = normal(1, 12, CHANNELS, 3, 2, mean=3, deviation=2), normal(2, 12, CHANNELS, 3, 2)
    want = run_batchnorm(profile, sync.local(1)[0], x, delta)
    got = run_batchnorm(profile, comm, part_of(comm, cut, x, order), part_of(comm, cut, delta, order))
    what = f"{profile} {cut} {order}"
    for name, array in got.items():
        expected = part_of(comm, cut, want[name], order) if name.startswith("rows") else want[name]
        assert_within_an_ulp(array, expected, f"{what}: {name}")
    assert_equal_on_all_ranks(comm, [array for name, array in got.items() if not name.startswith("rows")], what)


# --- a network ------------------------------------------------------------------------------------------------------------------

NETWORK = cfg_of(
    "convolutional batch_normalize=1 filters=6 size=3 pad=1 stride=2 activation=leaky",
    "convolutional filters=4 size=1 activation=linear",
    "batchnorm",
    "convolutional batch_normalize=1 filters=4 size=3 pad=1 activation=linear",
    "shortcut from=-2 activation=leaky",
    "connected output=3 activation=linear",
    "softmax",
    net="batch=12 subdivisions=1 learning_rate=.05 momentum=.9 decay=.0005 max_batches=100",
)
# Parameters go through three updates whose gradients are added in another order: each sum of float32 may be a few ulp off.
LIMIT = 1e-6


def run_network(profile: str, comm: Any, x: Array, truth: Array) -> tuple[list[float], dict[str, Array]]:
    net = dn.load(NETWORK, seed=4, profile=profile)
    net.sync_bn(comm, reduce_params=True)
    losses = [net.train_step(x * np.float32(1 + step), truth) for step in range(3)]
    arrays = {f"{layer.index}.{name}": array.copy() for layer in net.layers for name, array in layer.params.items()}
    assert net.seen == 36
    return losses, arrays


def check_network(comm: Any, profile: str, cut: Sequence[int]) -> None:
    x, truth = normal(3, 12, 3, 8, 8), np.eye(3, dtype=np.float32)[np.arange(12) % 3]
    order = range(comm.size)
    want_losses, want = run_network(profile, sync.local(1)[0], x, truth)
    losses, got = run_network(profile, comm, part_of(comm, cut, x, order), part_of(comm, cut, truth, order))
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
    for name, array in got.items():
        np.testing.assert_allclose(array, want[name], rtol=0, atol=LIMIT, err_msg=f"{profile} {cut} {name}")
    assert_equal_on_all_ranks(comm, [*got.values(), np.array(losses, np.float32)], f"{profile} {cut}")


# --- PyTorch --------------------------------------------------------------------------------------------------------------------


def check_against_torch(comm: Any, cut: Sequence[int]) -> None:
    """`torch.nn.BatchNorm2d` on the joined batch: outputs, running arrays and all gradients."""
    import torch

    x, delta = normal(1, 12, CHANNELS, 3, 2, mean=3, deviation=2), normal(2, 12, CHANNELS, 3, 2)
    module = torch.nn.BatchNorm2d(CHANNELS)
    module.weight.data, module.bias.data = torch.from_numpy(normal(7, CHANNELS, mean=1)), torch.from_numpy(normal(8, CHANNELS))
    bn = dn.BatchNorm(CHANNELS, profile="torch")
    bn.sync(comm, reduce_params=True)
    bn.scales, bn.biases = module.weight.data.numpy(), module.bias.data.numpy()
    bn.rolling_variance = np.ones(CHANNELS, np.float32)
    order = range(comm.size)
    for step in range(3):
        joined = torch.from_numpy(x * np.float32(1 + step)).requires_grad_()
        output = module(joined)
        output.backward(torch.from_numpy(delta))
        mine = part_of(comm, cut, x, order) * np.float32(1 + step)
        got = {"output": bn.forward(mine, train=True), "delta": bn.backward(part_of(comm, cut, delta, order))}
        want = {"output": output.detach(), "delta": joined.grad}
        for name, array in got.items():
            expected = part_of(comm, cut, want[name].numpy(), order)
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-6, err_msg=f"{cut} {name} of step {step}")
        pairs = {
            "rolling_mean": module.running_mean,
            "rolling_variance": module.running_var,
            "scale_updates": module.weight.grad,
            "bias_updates": module.bias.grad,
        }
        for name, expected in pairs.items():
            np.testing.assert_allclose(getattr(bn, name), expected.numpy(), rtol=1e-6, atol=1e-6, err_msg=f"{cut} {name}")


def check_all(comm: Any) -> None:
    """For four ranks."""
    for profile in PROFILES:
        for cut in CUTS:
            for order in ((0, 1, 2, 3), (2, 0, 3, 1)):
                check_batchnorm(comm, profile, cut, order)
        check_network(comm, profile, CUTS[0])
        check_network(comm, profile, CUTS[1])
