"""What a hypothesis of a route, shortcut, reorg, dropout or head gives is that fault as defined in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from places import Patient, patient

# --- route ----------------------------------------------------------------------------------------------------------------------

TWO = ("conv filters=4 size=3 pad=1 activation=leaky", "conv filters=4 size=1 activation=linear")


def test_a_route_in_another_order_or_of_another_layer():
    port = patient(*TWO, "route layers=0,1", kind="route")
    first, second = port.place.inputs
    order = port.of("route.order")
    port.assert_gives(order, np.concatenate([second, first], 1))
    assert order.words == "the route joins layers 1, 0 in that order; Darknet joins 0, 1"
    assert order.fix[""] == "concatenate layers 0, 1 in that order"
    index = port.of("route.index", "the route takes layer 0; Darknet takes layer 1")
    port.assert_gives(index, np.concatenate([first, first], 1))
    stage = port.of("route.index", "the route takes layer 0 before its activation; Darknet takes layer 0")
    port.assert_gives(stage, np.concatenate([port.place.values[1], second], 1))
    bias = port.of("route.index", "the route takes layer 0 before its biases; Darknet takes layer 0")
    assert bias.values == {"taken": 0}


def test_a_value_before_its_batchnorm_is_called_so():
    port = patient("conv batch_normalize=1 filters=4 size=1 activation=leaky", "route layers=0", "route layers=0", kind="route")
    assert port.of("route.index", "the route takes layer 0 before its batchnorm; ").values == {"taken": 0}


def test_a_route_of_another_group():
    port = patient("conv filters=6 size=1 activation=linear", "route layers=0 groups=3 group_id=1", kind="route")
    x = port.x
    for group, channels in ((0, [0, 1]), (2, [4, 5])):
        found = port.of("route.group", group=group)
        port.assert_gives(found, x[:, channels])
        assert found.words == f"the route takes group {group} of 3; Darknet takes group 1"
    assert found.fix[""] == "take group 1 of 3: channels from c * 1 // 3, c // 3 of them"
    port.assert_gives(port.of("route.group", "every 3th channel"), x[:, [1, 4]])


# --- shortcut -------------------------------------------------------------------------------------------------------------------


def test_a_shortcut_without_one_of_its_layers_or_with_another():
    port = patient(*TWO, "shortcut from=0 activation=linear", kind="shortcut")
    last, source = port.place.inputs
    port.assert_gives(port.of("shortcut.index", "leaves out the layer before"), source.astype(np.float64))
    port.assert_gives(port.of("shortcut.index", "leaves out layer 0"), last.astype(np.float64))
    found = port.of("shortcut.index", "adds layer 0 before its activation; Darknet adds layer 0")
    port.assert_gives(found, last.astype(np.float64) + port.place.values[1])
    relu = port.of("shortcut.activation", activation="relu")
    port.assert_gives(relu, np.maximum(last.astype(np.float64) + source, 0))
    assert relu.words == "the shortcut has the activation relu; Darknet's has none"


@pytest.mark.parametrize(("last", "source"), [(4, 6), (6, 4)])
def test_a_shortcut_of_other_channels(last, source):
    sections = (f"conv filters={source} size=3 pad=1", f"conv filters={last} size=1 activation=linear")
    port = patient(*sections, "shortcut from=0 activation=linear", kind="shortcut")
    x, other = (each.astype(np.float64) for each in port.place.inputs)
    for at in (1, 2):
        want = x.copy()
        if source > last:
            want += other[:, at : at + last]
        else:
            want[:, at : at + source] += other
        port.assert_gives(port.of("shortcut.channels", f"from channel {at} on"), want)
    nothing = port.of("shortcut.channels", "adds nothing")
    port.assert_gives(nothing, x)
    if last > source:
        port.assert_gives(port.of("shortcut.channels", "repeats"), x + np.concatenate([other, other[:, :2]], 1))


def weighted(normalization: str) -> Patient:
    def change(net: Any) -> None:
        net.layers[2].weights[...] = np.array([0.7, -0.4], np.float32).reshape(net.layers[2].weights.shape)

    options = f"from=0 activation=linear weights_type=per_feature weights_normalization={normalization}"
    return patient(*TWO, f"shortcut {options}", kind="shortcut", change=change)


def test_a_shortcut_with_other_weights():
    port = weighted("none")
    x, other = (each.astype(np.float64) for each in port.place.inputs)
    port.assert_gives(port.of("shortcut.weights", "adds without its weights"), x + other)
    port.assert_gives(port.of("shortcut.weights", "takes the mean"), (x + other) / 2)
    port.assert_gives(port.of("shortcut.weights", "from the last layer to the first"), float(np.float32(-0.4)) * x + 0.7 * other)
    port.assert_gives(port.of("shortcut.weights", "the ReLU of its weights without a sum"), 0.7 * x)
    total = 1 + np.exp(-1.1) + 1e-4  # the larger weight taken off, and the fork's addend against a division by 0
    port.assert_gives(port.of("shortcut.weights", "normalizes its weights by softmax"), (x + np.exp(-1.1) * other) / total)
    relu = port.run(port.of("shortcut.weights", "normalizes its weights by ReLU"))
    np.testing.assert_allclose(relu, 0.7 / (0.7 + 1e-4) * x, rtol=1e-6)
    assert not [each for each in port.hypotheses() if "takes its weights as they are" in each.words]


def test_a_shortcut_that_forgets_to_normalize_its_weights():
    port = weighted("softmax")
    x, other = (each.astype(np.float64) for each in port.place.inputs)
    before = port.place.right
    port.assert_gives(port.of("shortcut.weights", "takes its weights as they are"), 0.7 * x - 0.4 * other)
    assert np.array_equal(port.place.right, before)  # Darknet's own stays as it is


# --- reorg and dropout ----------------------------------------------------------------------------------------------------------


def depth(x: Any, order: str) -> Any:
    """Space to depth by 2, the axes channel, row and column of the new channels in that order."""
    planes = {(channel, row, column): x[:, channel, row::2, column::2] for channel, row, column in np.ndindex(x.shape[1], 2, 2)}
    keys = sorted(planes, key=lambda key: [key["crw".index(each)] for each in order])
    return np.stack([planes[key] for key in keys], 1)


ORDERS = {
    "pixel_unshuffle (channel, row, column)": "crw",
    "(row, column, channel)": "rwc",
    "(column, row, channel)": "wrc",
    "(channel, column, row)": "cwr",
    "(row, channel, column)": "rcw",
    "(column, channel, row)": "wcr",
}


@pytest.mark.parametrize("words", ORDERS)
def test_a_reorg_of_another_order(words):
    port = patient("reorg3d stride=2", kind="reorg3d", c=4)
    found = port.of("reorg.order", words)
    want = depth(port.x, ORDERS[words])
    assert np.array_equal(port.run(found), want)


def test_a_reorg_that_is_a_reshape():
    port = patient("reorg stride=2", kind="reorg", c=4)
    found = port.of("reorg.order", "a plain reshape")
    port.assert_gives(found, port.x.reshape(2, 16, 4, 4))


def test_a_dropout_that_is_active_is_read_off_the_other_side():
    port = patient("conv filters=4 size=1 activation=linear", "dropout probability=.25", kind="dropout")
    mask = np.random.default_rng(3).random(port.x.shape) >= 0.25
    theirs = (port.x * mask / 0.75).astype(np.float32)
    shown = Patient(port.place.__class__(port.place.runner, port.place.step, port.place.inputs, port.place.values, None, theirs))
    (found,) = [each for each in shown.hypotheses() if each.kind == "dropout.active"]
    port.assert_gives(found, port.x * mask / 0.75)
    assert found.values["factor"] == pytest.approx(4 / 3, rel=1e-6)
    assert found.values["dropped"] == pytest.approx(1 - mask.mean(), rel=1e-6)
    assert port.hypotheses() == []  # nothing is known of the other side


# --- heads ----------------------------------------------------------------------------------------------------------------------

HEAD = "yolo mask=1,2 anchors=10,14,23,27,37,58 classes=3 num=3"
BODY = "conv filters=16 size=3 pad=1 activation=linear"


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def entries(x: Any) -> Any:
    """(batch, anchors, entries, h, w) of a head, in double."""
    return np.array(x, np.float64).reshape(2, 2, 8, 8, 8)


def plain(x: Any, scale: float = 1.0) -> Any:
    """What [yolo] gives: logistics but of width and height, centers spread."""
    made = sigmoid(entries(x))
    made[:, :, 2:4] = entries(x)[:, :, 2:4]
    made[:, :, :2] = made[:, :, :2] * scale - 0.5 * (scale - 1)
    return made


def head(options: str = "", kind: str = "yolo") -> Patient:
    return patient(BODY, f"{HEAD} {options}", kind=kind)


def test_a_head_with_another_spread():
    port = head("scale_x_y=1.05")
    assert np.abs(port.place.right - plain(port.x, 1.05).reshape(port.x.shape)).max() < 1e-6
    ignored = port.of("yolo.scale_x_y", scale_x_y=1.0)
    port.assert_gives(ignored, plain(port.x).reshape(port.x.shape))
    assert ignored.words == "[yolo] spreads the centers with scale_x_y=1 (ignored); Darknet with 1.05"
    moved = plain(port.x)
    moved[:, :, :2] *= 1.05
    port.assert_gives(port.of("yolo.scale_x_y", "without moving them back"), moved.reshape(port.x.shape))


def test_a_spread_that_nobody_uses_is_recovered():
    port = head()
    theirs = plain(port.x, 1.37).reshape(port.x.shape)
    (found,) = [each for each in port.hypotheses(theirs) if each.kind == "yolo.scale_x_y" and each.parameters]
    assert found.values["scale_x_y"] == pytest.approx(1.37, abs=1e-5)


def test_a_head_with_other_logistics():
    port = head()
    raw, right = entries(port.x), plain(port.x)
    twice = right.copy()
    twice[:, :, 4:] = sigmoid(right[:, :, 4:])
    port.assert_gives(port.of("yolo.double_sigmoid", "twice to objectness and classes;"), twice.reshape(port.x.shape))
    softmax = right.copy()
    softmax[:, :, 5:] = np.exp(raw[:, :, 5:]) / np.exp(raw[:, :, 5:]).sum(2, keepdims=True)
    port.assert_gives(port.of("yolo.class_softmax", "the softmax of the classes;"), softmax.reshape(port.x.shape))
    none = port.of("yolo.new_coords", "applies no logistic; ")
    port.assert_gives(none, raw.reshape(port.x.shape))
    every = port.of("yolo.new_coords", "to every value, width and height too")
    port.assert_gives(every, sigmoid(raw).reshape(port.x.shape))
    bare = right.copy()
    bare[:, :, 4:] = raw[:, :, 4:]
    port.assert_gives(port.of("yolo.new_coords", "leaves objectness and classes"), bare.reshape(port.x.shape))


ANCHORS = np.array([[10, 14], [23, 27], [37, 58]], np.float64)


def table(values: Any, anchors: Any = ANCHORS[1:], *, squared: bool = False, cells: bool = True) -> Any:
    """Boxes as shares of the network's input, which is 8 by 8, in double."""
    made = entries(values)
    made[:, :, 0] = (made[:, :, 0] + (np.arange(8) if cells else 0)) / 8
    made[:, :, 1] = (made[:, :, 1] + (np.arange(8)[:, None] if cells else 0)) / 8
    sides = made[:, :, 2:4]
    made[:, :, 2:4] = (4 * sides**2 if squared else np.exp(sides)) * np.asarray(anchors)[:, :, None, None] / 8
    return made.reshape(values.shape)


