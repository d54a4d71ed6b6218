"""Convolutions of signs (xnor=1): the literal results of both ways of counting."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of

IMAGE = np.array([[0.5, -2, 0], [3, 1, -1]], np.float32).reshape(1, 1, 2, 3)
SIGNS = [[1, -1, -1], [1, 1, -1]]
"""Zero is no positive number, so its sign is minus."""


def outputs(weights: list[float], profile: str, **options: int) -> list[list[float]]:
    """Of IMAGE through one filter with a bias of 10."""
    keys = " ".join(f"{key}={value}" for key, value in options.items())
    net = dn.load(cfg_of(f"conv filters=1 xnor=1 activation=linear {keys}", w=3, h=2, c=1), profile=profile)
    net.layers[0].params["weights"][...] = np.array(weights, np.float32).reshape(net.layers[0].params["weights"].shape)
    net.layers[0].params["biases"][...] = 10
    return net.forward(IMAGE)[0][0, 0].tolist()


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"])
@pytest.mark.parametrize("weight", [0.25, -0.25])
def test_weights_and_inputs_are_signs_and_the_mean_magnitude(profile, weight):
    assert outputs([weight], profile, size=1) == [[10 + weight * sign for sign in row] for row in SIGNS]


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        # The middle of the upper row: 1 - 1 - 1 above 1 + 1 - 1; the row above the image holds 3 of its 9 places.
        ("pjreddie-cpu", [[12, 10, 8], [12, 10, 8]]),
        ("alexeyab-cpu", [[7, 7, 3], [7, 7, 3]]),
        ("hank-ai-cpu", [[7, 7, 3], [7, 7, 3]]),
    ],
)
def test_padding_adds_nothing_to_sums_of_floats_and_minus_one_to_counts(profile, expected):
    assert outputs([1.0] * 9, profile, size=3, pad=1) == expected


def test_mean_is_taken_of_each_filter_before_signs():
    assert outputs([1.0, -3.0, 0.0, 2.0], "alexeyab-cpu", size=2) == [[10 + 1.5 * (1 + 1 - 1 + 1), 10 + 1.5 * (-1 + 1 - 1 - 1)]]


def test_groups_are_refused():
    with pytest.raises(dn.DarknetError, match="a convolution of signs has no groups, got 3"):
        dn.load(cfg_of("conv filters=3 groups=3 xnor=1"))


def test_binary_weights_are_not_seen_by_inference():
    plain, binary = (dn.load(cfg_of(f"conv filters=2 size=3 pad=1{key} activation=linear")) for key in ("", " binary=1"))
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8), np.float32)
    for net in (plain, binary):
        net.layers[0].params["weights"][...] = 0.3
    np.testing.assert_array_equal(plain.forward(x)[0], binary.forward(x)[0])
