"""Trouble with layers that users of other programs have reported, each as its smallest input."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import CFG, cfg_of, noise, numbered, ramp, refusal, weights_of
from pydarknetbn._native import Array
from pydarknetbn.dialect import DIALECTS

# --- heads ----------------------------------------------------------------------------------------------------------------------

ANCHORS = "num=6 anchors=10,14,23,27,37,58,81,82,135,169,344,319"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("mask", "widths"),
    [("1,2,3", [23, 37, 81]), ("4,0,2", [135, 10, 37]), (" 4 , 0,2 ", [135, 10, 37])],
)
def test_mask_of_a_cfg_names_its_anchors_in_the_order_written(mask, widths, dialect):
    text = cfg_of("conv filters=18 stride=416 activation=linear", f"yolo mask=MASK classes=1 {ANCHORS}", w=416, h=416)
    net = dn.load(text.replace(b"MASK", mask.encode()), weights_of(np.zeros(72, np.float32)), dialect=dialect)
    found = net.detect(np.zeros((3, 416, 416), np.float32), thresh=0.2, nms=1)  # logits of 0: probability .25, exp(tw) = 1
    assert found["box"][np.argsort(found["anchor"]), 2].tolist() == pytest.approx(widths, rel=1e-6)


def test_cells_of_a_wide_image_run_over_its_width():
    cells = ["max size=32 stride=32", "conv filters=6 activation=linear", "yolo mask=0 num=1 classes=1 anchors=12,8"]
    objectness = np.zeros(24, np.float32)
    objectness[4], objectness[18] = -20, 40  # the bias of the fifth filter, and its weight for the first channel
    net = dn.load(cfg_of(*cells, w=96, h=64), weights_of(objectness))
    assert tuple(net.layers[2].out_shape) == (6, 2, 3)
    picture = np.zeros((3, 64, 96), np.float32)
    picture[0, 40, 70] = 1
    (row,) = net.detect(picture)
    assert row["cell"] == 5  # the third of the second row
    assert row["box"].tolist() == pytest.approx([80, 48, 12, 8], rel=1e-6)


# --- convolutions ---------------------------------------------------------------------------------------------------------------


def test_refused_activation_is_told_with_layer_line_and_all_that_are_known():
    message = refusal(dn.CfgError, cfg_of("max", "conv filters=2 activation=unknown"))
    assert message.startswith("<bytes>:8: [conv], layer 1, has activation=unknown; it knows elu, gelu, ")
    assert set(message.split("it knows ")[1].split(", ")) == DIALECTS["alexeyab"].activations


@pytest.mark.parametrize("dialect", DIALECTS)
def test_widths_that_five_halvings_leave_apart_are_told_with_the_nearest_that_work(dialect):
    layers = [*["conv filters=2 size=3 stride=2 pad=1 activation=linear"] * 5, "upsample", "route layers=-1,3"]
    last = "conv filters=1 activation=linear"
    assert [layer.out_shape.w for layer in dn.load(cfg_of(*layers[:6], w=100, h=96)).layers] == [50, 25, 13, 7, 4, 8]
    message = refusal(dn.CfgError, cfg_of(*layers, last, w=100, h=96), dialect=dialect)
    assert "8 x 6 x 2 of layer 5 (line 35), 7 x 6 x 2 of layer 3 (line 23)" in message
    assert "width 96 or 128 works, a multiple of 32" in message
    for width in (96, 128):
        dn.load(cfg_of(*layers, last, w=width, h=96), dialect=dialect)


GAINS = [("pjreddie", 999.000999), ("alexeyab", 301.511345), ("hank-ai", 301.511345)]


@pytest.mark.parametrize(("dialect", "gain"), GAINS)
def test_tiny_variance_in_a_network_is_the_named_profiles(dialect, gain):
    text = cfg_of("conv filters=1 batch_normalize=1 activation=linear", w=1, h=1, c=1)
    net = dn.load(text, weights_of(np.array([0, 1, 0, 1e-6, 1], np.float32)), dialect=dialect)
    assert net.profile == f"{dialect}-cpu"
    assert net.forward(np.ones((1, 1, 1, 1), np.float32))[0].item() == pytest.approx(gain, rel=3e-7)


TABLE = {  # at -2, -0.5, 0, 1
    "linear": [-2, -0.5, 0, 1],
    "relu": [0, 0, 0, 1],
    "leaky": [-0.2, -0.05, 0, 1],
    "elu": [-0.8646647, -0.3934693, 0, 1],
    "logistic": [0.1192029, 0.3775407, 0.5, 0.7310586],
    "tanh": [-0.9640276, -0.4621172, 0, 0.7615942],
    "swish": [-0.2384058, -0.1887703, 0, 0.7310586],
    "mish": [-0.2525015, -0.2207438, 0, 0.8650984],
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", TABLE)
def test_activation_of_a_cfg_has_darknets_slopes(name, dialect):
    text = cfg_of(f"conv filters=1 activation={name}", w=4, h=1, c=1)
    if name not in DIALECTS[dialect].activations:
        assert f"activation={name}" in refusal(dn.CfgError, text, dialect=dialect)
        return
    net = dn.load(text, weights_of(np.array([0, 1], np.float32)), dialect=dialect)
    got = net.forward(np.array([[[[-2, -0.5, 0, 1]]]], np.float32))[0]
    assert got.ravel().tolist() == pytest.approx(TABLE[name], abs=2e-7)  # seven decimals, and a float32 step where terms cancel


# --- layers without weights -----------------------------------------------------------------------------------------------------


def largest(x: Array, size: int) -> Array:
    """The largest value within size // 2 of each pixel, inside the image."""
    reach, (h, w) = size // 2, x.shape[2:]
    rows = [[x[:, :, max(y - reach, 0) : y + reach + 1, max(c - reach, 0) : c + reach + 1] for c in range(w)] for y in range(h)]
    return np.stack([np.stack([part.max((2, 3)) for part in row], -1) for row in rows], 2)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("shift", [0.5, 2], ids=["mixed", "negative"])
