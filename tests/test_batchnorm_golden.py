"""The layer of its own against what the forks computed: every recorded array, bit for bit.

No libm call but sqrt, which is exact everywhere, and a pow in double that is rounded to float: two libms could differ only where
that double lies within its last bit of a rounding border, about once in 2^28 values. So equality is demanded of every array.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pydarknetbn
from core import SAMPLE, assert_same_bits, recorded, recorded_files
from pydarknetbn._native import Array

FORWARD = ("output", "mean", "variance", "rolling_mean", "rolling_variance", "x", "x_norm")
BACKWARD = ("delta", "bias_updates", "scale_updates", "mean_delta", "variance_delta")
UPDATE = ("scales", "biases", "scale_updates", "bias_updates")
UPDATED = "alexeyab-cpu"  # the other fork has no update of a batchnorm of its own


def keep(bn: pydarknetbn.BatchNorm, names: tuple[str, ...], prefix: str) -> dict[str, Array]:
    return {prefix + name: getattr(bn, name).copy() for name in names}


def backward_outside_training(bn: pydarknetbn.BatchNorm, delta: Array) -> dict[str, Array]:
    bn.scale_updates[...] = 0
    bn.bias_updates[...] = 0
    bn.backward(delta, train=False)
    return keep(bn, ("delta", "scale_updates", "bias_updates"), "bwd_notrain.")


def replay(inputs: dict[str, Array], profile: str) -> dict[str, Array]:
    """The recorder's steps: three training forwards, a backward, an update, an inference, a backward outside training.

    One fork keeps x in inference too; the other's last backward still finds the x of the third step, so here it comes first.
    """
    bn = pydarknetbn.BatchNorm(inputs["scales"].size, profile=profile, allow_degenerate=True)
    bn.scales, bn.biases = inputs["scales"], inputs["biases"]
    got = {}
    for step in (1, 2, 3):
        bn.forward(inputs[f"x{step}"], train=True)
        got |= keep(bn, FORWARD, f"fwd{step}.")
    bn.backward(inputs["delta"])
    got |= keep(bn, BACKWARD, "bwd.")
    if profile == UPDATED:
        bn.update(learning_rate=0.001, momentum=0.9, decay=0.0005, batch=inputs["x1"].shape[0])
        got |= keep(bn, UPDATE, "upd.")
        got |= backward_outside_training(bn, inputs["delta"])
        got["inf.output"] = bn.forward(inputs["x_inf"], train=False)
    else:
        got["inf.output"] = bn.forward(inputs["x_inf"], train=False, cache=True)
        got |= backward_outside_training(bn, inputs["delta"])
    return got


@pytest.mark.parametrize("path", recorded_files("bn/*-cpu/*.npz"))
def test_every_recorded_array_is_bit_equal(path: Path, threads: int) -> None:
    inputs, want, profile = recorded(path)
    got = replay(inputs, profile)
    assert len(want) >= 20
    for name, array in want.items():
        assert_same_bits(got[name], array, f"{profile} {path.stem} {name}")


@pytest.mark.parametrize("folder", ["bn", "conv", "connected"])
def test_the_sample_is_part_of_the_whole_folder(folder: str, golden: Path) -> None:
    sample = sorted((SAMPLE / folder).rglob("*.npz"))
    assert len(sample) >= 8
    for path in sample:
        assert path.read_bytes() == (golden / path.relative_to(SAMPLE)).read_bytes(), path.name


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu"])
def test_special_channels_are_what_the_sample_claims(profile: str) -> None:
    _, want, _ = recorded(SAMPLE / "bn" / profile / "special_b4_c8_h5_w5.npz")
    variance, mean = want["fwd1.variance"], want["fwd1.mean"]
    assert variance[0] < 1e-12, "channel 0 is constant"
    assert np.isnan(mean[3]), "channel 3 holds a NaN"
    assert (mean[4], mean[5]) == (np.inf, -np.inf)
    assert 0 < variance[7] < np.finfo(np.float32).tiny, "channel 7 has a subnormal variance, so nothing flushes to zero"
