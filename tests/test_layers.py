"""Layers through a network: the smallest input that tells right from wrong, and each way in which options are refused."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, numbered, ramp, refusal, weights_of
from pydarknetbn._native import Array
from pydarknetbn.dialect import DIALECTS
from pydarknetbn.layers import BUILDERS


def run(x: Array, *sections: str, floats: list[float] | None = None, dialect: str = "alexeyab") -> Array:
    """The last layer's output of a network whose input is `x`."""
    c, h, w = x.shape[1:]
    weights = None if floats is None else weights_of(np.array(floats, np.float32))
    with dn.load(cfg_of(*sections, w=w, h=h, c=c), weights, dialect=dialect) as net:
        return net.forward(x)[0]


def plane(*rows: list[float]) -> Array:
    return np.array([[rows]], np.float32)


# --- values ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("size=2 stride=1", [[-1, -2, -3], [-4, -5, -6], [-7, -8, -9]]),
        ("size=3 stride=1", [[-1, -1, -2], [-1, -1, -2], [-4, -4, -5]]),
        ("size=2 stride=2", [[-1, -3], [-7, -9]]),
        ("size=3 stride=2 padding=0", [[-1]]),
    ],
)
def test_maxpool_pads_with_minus_infinity_first_right_and_below(dialect, options, want):
    assert run(-ramp(1, 3, 3, start=1), f"maxpool {options}", dialect=dialect)[0, 0].tolist() == want


def test_maxpool_takes_a_stride_for_each_axis():
    got = run(ramp(1, 4, 4), "maxpool size=1 stride_x=2 stride_y=3", dialect="alexeyab")
    assert got[0, 0].tolist() == [[0, 2], [12, 14]]


def test_maxpool_is_as_large_as_its_stride_where_no_size_is_given():
    assert run(ramp(1, 3, 3), "maxpool stride=3 padding=0").ravel().tolist() == [8]


