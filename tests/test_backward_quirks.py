"""What the forks' backward does otherwise than the derivative, in values worked out by hand, and what `textbook` does instead."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, noise
from pydarknetbn._native import Array
from pydarknetbn.training import update_parameters

COPY = "activation activation=linear"


def net_of(*sections: str, profile: str, c: int = 1, h: int = 1, w: int = 2) -> dn.Network:
    dialect = "pjreddie" if profile == "pjreddie-cpu" else "alexeyab"
    return dn.load(cfg_of(*sections, c=c, h=h, w=w), dialect=dialect, profile=profile)


def back(net: dn.Network, x: Array | list[float], delta: Array | list[float]) -> list[float]:
    x = np.asarray(x, np.float32).reshape(-1, net.c, net.h, net.w)
    net.forward(x, train=True)
    return net.backward(np.asarray(delta, np.float32).reshape(len(x), *net.layers[-1].out_shape)).ravel().tolist()


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "textbook"])
def test_of_equal_values_in_a_window_the_first_takes_the_delta(profile: str) -> None:
    assert back(net_of("maxpool size=2 stride=2 padding=0", profile=profile, h=2), [3, 3, 3, 3], [5]) == [5, 0, 0, 0]


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "textbook"])
def test_padding_takes_no_delta_and_a_window_of_nan_loses_its_own(profile: str) -> None:
    """The forks would write at index -1."""
    net = net_of("maxpool size=3 stride=1", profile=profile, w=4)
    assert back(net, [-1, -2, np.nan, np.nan], [1, 10, 100, 1000]) == [11, 100, 0, 0]


def test_windows_that_overlap_add_up_in_the_order_of_the_outputs() -> None:
    """2^24 and then a 1 twice: the ones are lost, each alone; in another order they would not be."""
    net = net_of("maxpool size=3 stride=1", profile="pjreddie-cpu", w=4)
    assert back(net, [0, 9, 0, 0], [2.0**24, 1, 1, 0]) == [0, 2.0**24, 0, 0]
    assert back(net, [0, 9, 0, 0], [1, 1, 2.0**24, 0]) == [0, 2.0**24 + 2, 0, 0]


@pytest.mark.parametrize(("profile", "want"), [("alexeyab-cpu", [1, 1]), ("textbook", [4.5, 4.5])])
def test_local_avgpool_divides_by_the_whole_window_also_at_the_border(profile: str, want: list[float]) -> None:
    """Of 9 pixels 2 are within the image."""
    assert back(net_of("local_avgpool size=3 stride=3 padding=2", profile=profile), [1, 2], [9]) == want


@pytest.mark.parametrize(("profile", "want"), [("pjreddie-cpu", 3), ("alexeyab-cpu", 3), ("textbook", 5)])
@pytest.mark.parametrize("section", [COPY, "reorg stride=1", "upsample stride=-1"])
def test_a_copied_delta_overwrites_what_a_branch_has_left(section: str, profile: str, want: float) -> None:
    """Layer 2 gives layer 0 a delta of 2 first, then layer 1 one of 3."""
    net = net_of(COPY, section, "route layers=0,1", profile=profile, w=1)
    assert back(net, [1], [2, 3]) == [want]


@pytest.mark.parametrize(("profile", "want"), [("alexeyab-cpu", 140), ("textbook", 142)])
def test_sam_overwrites_the_delta_of_the_layer_that_it_multiplies(profile: str, want: float) -> None:
    """x * (10 x) with x = 7, and x again with a delta of 2: 10 * 7 by the factor x, over or beside these 2, and 70 by 10 x."""
    net = net_of(COPY, "upsample stride=1 scale=10", "sam from=0", "route layers=0,2", profile=profile, w=1)
    assert back(net, [7], [2, 1]) == [want]


@pytest.mark.parametrize(("profile", "want"), [("alexeyab-cpu", [2, 1]), ("textbook", [0.25, -0.25])])
def test_weights_of_a_shortcut_are_trained_as_if_they_were_not_normalised(profile: str, want: list[float]) -> None:
    """y = (w0 2x + w1 x) / (w0 + w1 + .0001) at 1: the forks take 2x and x; the derivatives are 1/4 and -1/4 nearly."""
    section = "shortcut from=0 weights_type=per_layer weights_normalization=relu"
    net = net_of(COPY, "upsample stride=1 scale=2", section, profile=profile, w=1)
    back(net, [1], [1])
    assert net.layers[2].weight_updates.tolist() == pytest.approx(want, abs=1e-4)  # of the .0001


@pytest.mark.parametrize(("profile", "want"), [("pjreddie-cpu", [5, 7]), ("textbook", [-0.032, 0.024])])
def test_l2norm_hands_its_delta_on_as_it_is(profile: str, want: list[float]) -> None:
    """x = (3, 4), y = x / 5: (delta - y (y . delta)) / 5 with y . delta = 3 + 5.6 = 8.6 is (5 - 5.16, 7 - 6.88) / 5."""
    net = dn.load(cfg_of("l2norm", c=2, h=1, w=1), dialect="pjreddie", profile=profile)
    assert back(net, [3, 4], [5, 7]) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(("profile", "want"), [("pjreddie-cpu", 0.25), ("textbook", -0.125)])
def test_normalization_leaves_out_that_its_divisor_depends_on_x(profile: str, want: float) -> None:
    """y = x / (1 + x^2 / 3) with x = 3: 1/4 of the delta, and by the divisor - 2/3 x^2 / 4^2 = -3/8 more."""
    net = dn.load(cfg_of("lrn size=2 alpha=.33333333 beta=1 kappa=1", c=1, h=1, w=1), dialect="pjreddie", profile=profile)
    assert back(net, [3], [1]) == pytest.approx([want], abs=1e-6)


@pytest.mark.parametrize(("profile", "want"), [("alexeyab-cpu", [8, 16, 0]), ("textbook", [2, 3, 4])])
def test_the_delta_of_a_blurred_image_lies_over_the_first_values_of_the_sharp_one(profile: str, want: list[float]) -> None:
    """Of 3 pixels in a row the blur 2 4 2 / 16 with stride 2 makes 2, around the first and around the last."""
    section = "conv filters=1 size=1 stride_x=2 stride_y=1 antialiasing=1 activation=linear"
    net = net_of(section, profile=profile, w=3)
    net.layers[0].weights[...] = 1
    assert back(net, [1, 2, 3], [8, 16]) == want


@pytest.mark.parametrize(("profile", "weight", "left"), [("alexeyab-cpu", 7.5, 1.5), ("textbook", 6, 3)])
def test_a_shared_kernel_adds_gradients_and_moves_once_for_each_layer_that_has_it(profile: str, weight: float, left: float) -> None:
    """y = w * w * x with w = 3: a gradient of 3 + 3. A move adds half of it and leaves half of it; the forks move twice."""
    kernel = "conv filters=1 size=1 activation=linear"
    net = net_of(kernel, f"{kernel} share_index=0", profile=profile, w=1)
    first, second = net.layers
    first.weights[...] = 3
    back(net, [1], [1])
    assert np.shares_memory(first.weight_updates, second.weight_updates)
    assert first.weight_updates.ravel().tolist() == [6]
    update_parameters(net.layers, net.arithmetic.training, batch=1, learning_rate=0.5, momentum=0.5, decay=0)
    assert first.weights.ravel().tolist() == [weight]
    assert second.weight_updates.ravel().tolist() == [left]


@pytest.mark.parametrize(("profile", "same"), [("alexeyab-cpu", True), ("textbook", False)])
def test_layers_of_one_kernel_share_the_statistics_of_the_last(profile: str, same: bool) -> None:
    kernel = "conv filters=2 size=1 batch_normalize=1 activation=linear"
    net = net_of(kernel, f"{kernel} share_index=0", profile=profile, c=2, h=3)
    net.forward(noise(4, 2, 3, 2), train=True)
    assert np.shares_memory(net.layers[0].mean, net.layers[1].mean) == same
    clone = net.clone()
    clone.forward(noise(4, 2, 3, 2), train=True)
    assert np.shares_memory(clone.layers[0].mean, clone.layers[1].mean) == same
    assert np.shares_memory(clone.layers[0].scales, clone.layers[1].scales)
    assert not np.shares_memory(clone.layers[0].scales, net.layers[0].scales)


def test_the_logistic_of_a_cross_entropy_has_its_delta_before_it() -> None:
    assert back(net_of("logistic", profile="pjreddie-cpu"), [0.3, -4], [5, 7]) == [5, 7]


def test_xnor_has_no_backward() -> None:
    net = dn.load(cfg_of("conv filters=1 xnor=1 activation=linear", c=1), dialect="pjreddie")
    with pytest.raises(dn.UnsupportedError, match=r"layer 0 \[convolutional\]: has no backward with xnor"):
        back(net, np.ones((1, 1, 8, 8)), np.ones((1, 1, 8, 8)))


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "textbook"])
def test_threads_change_no_bit(profile: str) -> None:
    sections = ["conv filters=4 size=3 pad=1 activation=leaky", "maxpool size=2 stride=1", "local filters=8 size=3 pad=1"]
    x, delta = noise(4, 3, 16, 16), noise(4, 8, 16, 16, seed=1)
    found = []
    for threads in (1, 3):
        with dn.num_threads(threads):
            net = net_of(*sections, profile=profile, c=3, h=16, w=16)
            net.forward(x, train=True)
            found.append((net.backward(delta), net.layers[2].weight_updates.copy()))
    assert_same_bits(found[0][0], found[1][0], "delta")
    assert_same_bits(found[0][1], found[1][1], "weight_updates")
