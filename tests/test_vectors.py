"""Outputs without width and height, and a sum that takes a batch for one image."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, ramp, refusal, weights_of
from pydarknetbn._native import Array
from pydarknetbn.dialect import DIALECTS

COPY = "upsample stride=1"
UNEQUAL = (COPY, "upsample stride=-2 scale=.25", "route layers=0,-1")


def run(x: Array, *sections: str, floats: list[float] | None = None, dialect: str = "alexeyab") -> Array:
    """The last layer's output of a network whose input is `x`."""
    c, h, w = x.shape[1:]
    weights = None if floats is None else weights_of(np.array(floats, np.float32))
    with dn.load(cfg_of(*sections, w=w, h=h, c=c), weights, dialect=dialect) as net:
        return net.forward(x)[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_route_of_unequal_sizes_is_a_vector_image_by_image(dialect):
    got = run(ramp(1, 2, 2, batch=2), *UNEQUAL, dialect=dialect)
    assert got.shape == (2, 5, 1, 1)
    assert got.reshape(2, 5).tolist() == [[0, 1, 2, 3, 1.5], [4, 5, 6, 7, 5.5]]


def test_route_takes_a_part_of_each_source_of_unequal_size():
    got = run(ramp(2, 2, 2), COPY, "upsample stride=-2 scale=.25", "route layers=0,1 groups=2 group_id=1")
    assert got.ravel().tolist() == [4, 5, 6, 7, 5.5]


@pytest.mark.parametrize(
    "after", ["softmax", "activation activation=relu", "dropout", "cost", "route layers=-1", "connected output=2"]
)
def test_vector_goes_into_what_takes_any_values(after):
    dn.load(cfg_of(*UNEQUAL, after), dialect="alexeyab")


def test_connected_reads_a_vector_in_the_order_of_the_sources():
    got = run(ramp(1, 2, 2), *UNEQUAL, "connected output=1 activation=linear", floats=[0, 1, 10, 100, 1000, 10000])
    assert got.item() == 18210


NEED_AN_IMAGE = ["conv filters=1", "max", "avgpool", "upsample", "reorg stride=1", "local", "crop", "l2norm", "batchnorm", "lrn"]
REASONS = {
    "width and height differ": UNEQUAL,
    "joins layer 2 (line 10), which joins 8 x 8 x 3 of layer 0 (line 5), 4 x 4 x 3 of layer 1 (line 7)": (
        *UNEQUAL,
        "route layers=-1",
    ),
    "has extra=2": ("reorg extra=2",),
    "is a softmax": ("softmax",),
    "is a loss": ("cost",),
}


@pytest.mark.parametrize("section", NEED_AN_IMAGE)
def test_layer_that_needs_an_image_refuses_a_vector(section):
    message = refusal(dn.CfgError, cfg_of(*UNEQUAL, section), dialect="pjreddie")
    assert "layer 3, needs an image, but layer 2 [route] (line 10) gives a vector of 240 values" in message


@pytest.mark.parametrize("reason", REASONS)
def test_refusal_says_why_there_is_no_image(reason):
    assert reason in refusal(dn.CfgError, cfg_of(*REASONS[reason], "max"), dialect="pjreddie")
    through = refusal(dn.CfgError, cfg_of(*REASONS[reason], "dropout", "max"), dialect="pjreddie")
    assert reason in through


def test_shortcut_from_a_vector_is_refused():
    message = refusal(dn.CfgError, cfg_of(*UNEQUAL, "route layers=0", "shortcut from=2"))
    assert "[shortcut], layer 4, needs an image, but layer 2 [route]" in message


# --- reorg with extra -----------------------------------------------------------------------------------------------------------


def test_extra_puts_zeros_behind_each_image_whatever_the_batch():
    net = dn.load(cfg_of("reorg extra=2", w=2, h=1, c=1), dialect="pjreddie")
    for batch in (1, 3, 2):
        got = net.forward(ramp(1, 1, 2, batch=batch, start=1))[0].reshape(batch, 4)
        assert got.tolist() == [[2 * b + 1, 2 * b + 2, 0, 0] for b in range(batch)]


def test_extra_and_flatten_exclude_each_other():
    assert "extra=1 and flatten" in refusal(dn.CfgError, cfg_of("reorg extra=1 flatten=1"), dialect="pjreddie")


# --- the sum of a shortcut ------------------------------------------------------------------------------------------------------


def shortcut(dialect: str, first: str, channels: int) -> tuple[Array, Array, Array]:
    """Output, input and source of a shortcut of two images from a layer of more channels than its own."""
    filters = [0.0] * channels + [float(f + 1) for f in range(channels)]
    one = [0.0, *[1.0] * channels]
    cfg = cfg_of(
        first, f"conv filters={channels} activation=linear", "conv filters=1 activation=linear", "shortcut from=1", w=2, h=1, c=1
    )
    with dn.load(cfg, weights_of(np.array(filters + one, np.float32)), dialect=dialect) as net:
        output = net.forward(ramp(1, 1, 2, batch=2, start=1))[0]
        return output, net.layers[2].output.copy(), net.layers[1].output.copy()


@pytest.mark.parametrize("dialect", ["alexeyab", "hank-ai"])
def test_shortcut_whose_source_has_inputs_like_its_own_adds_over_the_whole_batch(dialect):
    output, own, source = shortcut(dialect, COPY, 3)
    assert_same_bits(output, own + source.ravel()[:4].reshape(2, 1, 1, 2), "value after value")
    assert not np.array_equal(output, own + source[:, :1])


def test_shortcut_of_the_first_fork_adds_image_by_image():
    output, own, source = shortcut("pjreddie", COPY, 3)
    assert_same_bits(output, own + source[:, :1], "image by image")


def test_shortcut_from_a_layer_of_other_inputs_adds_image_by_image():
    x = ramp(2, 1, 2, batch=2)
    got = run(x, COPY, "conv filters=1 activation=linear", "shortcut from=0", floats=[0, 1, 0])
    assert_same_bits(got, 2 * x[:, :1], "image by image")


def test_shortcut_never_reads_beyond_a_source_of_fewer_values():
    """Its inputs are like the shortcut's own, its output is not: the forks read what lies behind."""
    x = ramp(2, 1, 2, batch=2)
    got = run(x, COPY, "conv filters=1 activation=linear", "route layers=0", "shortcut from=1", floats=[0, 1, 0])
    want = x.copy()
    want[:, :1] *= 2
    assert_same_bits(got, want, "the common channel")


def test_input_of_a_route_is_that_of_its_first_source_with_its_own_channels():
    """A route of 3 channels over a layer of 2 x 1: only a shortcut of 3 channels takes it for its own."""
    x = ramp(3, 1, 2, batch=2)
    got = run(x, COPY, COPY, "route layers=0,1", "route layers=0", "shortcut from=2")
    assert_same_bits(got, 2 * x, "image by image, since 6 channels are not 3")