@pytest.mark.parametrize("dialect", ["alexeyab", "hank-ai"])
def test_route_takes_one_group_of_each_source(dialect):
    x = np.repeat(np.arange(4, dtype=np.float32), 4).reshape(1, 4, 2, 2)
    copied = "upsample stride=1"
    assert run(x, copied, "route layers=-1 groups=2 group_id=1", dialect=dialect)[0, :, 0, 0].tolist() == [2, 3]
    pair = "route layers=-1 groups=2"
    got = run(x, copied, pair, "route layers=0,-1 groups=2 group_id=0", dialect=dialect)
    assert got[0, :, 0, 0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_route_joins_channels_image_by_image_in_the_order_written(dialect):
    x = ramp(2, 1, 2, batch=2)
    got = run(x, "upsample stride=1", "upsample stride=1 scale=-1", "route layers=-1,0", dialect=dialect)
    assert np.array_equal(got, np.concatenate([-x, x], axis=1))


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
def test_reorg_has_darknets_first_order(dialect):
    got = run(ramp(4, 4, 4), "reorg stride=2", dialect=dialect)
    assert got.shape == (1, 16, 2, 2)
    assert got[0, [0, 1, 4]].reshape(3, 4).tolist() == [[0, 2, 4, 6], [16, 18, 20, 22], [1, 3, 5, 7]]


@pytest.mark.parametrize("dialect", ["alexeyab", "hank-ai"])
def test_reorg3d_has_the_true_order(dialect):
    got = run(ramp(4, 4, 4), "reorg3d stride=2", dialect=dialect)
    assert got[0, [0, 1, 4]].reshape(3, 4).tolist() == [[0, 2, 8, 10], [16, 18, 24, 26], [1, 3, 9, 11]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_shortcut_adds_what_both_have(dialect):
    planes = ramp(1, 4, 4).repeat(2, axis=1)
    ones = "conv filters=3 size=2 stride=2 activation=linear"
    got = run(planes, "upsample stride=1", ones, "shortcut from=0", floats=[1] * 3 + [0] * 24, dialect=dialect)
    assert got[0].reshape(3, 4).tolist() == [[1, 3, 9, 11], [1, 3, 9, 11], [1, 1, 1, 1]]


def test_shortcut_activates_after_the_sum():
    x = plane([-3, 2])
    got = run(x, "upsample stride=1", "upsample stride=1", "shortcut from=0 activation=relu")
    assert got.ravel().tolist() == [0, 4]


def test_shortcut_weighs_its_sources_with_the_files_floats():
    x = plane([2, 10])
    layers = "upsample stride=1", "upsample stride=1 scale=10", "shortcut from=0 weights_type=per_feature"
    assert run(x, *layers, floats=[3, 0.5]).ravel().tolist() == [61, 305]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_upsample_repeats_and_scales(dialect):
    assert run(plane([3, 7]), "upsample stride=2 scale=0.5", dialect=dialect)[0, 0].tolist() == [[1.5, 1.5, 3.5, 3.5]] * 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_upsample_with_a_negative_stride_adds_each_block(dialect):
    assert run(ramp(1, 2, 4), "upsample stride=-2 scale=0.5", dialect=dialect).ravel().tolist() == [5, 9]


def test_avgpool_is_the_mean_of_each_channel():
    assert run(ramp(2, 2, 2, start=1), "avgpool").ravel().tolist() == [2.5, 6.5]


def test_softmax_divides_among_its_group():
    x = np.log(np.array([1, 3, 2, 6], np.float32)).reshape(1, 4, 1, 1)
    assert np.allclose(run(x, "softmax").ravel(), [1 / 12, 3 / 12, 2 / 12, 6 / 12], rtol=3e-7)  # two roundings and libm's exp
    assert np.allclose(run(x, "softmax groups=2").ravel(), [0.25, 0.75, 0.25, 0.75], rtol=3e-7)
    assert np.allclose(run(x, "softmax groups=2 temperature=.5").ravel(), [0.1, 0.9, 0.1, 0.9], rtol=6e-7)
    assert run(np.full((1, 4, 1, 1), 1000, np.float32), "softmax").ravel().tolist() == [0.25] * 4


@pytest.mark.parametrize("dialect", DIALECTS)
def test_convolution_pads_both_sides_and_drops_the_rest(dialect):
    centre = [0, *[0] * 4, 1, *[0] * 4]  # the bias, then the kernel
    got = run(ramp(1, 4, 4), "conv filters=1 size=3 stride=2 pad=1 activation=linear", floats=centre, dialect=dialect)
    assert got[0, 0].tolist() == [[0, 2], [8, 10]]


def test_filter_of_a_group_reads_its_own_channels():
    x = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1, 1)
    got = run(x, "conv filters=4 size=1 groups=2 activation=linear", floats=[0] * 4 + [1, 0, 0, 1] * 2)
    assert got.ravel().tolist() == [1, 10, 100, 1000]


def test_connected_reads_an_image_in_the_order_of_memory():
    got = run(ramp(2, 1, 2, batch=2), "connected output=1 activation=linear", floats=[0.5, 1, 10, 100, 1000])
    assert got.ravel().tolist() == [3210.5, 7654.5]


@pytest.mark.parametrize(
    ("logit", "scale", "want"),
    [(2, 1, 0.880797), (2, 1.05, 0.899837), (2, 1.2, 0.956957), (2, 2, 1.261594), (-8, 1.2, -0.0995976), (0, 1.2, 0.5)],
)
def test_scale_x_y_spreads_the_offset(logit, scale, want):
    x = np.full((1, 6, 1, 1), logit, np.float32)
    got = run(x, f"yolo mask=0 num=1 classes=1 anchors=1,1 scale_x_y={scale}")
    assert got[0, :2].ravel() == pytest.approx([want] * 2, abs=6e-7)  # given to six decimals
    assert got[0, 2:4].ravel().tolist() == [logit] * 2


def test_every_section_that_is_built_has_a_test_here_or_in_a_file_of_its_own():
    here = "avgpool convolutional connected maxpool reorg reorg3d route shortcut softmax upsample yolo".split()
    in_network, in_heads = ["batchnorm", "cost", "dropout"], "Gaussian_yolo contrastive detection iseg region".split()
    in_recurrent = ["conv_lstm", "crnn", "gru", "history", "lstm", "rnn"]
    in_pixels = "activation crop empty implicit l2norm local_avgpool logistic normalization sam scale_channels".split()
    in_local = ["local", "deconvolutional"]
    assert {*here, *in_network, *in_heads, *in_recurrent, *in_pixels, *in_local} == set(BUILDERS)


# --- what is refused ------------------------------------------------------------------------------------------------------------

HEAD = "conv filters=18 size=1 activation=linear"
ANCHORS = "num=3 anchors=1,2,3,4,5,6"

WRONG = {
    "a group that does not divide the channels": (["max", "route layers=-1 groups=2"], 6, "3 channels do not divide into 2"),
    "a group_id beyond the groups": (["max", "route layers=-1 groups=3 group_id=3"], 6, "got 3 of 3"),
    "a layer after the route": (["route layers=1", "max"], 6, "layers=1, but there is no layer before it"),
    "the route itself": (["max", "max", "route layers=0,2"], 8, "layers=2, but the layers before it are 0 to 1"),
    "a layer before the first": (["max", "route layers=-9"], 7, "layers=-9, but the layers before it are 0 to 0"),
    "a route from nowhere": (["max", "route"], 6, "needs layers="),
    "a route of two sizes before an image is needed": (
        ["max size=2 stride=2", "max size=2 stride=2", "route layers=0,1", "max"],
        13,
        "[max], layer 3, needs an image, but layer 2 [route] (line 11) gives a vector of 60 values, since it joins 4 x 4 x 3 of "
        "layer 0 (line 5), 2 x 2 x 3 of layer 1 (line 8): width and height differ",
    ),
    "a shortcut that counts from itself": (["max", "shortcut from=1"], 7, "from=1, but the layers before"),
    "a shortcut by a word": (["max", "shortcut from=self"], 7, "from='self', expected a whole number"),
    "a shortcut of no whole ratio": (
        ["max size=2 stride=1", "max size=4 stride=2 padding=0", "shortcut from=0"],
        12,
        "8 x 8 cannot be added to 3 x 3",
    ),
    "groups that do not divide the channels": (
        ["conv filters=4 groups=2"],
        5,
        "3 channels and 4 filters do not both divide into 2",
    ),
    "groups that do not divide the filters": (["conv filters=5 groups=3"], 5, "3 channels and 5 filters do not both divide into 3"),
    "no filters": (["conv filters=0"], 6, "filters='0', expected 1 or more"),
    "a stride with a letter": (["conv stride=1y"], 6, "stride='1y', expected a whole number"),
    "a kernel beyond the image": (["conv size=11"], 5, "[conv], layer 0"),
    "an activation nearly right": (["conv activation=mish2"], 6, "activation=mish2; did you mean mish?"),
    "an activation in capitals": (["conv activation=Leaky"], 6, "activation=Leaky; did you mean leaky?"),
    "a mask beyond the anchors": ([HEAD, f"yolo mask=0,1,3 classes=1 {ANCHORS}"], 10, "mask 3, but num=3"),
    "a mask below zero": ([HEAD, f"yolo mask=-1,1,2 classes=1 {ANCHORS}"], 10, "mask -1, but num=3"),
    "a head of other classes": (
        [HEAD, f"yolo mask=0,1,2 classes=80 {ANCHORS}"],
        11,
        "takes 3 anchors x 85 (box, objectness, classes) = 255 channels, but the layer before gives 18; set filters=",
    ),
    "a region of other classes": ([HEAD, f"region classes=20 {ANCHORS}"], 10, "= 75 channels, but the layer before gives 18"),
    "another kind of nms": ([HEAD, f"yolo mask=0,1,2 classes=1 {ANCHORS} nms_kind=soft"], 14, "nms_kind=soft is none of"),
    "weights of a pooling shared": (["max", "conv share_index=0"], 7, "shares layer 0, whose weights are of another kind"),
    "weights of another size shared": (
        ["conv filters=3 size=3 pad=1", "conv filters=3 size=1 share_index=0"],
        12,
        "shares layer 0, whose weights are of another kind or size",
    ),
    "no layer": ([], 1, "is followed by no layer"),
    "an upsample by nothing": (["upsample stride=0"], 5, "an upsample by 0"),
    "a reorg of too few channels": (["reorg stride=2"], 5, "3 channels do not divide by the 4 pixels of a block"),
    "a softmax of unequal groups": (["softmax groups=5"], 5, "5 groups"),
    "a window beyond the image": (["max size=9 padding=0"], 5, "a window of 9 does not fit into 8 x 8"),
    "shortcut weights of an unknown type": (["max", "shortcut from=-1 weights_type=x"], 8, "weights_type=x is none of"),
}


@pytest.mark.parametrize(("sections", "line", "words"), WRONG.values(), ids=WRONG)
def test_options_that_make_no_layer_are_refused_with_their_line(sections, line, words):
    message = refusal(dn.CfgError, cfg_of(*sections))
    assert message.startswith(f"<bytes>:{line}: ")
    assert words in message


@pytest.mark.parametrize(("key", "size"), [("w", {"w": 0}), ("h", {"h": 0}), ("c", {"c": 0})])
def test_net_without_a_side_is_refused(key, size):
    assert "needs width=, height= and channels= of 1 or more" in refusal(dn.CfgError, cfg_of("max", **size))


def test_sizes_that_do_not_meet_again_are_told_with_both_layers():
    halves = ["conv filters=2 size=3 stride=2 pad=1 activation=linear"] * 4
    last = "conv filters=2 activation=linear"
    meeting = dn.load(cfg_of(*halves, "upsample", "route layers=-1,2", last, w=96, h=64))
    assert [tuple(layer.out_shape) for layer in meeting.layers[3:6]] == [(2, 4, 6), (2, 8, 12), (4, 8, 12)]
    message = refusal(dn.CfgError, cfg_of(*halves, "upsample", "route layers=-1,2", last, w=100, h=64))
    assert "14 x 8 x 2 of layer 4 (line 29), 13 x 8 x 2 of layer 2 (line 17)" in message
    assert "width and height differ; width 96 or 112 works, a multiple of 16" in message
    dn.load(cfg_of(*halves, "upsample", "route layers=-1,2", last, w=112, h=64))


def test_layers_that_no_size_of_the_input_brings_together_get_no_such_advice():
    halves = ["conv filters=2 size=3 stride=2 pad=1 activation=linear"] * 2
    message = refusal(dn.CfgError, cfg_of(*halves, "route layers=0,1", "conv filters=2 activation=linear", w=100, h=100))
    assert "50 x 50 x 2 of layer 0 (line 5), 25 x 25 x 2 of layer 1 (line 11): width and height differ" in message
    assert "works" not in message


UNCOMPUTED = [
    (["conv_lstm output=2 size=1 bottleneck=1"], "bottleneck=1"),
    (["crnn output=2 size=1 xnor=1"], "xnor=1"),
    (["max maxpool_depth=1 antialiasing=1"], "a maxpool over channels is not blurred"),
]


@pytest.mark.parametrize(("sections", "words"), UNCOMPUTED, ids=[words for _, words in UNCOMPUTED])
def test_options_that_change_inference_and_are_not_computed_are_named(sections, words):
    message = refusal(dn.UnsupportedError, cfg_of(*sections))
    assert message.startswith("<bytes>:")
    assert words in message
    assert "not computed by this package" in message


def test_option_at_its_neutral_value_is_no_obstacle():
    net = dn.load(cfg_of("conv filters=2 antialiasing=0 xnor=0 dontload=0 activation=linear", "softmax"))
    assert net.warnings == ()


def test_shared_weights_take_no_room_in_the_file_and_are_the_same_memory():
    shared = "conv filters=3 size=1 activation=linear share_index=0"
    net = dn.load(cfg_of("conv filters=3 size=1 activation=linear", shared), weights_of(numbered(12)))
    assert [layer.stored for layer in net.layers] == [True, False]
    net.layers[0].weights[0, 0] = 77
    assert net.layers[1].weights[0, 0, 0, 0] == 77