def test_boxes_of_other_anchors():
    port = head(kind="boxes")
    assert np.abs(port.place.right - table(port.x)).max() < 1e-5
    first = port.of("yolo.anchors", "with anchors 0, 1;")
    port.assert_gives(first, table(port.x, ANCHORS[:2]))
    assert first.words == "the boxes are made with anchors 0, 1; Darknet's mask takes 1, 2"
    port.assert_gives(port.of("yolo.anchors", "with anchors 2, 1;"), table(port.x, ANCHORS[[2, 1]]))
    eighth = next(each for each in port.hypotheses() if each.values == {"factor": 0.125})
    port.assert_gives(eighth, table(port.x, ANCHORS[1:] / 8))
    port.assert_gives(port.of("yolo.anchors", "width and height of the anchors are exchanged"), table(port.x, ANCHORS[1:, ::-1]))


def test_boxes_of_other_formulas():
    port = head(kind="boxes")
    port.assert_gives(port.of("yolo.new_coords", "(2w)²"), table(port.x, squared=True))
    port.assert_gives(port.of("yolo.anchors", "without their cell"), table(port.x, cells=False))
    turned = entries(port.x)[:, :, :2]
    want = table(port.x).reshape(2, 2, 8, 8, 8)
    want[:, :, 0], want[:, :, 1] = (turned[:, :, 0] + np.arange(8)[:, None]) / 8, (turned[:, :, 1] + np.arange(8)) / 8
    port.assert_gives(port.of("yolo.anchors", "rows and columns"), want.reshape(port.x.shape))
    new = head("new_coords=1", kind="boxes")
    new.assert_gives(new.of("yolo.new_coords", "exp(w)"), table(new.x))
