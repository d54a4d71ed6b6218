"""Trouble with files that users of other programs have reported, each as its smallest input."""

from __future__ import annotations

import pytest

import pydarknetbn as dn
from nets import cfg_of, numbered, ramp, refusal, weights_of

THREE = ("max", "max", "max")


def test_remark_after_a_value_is_no_part_of_it():
    text = (
        b"[net]\nwidth=8\nheight=8\nchannels=3\n"
        b"[convolutional]\nfilters=30 #note\nactivation=leaky # note\n"
        b"[convolutional]\nfilters=12 ; two heads\nactivation=linear\n"
        b"[route]\nlayers = -1, 1 ###S4\n"
        b"[yolo]\nclasses=1\nnum=4\nmask=0,1,2,3\nanchors = 10,14, 23,27, 1,2, 3,4 # small\n"
    )
    net = dn.load(text)
    assert (net.layers[0].out_shape.c, net.layers[0].detail) == (30, "leaky")
    assert net.layers[2].sources == (1, 1)
    assert net.layers[3].head.anchors == ((10, 14), (23, 27), (1, 2), (3, 4))
    assert net.warnings == ()


@pytest.mark.parametrize("value", ["mish2", "Leaky", "leaky;mish2"])
def test_unknown_activation_never_runs_as_relu(value):
    text = cfg_of(f"conv filters=2 activation={value}")
    if ";" in value:
        assert dn.load(text).layers[0].detail == "leaky"
    else:
        assert f"activation={value}" in refusal(dn.CfgError, text)


def test_empty_activation_is_refused():
    assert "got 'activation=' with no value" in refusal(dn.CfgError, cfg_of("conv filters=2 activation="))


MALFORMED = {
    "a route beyond the net": (cfg_of(*THREE, "route layers=5"), "layers=5, but the layers before it are 0 to 2"),
    "a route before the net": (cfg_of("max", "route layers=-9"), "layers=-9, but the layers before it are 0 to 0"),
    "an empty route": (cfg_of("max", "route layers="), "with no value"),
    "a route of commas": (cfg_of("max", "route layers=,"), "item 1 is empty"),
    "a shortcut from itself": (cfg_of("max", "shortcut from=self"), "expected a whole number"),
    "a mask longer than num": (
        cfg_of("conv filters=18 activation=linear", "yolo classes=1 num=2 mask=0,1,2 anchors=1,1,1,1"), "has mask 2, but num=2"),
    "NUL bytes": (b"[net]\nwidth=8\0\0\nheight=8\n", "holds a NUL byte"),
    "65 sections and no net": (b"[conv]\n" * 65, "the first section has to be [net]"),
    "a long line": (b"[net]\n" + b"width=" + b"9" * 10_000 + b"\n[max]\n", "expected"),
    "a section that never ends": (b"[net\n" + b"[" * 10_000, "expected the name of a section"),
    "a key before any section": (b"classes = 1\n", "expected [net] before any option"),
    "a page": (b"<html><head></head></html>", "is an HTML page"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), MALFORMED.values(), ids=MALFORMED)
def test_cfg_that_crashes_other_readers_is_a_sentence(text, words):
    message = refusal(dn.CfgError, text)
    assert words in message
    assert len(message) < 300


def test_comma_after_the_last_layer_of_a_route_is_a_warning():
    net = dn.load(cfg_of("max", "route layers=-1,"))
    assert net.layers[1].sources == (0,)
    assert net.warnings == ("<bytes>:7: layers= ends with a comma, which is dropped",)


@pytest.mark.parametrize(("size", "section", "words"), [
    ({"w": 9, "h": 9}, "reorg stride=2 flatten=1", "9 x 9 does not divide by a stride of 2"),
    ({"c": 6}, "reorg stride=2 flatten=1 reverse=1", "6 channels do not divide by the 4 pixels of a block"),
    ({"c": 4}, "reorg3d stride=2 reverse=1", "4 channels do not divide by the 4 pixels of a block twice"),
    ({"c": 24}, "reorg3d stride=2 reverse=1", "24 channels do not divide by the 4 pixels of a block twice"),
])  # fmt: skip
def test_reorg_that_would_write_past_its_output_is_refused(size, section, words):
    assert words in refusal(dn.CfgError, cfg_of(section, **size))


@pytest.mark.parametrize("option", ["bottleneck=1", "xnor=1"])
def test_option_that_changes_inference_and_is_not_computed_is_never_ignored(option):
    assert option in refusal(dn.UnsupportedError, cfg_of(f"conv_lstm output=2 size=3 pad=1 {option}"))


def test_stride_of_each_axis_and_dilation_are_computed():
    axes = "conv filters=1 size=3 pad=1 stride_x=2 stride_y=1 activation=linear"
    net = dn.load(cfg_of(axes, "conv filters=1 size=2 dilation=3 activation=linear"))
    assert [layer.out_shape for layer in net.layers] == [(1, 8, 4), (1, 5, 1)]


@pytest.mark.parametrize(("section", "want"), [("maxpool", 47), ("local_avgpool", 23.5)])
def test_window_of_two_billion_costs_no_more_than_the_image(section, want):
    net = dn.load(cfg_of(f"{section} size=2147483647 stride=1", w=8, h=6, c=1))
    (output,) = net.forward(ramp(1, 6, 8))
    assert (output == want).all()


def test_file_of_a_net_with_more_classes_changes_nothing_and_names_both_counts():
    two = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1 activation=leaky", "conv filters=18 activation=linear")
    for floats, words in ((134, "72 bytes are left over"), (107, "36 bytes more")):
        message = refusal(dn.WeightsError, two, weights_of(numbered(floats)))
        assert f"holds {floats} floats" in message
        assert "takes 116" in message
        assert words in message


UNTIDY = {
    "no blank line between": b"[net]\nwidth=8\nheight=8\nchannels=3\n[conv]\nfilters=2\nbatch_normalize=1\n[max]\nsize=2\n",
    "blank lines and remarks inside": (
        b"\n\n[net]\nwidth=8\n\n# rows\nheight=8\n\n\nchannels=3\n\n[conv]\n\nfilters=2\n\n; as trained\n"
        b"batch_normalize=1\n\n\n[max]\n\nsize=2\n\n\n"
    ),
    "no end of the last line": b"[net]\nwidth=8\nheight=8\nchannels=3\n\n[conv]\nfilters=2\nbatch_normalize=1\n\n[max]\nsize=2",
}


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
@pytest.mark.parametrize("text", UNTIDY.values(), ids=UNTIDY)
def test_blank_lines_make_no_sections_and_what_is_written_ends_its_last_line(text, dialect):
    tidy = cfg_of("conv filters=2 batch_normalize=1", "max size=2")
    data = weights_of(numbered(14))
    net, other = dn.load(text, data, dialect=dialect), dn.load(tidy, data, dialect=dialect)
    assert [layer.out_shape for layer in net.layers] == [(2, 8, 8), (2, 8, 8)]
    assert net.forward(ramp(3, 8, 8))[0].tobytes() == other.forward(ramp(3, 8, 8))[0].tobytes()
    folded, _ = dn.fold(net)
    ended = text if text.endswith(b"\n") else text + b"\n"
    assert folded.origin.cfg.text == ended.replace(b"batch_normalize=1", b"batch_normalize=0").decode()
