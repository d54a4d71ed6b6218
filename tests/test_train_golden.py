"""Five steps of whole networks and every learning-rate policy against what the forks computed.

Each recorded network ends with a softmax, a logistic or a [yolo], so exp or log of the machine goes into every gradient: bits are
demanded where these functions are the recorder's. Else, after five steps, to 1e-6 of each array's largest value.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import libm
import pydarknetbn as dn
from core import RECORDED, SAMPLE, assert_same_bits, recorded_files
from nets import cfg_of
from pydarknetbn._native import Array

OTHER_LIBM = 1e-6
SMALLEST_DENORMAL = 1e-45


def assert_recorded(got: Any, want: Array, name: str) -> None:
    got = np.asarray(got, np.float32).reshape(want.shape)
    if libm.is_the_recorders():
        assert_same_bits(got, want, name)
    else:
        off = np.abs(got.astype(np.float64) - want).max()
        assert off <= OTHER_LIBM * np.abs(want).max(), f"{name}: off by {off}"


def load_to_train(path: Path) -> dn.Network:
    profile = path.parent.name
    weights = path.with_name(f"{path.stem}.init.weights")
    return dn.load(path.with_suffix(".cfg"), weights, dialect=profile.removesuffix("-cpu"), profile=profile)


def arrays_of(net: dn.Network, prefix: str) -> dict[str, Array]:
    """Parameters under the recording's names, "iter1.003_convolutional.weights"."""
    return {
        f"{prefix}.{layer.index:03}_{layer.type}.{name}": array.copy()
        for layer in net.layers
        for name, array in layer.params.items()
    }


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("path", recorded_files("train/*-cpu/*.npz"))
def test_five_steps_give_the_recorded_losses_rates_and_parameters(path: Path) -> None:
    net, told = load_to_train(path), json.loads(path.with_suffix(".json").read_text())
    with np.load(path) as arrays:
        want = dict(arrays)
    got: dict[str, Any] = {"loss": [], "last_cost": [], "rate_after": []}
    for step, (x, truth) in enumerate(zip(want.pop("X"), want.pop("Y"), strict=True)):
        got["loss"].append(net.train_step(np.ascontiguousarray(x.reshape(len(x), net.c, net.h, net.w)), truth))
        got["last_cost"].append(net.progress.cost)
        got["rate_after"].append(net.learning_rate)
        got |= arrays_of(net, "iter1") if step == 0 else {}
    got |= arrays_of(net, "final")
    got |= {name: net.layers[int(name[9:12])].output for name in want if name.startswith("last_fwd.")}
    assert got.keys() >= want.keys()
    assert len(want) > 30
    for name, array in want.items():
        assert_recorded(got[name], array, name)
    assert (net.seen, net.header.seen) == (told["seen_in_memory"], told["seen_saved"])
    if libm.is_the_recorders():
        assert net.to_bytes() == path.with_name(f"{path.stem}.final.weights").read_bytes()


@pytest.mark.parametrize("profile", RECORDED)
def test_every_policy_gives_the_recorded_rates(profile: str) -> None:
    """pow, exp and cos are always the machine's; another one's are off by a few units in the last place."""
    policies = json.loads((SAMPLE / "train" / f"lr_{profile}.json").read_text())["policies"]
    assert len(policies) >= 8
    for name, told in policies.items():
        keys = ("batch", "subdivisions", "max_batches")
        net = f"learning_rate={told['base_learning_rate']} " + " ".join(f"{key}={told[key]}" for key in keys)
        text = cfg_of("conn output=1", net=f"{net}\n{told['options']}")
        trained = dn.load(text, dialect=profile.removesuffix("-cpu"), profile=profile)
        for iteration, recorded in zip(told["iterations"], told["rate_hex"], strict=True):
            trained.seen = iteration * told["batch"]
            (want,) = struct.unpack("<f", bytes.fromhex(recorded))
            exact = libm.systems_is_the_recorders()
            limit = 0 if exact else 4 * np.spacing(np.float32(max(want, SMALLEST_DENORMAL)))
            assert abs(trained.learning_rate - want) <= limit, f"{name} at {iteration}"