def test_pyramid_of_poolings_ignores_what_lies_outside(dialect, shift, threads):
    x = noise(2, 2, 13, 13) - np.float32(shift)
    pools = [
        "max size=1",
        "max size=5 stride=1",
        "route layers=-2",
        "max size=9 stride=1",
        "route layers=-4",
        "max size=13 stride=1",
    ]
    net = dn.load(cfg_of(*pools, "route layers=-1,-3,-5,-6", w=13, h=13, c=2), dialect=dialect)
    want = np.concatenate([largest(x, 13), largest(x, 9), largest(x, 5), x], axis=1)
    assert np.array_equal(net.forward(x)[0], want)


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
def test_reorg_of_one_channel_is_refused_where_the_forks_divide_by_zero(dialect):
    message = refusal(dn.CfgError, cfg_of("reorg stride=2", w=4, h=4, c=1), dialect=dialect)
    assert message == "<bytes>:5: [reorg], layer 0: 1 channels do not divide by the 4 pixels of a block"


@pytest.mark.parametrize("dialect", ["alexeyab", "hank-ai"])
def test_reorg3d_of_one_channel_is_the_block_order(dialect):
    (got,) = dn.load(cfg_of("reorg3d stride=2", w=4, h=4, c=1), dialect=dialect).forward(ramp(1, 4, 4))
    assert got.reshape(4, 4).tolist() == [[0, 2, 8, 10], [1, 3, 9, 11], [4, 6, 12, 14], [5, 7, 13, 15]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_route_counts_a_dropout_and_reads_the_same_data_there(dialect):
    conv = "conv filters=1 activation=linear"
    layers = [conv, "dropout probability=.5", conv, "route layers=0,-2"]
    net = dn.load(cfg_of(*layers, w=2, h=1, c=1), weights_of(np.array([1, 2, 10, 3], np.float32)), dialect=dialect)
    assert net.layers[3].sources == (0, 1)
    assert net.forward(ramp(1, 1, 2))[0].ravel().tolist() == [1, 3, 1, 3]
    assert net.layers[2].output.ravel().tolist() == [13, 19]


def test_real_net_with_18_dropouts_has_346062_floats(models):
    net = dn.load(models / "yolo-fastest-1.1.cfg")
    assert sum(layer.type == "dropout" for layer in net.layers) == 18
    assert sum(array.size for layer in net.layers for array in layer.params.values()) == 346062


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("groups=3", "4 channels do not divide into 3 groups"),
        ("groups=2 group_id=2", "a group_id below groups, got 2 of 2"),
        ("groups=2 group_id=-1", "group_id='-1', expected 0 or more"),
        ("groups=0", "groups='0', expected 1 or more"),
    ],
)
def test_groups_of_a_route_are_checked_before_any_image(options, words):
    assert words in refusal(dn.CfgError, cfg_of("max size=1", f"route layers=-1 {options}", c=4))


def test_route_takes_the_same_group_of_sources_of_unequal_depth():
    layers = ["max size=1", "conv filters=2 activation=linear", "route layers=0,1 groups=2 group_id=0"]
    x = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
    net = dn.load(cfg_of(*layers, w=1, h=1, c=4), weights_of(numbered(10) * 10))
    assert net.forward(x)[0].ravel().tolist() == [0, 1, 10 + 40 + 2 * 50 + 3 * 60]


def test_dialect_that_ignores_the_groups_of_a_route_is_warned_of():
    net = dn.load(cfg_of("max size=1", "route layers=-1 groups=2", c=4), dialect="pjreddie")
    assert net.layers[1].out_shape.c == 4
    assert net.warnings == ("<bytes>:9: [route] has no option groups in dialect pjreddie, which ignores it",)


# --- the batch ------------------------------------------------------------------------------------------------------------------


def test_subdivided_batch_of_a_cfg_takes_no_memory_and_no_part_in_inference():
    text = (CFG / "convolutional.cfg").read_bytes()
    assert b"batch=64\nsubdivisions=16\n" in text
    large, small = (dn.load(each, weights_of(numbered(62))) for each in (text, text.replace(b"batch=64", b"batch=1")))
    x = noise(3, 3, 8, 8)
    assert large.forward(x)[0].tobytes() == small.forward(x)[0].tobytes()
    assert large.layers[0].output.shape == (3, 2, 8, 8)
    large.forward(x[:1])
    assert large.layers[0].output.shape == (1, 2, 8, 8)
