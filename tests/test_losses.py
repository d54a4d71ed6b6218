"""What a network's loss says, what goes back from it, and in which forms a truth is taken."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.training.losses import LayerLoss

YOLO = (
    "convolutional filters=14 size=3 stride=2 pad=1 activation=linear",
    "yolo classes=2 num=2 mask=0,1 anchors=3,4,6,5 max=4",
)
BOXES = np.array([[1, 0.3, 0.6, 0.4, 0.5], [0, 0.7, 0.2, 0.2, 0.3]], np.float32)


def network(cfg: bytes, **options: str) -> tuple[dn.Network, Array]:
    net = dn.load(cfg, seed=3, **options)  # type: ignore[arg-type]
    return net, np.random.default_rng(5).normal(size=(2, net.c, net.h, net.w)).astype(np.float32)


# --- [cost] and [softmax] -------------------------------------------------------------------------------------------------------

CONNECTED = "connected output=3 activation=linear"


def cost_net(options: str, dialect: str = "pjreddie") -> dn.Network:
    """A layer that passes three values on, and a cost of them."""
    net = dn.load(cfg_of(CONNECTED, f"cost {options}", w=1, h=1, c=3), dialect=dialect)
    net.layers[0].weights[...] = np.eye(3, dtype=np.float32)
    return net


VALUES = np.array([[0.5, -2, 1]], np.float32)
TRUTH = np.array([[1, 1, -3]], np.float32)


@pytest.mark.parametrize(
    ("options", "dialect", "cost", "delta"),
    [
        ("", "pjreddie", 0.25 + 9 + 16, [0.5, 3, -4]),
        ("scale=2", "pjreddie", 0.25 + 9 + 16, [1, 6, -8]),
        ("type=L1", "pjreddie", 0.5 + 3 + 4, [1, 1, -1]),
        ("type=smooth", "pjreddie", 0.25 + 5 + 7, [0.5, -1, 1]),
        ("type=smooth", "alexeyab", 0.25 + 5 + 7, [0.5, 1, -1]),
        ("type=wgan", "pjreddie", 0.25 + 9 + 16, [0.5, 3, -4]),
        ("type=seg", "pjreddie", 0.25 + 9 + 16, [0.5, 3, -4]),
    ],
)
def test_cost_and_what_goes_back_of_it(options: str, dialect: str, cost: float, delta: list[float]) -> None:
    net = cost_net(options, dialect)
    assert float(net.loss(VALUES.copy(), TRUTH.copy())) == cost
    assert net.backward().ravel().tolist() == delta


def test_a_masked_value_costs_nothing_and_is_overwritten() -> None:
    net, truth = cost_net("type=masked"), TRUTH.copy()
    truth[0, 1] = -1234
    assert net.loss(VALUES.copy(), truth).value == 0.25 + 16
    assert net.layers[0].output.ravel().tolist() == [0.5, -1234, 1]
    assert net.backward().ravel().tolist() == [0.5, 0, -4]


def test_a_masked_cost_leaves_the_callers_input_alone() -> None:
    net, x = dn.load(cfg_of("cost type=masked", w=1, h=1, c=3)), VALUES.copy()
    assert net.loss(x, np.full((1, 3), -1234, np.float32)).value == 0
    assert x.tolist() == VALUES.tolist()


def test_a_type_that_the_dialect_does_not_know_is_squares_with_a_warning() -> None:
    net = cost_net("type=L1", "alexeyab")
    assert any("type=L1" in warning and "counts as sse" in warning for warning in net.warnings)
    assert net.loss(VALUES.copy(), TRUTH.copy()).value == 0.25 + 9 + 16


def test_softmax_counts_the_logarithm_of_the_true_classes() -> None:
    net = dn.load(cfg_of(CONNECTED, "softmax", w=1, h=1, c=3))
    net.layers[0].weights[...] = np.eye(3, dtype=np.float32)
    loss = net.loss(np.log(np.array([[1, 2, 1]], np.float32)), np.array([1]))
    assert loss.value == pytest.approx(math.log(2), rel=1e-6)
    np.testing.assert_allclose(net.layers[1].delta.ravel(), [-0.25, 0.5, -0.25], rtol=1e-6)


def test_noloss_leaves_a_softmax_out_but_its_cost_counts() -> None:
    """As in the forks: the mean is over all layers that have a cost, and that one's is 0."""
    net = dn.load(cfg_of(CONNECTED, "softmax noloss=1", "cost", w=1, h=1, c=3), seed=1)
    loss = net.loss(VALUES.copy(), np.array([2]))
    assert [each.cost == 0 for each in loss.layers] == [True, False]
    assert loss.value == loss.layers[1].cost / 2


def test_two_costs_are_averaged_and_their_deltas_added() -> None:
    net = dn.load(cfg_of(CONNECTED, "softmax", "cost", w=1, h=1, c=3), seed=1)
    loss = net.loss(VALUES.copy(), np.array([2]))
    softmax, cost = (each.cost for each in loss.layers)
    assert loss.value == float((np.float32(softmax) + np.float32(cost)) / np.float32(2))
    net.backward()
    only = 2 * (np.array([0, 0, 1], np.float32) - net.layers[1].output.ravel())
    np.testing.assert_array_equal(net.layers[1].delta.ravel(), only)


# --- forms of a truth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "row"), [("pjreddie", 5), ("alexeyab", 6)])
def test_labels_are_packed_as_the_dialects_rows(dialect: str, row: int) -> None:
    net, x = network(cfg_of(*YOLO), dialect=dialect)
    truth = np.zeros((2, 4, row), np.float32)
    truth[0, :2, :4], truth[0, :2, 4] = BOXES[:, 1:], BOXES[:, 0]
    want = net.loss(x, truth.reshape(2, -1)).value
    assert net.loss(x, [BOXES, []]).value == want
    assert net.loss(x, [[], BOXES]).value != want


def test_labels_of_a_grid_are_packed_as_cells() -> None:
    """The first box of a cell counts; x and y are within it."""
    net = dn.load(cfg_of("connected output=28 activation=linear", "detection side=2 num=1 classes=2 coords=4", w=4, h=4), seed=2)
    x = np.random.default_rng(1).normal(size=(1, 3, 4, 4)).astype(np.float32)
    cells = np.zeros((1, 2, 2, 7), np.float32)
    cells[0, 1, 0] = [1, 0, 1, 0.5, 0.25, 0.4, 0.5]
    labels = np.array([[1, 0.25, 0.625, 0.4, 0.5], [0, 0.3, 0.6, 0.1, 0.1]], np.float32)
    assert net.loss(x, [labels]).value == net.loss(x, cells.reshape(1, -1)).value


def test_whole_numbers_are_classes() -> None:
    net = dn.load(cfg_of(CONNECTED, "softmax", w=1, h=1, c=3), seed=1)
    one_hot = np.array([[0, 0, 1], [1, 0, 0]], np.float32)
    x = np.concatenate([VALUES, -VALUES])
    assert net.loss(x, np.array([2, 0])).value == net.loss(x, one_hot).value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({(0, 0): 2}, "box 0 of image 0 has class 2; expected 0 to 1"),
        ({(1, 0): -1}, "box 1 of image 0 has class -1; expected 0 to 1"),
        ({(1, 1): 1.5}, "box 1 of image 0 is at x 1.5"),
        ({(0, 2): np.nan}, "box 0 of image 0 is at x 0.3, y nan"),
        ({(0, 3): 0}, "sides over 0"),
        ({(0, 1): 0}, "box 0 of image 0 has x = 0, which ends the list of boxes"),
    ],
)
def test_a_box_that_no_program_can_learn_is_refused(change: dict[tuple[int, int], float], says: str) -> None:
    net, x = network(cfg_of(*YOLO))
    boxes = BOXES.copy()
    for at, value in change.items():
        boxes[at] = value
    with pytest.raises(dn.ShapeError, match=re.escape(says)):
        net.loss(x, [boxes, BOXES])


def test_truths_of_other_forms_are_refused() -> None:
    net, x = network(cfg_of(*YOLO))
    with pytest.raises(dn.ShapeError, match="image 1 has 5 boxes, but the layer reads 4; raise max= in the cfg"):
        net.loss(x, [BOXES, np.repeat(BOXES[:1], 5, 0)])
    with pytest.raises(dn.ShapeError, match="expected truth of 2 images, got 1"):
        net.loss(x, [BOXES])
    with pytest.raises(dn.ShapeError, match=r"expected labels of image 0 of shape \(n, 5\), class x y w h, got \(2, 4\)"):
        net.loss(x, [BOXES[:, :4], BOXES])
    with pytest.raises(dn.ShapeError, match=r"expected truth of shape \(2, 24\), got \(2, 20\)"):
        net.loss(x, np.zeros((2, 20), np.float32))
    classifier = dn.load(cfg_of(CONNECTED, "softmax", w=1, h=1, c=3))
    with pytest.raises(dn.ShapeError, match="expected classes from 0 to 2 in truth, got 3 to 3"):
        classifier.loss(VALUES.copy(), np.array([3]))
    with pytest.raises(dn.DtypeError, match=r"expected truth to be an array, since \[softmax\] reads values, got list"):
        classifier.loss(VALUES.copy(), [1])


def test_an_instance_of_no_class_is_refused() -> None:
    net, x = network(
        cfg_of("convolutional filters=3 size=1 activation=linear", "iseg classes=2 ids=1", w=2, h=2), dialect="pjreddie"
    )
    truth = np.zeros((2, 90, 5), np.float32)
    truth[1, 1, 0] = 2
    with pytest.raises(dn.ShapeError, match="instance 1 of image 1 has class 2; expected 0 to 1, or -1 behind the last"):
        net.loss(x, truth.reshape(2, -1))
    with pytest.raises(dn.DtypeError, match=r"expected truth to be an array, since \[iseg\] reads instances, got list"):
        net.loss(x, [BOXES, BOXES])


def test_losses_that_read_different_truths_are_refused() -> None:
    net = dn.load(cfg_of("connected output=6 activation=linear", "softmax", "connected output=3 activation=linear", "cost"), seed=1)
    with pytest.raises(dn.ShapeError, match=r"layer 1 \[softmax\] and layer 3 \[cost\] read truths of different forms"):
        net.loss(np.zeros((1, 3, 8, 8), np.float32), np.zeros((1, 3), np.float32))


def test_no_loss_is_a_sentence() -> None:
    net, x = network(cfg_of("convolutional filters=3 size=1 activation=linear", "contrastive classes=2"), dialect="alexeyab")
    with pytest.raises(dn.UnsupportedError, match=r"layer 1: no loss for \[contrastive\]"):
        net.loss(x, [BOXES, BOXES])
    plain, x = network(cfg_of("convolutional filters=2 size=1 activation=linear"))
    with pytest.raises(dn.UnsupportedError, match=r"no layer has a loss, such as \[yolo\], \[softmax\] or \[cost\]"):
        plain.loss(x, [BOXES, BOXES])
    rejecting, x = network(cfg_of(*YOLO, net="equidistant_point=100"), dialect="alexeyab")
    with pytest.raises(dn.UnsupportedError, match=r"equidistant_point= of .*rejects deltas, which is not computed"):
        rejecting.loss(x, [BOXES, BOXES])


# --- a loss of a network --------------------------------------------------------------------------------------------------------


def test_backward_goes_on_from_the_loss_once() -> None:
    net, x = network(cfg_of(*YOLO))
    with pytest.raises(dn.StateError, match=r"backward needs forward\(x, train=True\) before it"):
        net.backward()
    net.loss(x, [BOXES, []])
    given = net.layers[1].delta.copy()
    into = net.backward()
    updates = net.layers[0].weight_updates.copy()
    assert np.any(updates != 0)
    with pytest.raises(dn.StateError, match=r"backward without a delta needs loss\(x, truth\) before it"):
        net.backward()
    again, _ = network(cfg_of(*YOLO))
    again.forward(x, train=True)
    assert_same_bits(again.backward(given), into, "delta of the input")
    assert_same_bits(again.layers[0].weight_updates, updates, "weight_updates")


def test_a_loss_is_the_same_on_any_number_of_threads_and_in_a_clone(threads: int) -> None:
    net, x = network(cfg_of(YOLO[0], YOLO[1] + " counters_per_class=1,9 iou_loss=ciou iou_thresh=.2"), dialect="alexeyab")
    clone, labels = net.clone(), [BOXES, BOXES[:1]]
    assert clone.loss(x, labels) == net.loss(x, labels)
    with dn.num_threads(3 - threads):
        assert net.loss(x, labels).value == clone.loss(x, labels).value


def test_what_a_program_does_not_compute_is_none() -> None:
    told = {dialect: network(cfg_of(*YOLO), dialect=dialect)[0] for dialect in ("pjreddie", "alexeyab")}
    _, x = network(cfg_of(*YOLO))
    records: dict[str, LayerLoss] = {name: net.loss(x, [BOXES, []]).layers[0] for name, net in told.items()}
    assert records["pjreddie"].class_loss is None
    assert records["pjreddie"].recall75 is not None
    assert records["alexeyab"].recall75 is None
    assert records["alexeyab"].total_loss is not None


def test_classes_of_a_map_are_taught_instead(tmp_path: Path) -> None:
    (tmp_path / "swap.map").write_text("1\n0\n")
    cfg = tmp_path / "mapped.cfg"
    cfg.write_bytes(cfg_of(YOLO[0], YOLO[1] + " map=swap.map"))
    mapped, plain = dn.load(cfg, seed=3), network(cfg_of(*YOLO))
    swapped = BOXES.copy()
    swapped[:, 0] = 1 - swapped[:, 0]
    assert mapped.loss(plain[1], [BOXES, []]).value == plain[0].loss(plain[1], [swapped, []]).value


def test_a_region_is_drawn_to_its_anchors_in_the_first_12800_images() -> None:
    cfg = cfg_of("convolutional filters=14 size=1 activation=linear", "region classes=2 num=2 anchors=1,1,2,2", w=4, h=4)
    costs = []
    for seen in (12798, 12797):  # this batch of two included
        net, x = network(cfg, dialect="pjreddie")
        net.header = dataclasses.replace(net.header, seen=seen)
        costs.append(net.loss(x, [BOXES, []]).value)
    assert costs[0] < costs[1]


def test_random_boxes_of_a_grid_depend_on_the_images_seen_alone() -> None:
    cfg = cfg_of("connected output=48 activation=linear", "detection side=2 num=2 classes=2 coords=4 random=1", w=4, h=4)
    deltas = []
    for seen in (0, 0, 4, 8, 12, 70000):
        net, x = network(cfg)
        net.header = dataclasses.replace(net.header, seen=seen)
        net.loss(x, [BOXES, BOXES])
        deltas.append(net.layers[1].delta.tobytes())
    assert deltas[0] == deltas[1]
    assert len(set(deltas)) > 1


def test_a_middle_on_the_border_stays_in_memory() -> None:
    """x = y = 1 falls behind the last cell."""
    labels = np.array([[0, 1, 1, 0.5, 0.5]], np.float32)
    for head in ("yolo classes=2 num=2 mask=0,1 anchors=3,4,6,5", "region classes=2 num=2 anchors=1,1,2,2"):
        for dialect in ("pjreddie", "alexeyab"):
            net, x = network(cfg_of("convolutional filters=14 size=1 activation=linear", head, w=4, h=4), dialect=dialect)
            assert math.isfinite(net.loss(x, [labels, labels]).value)


def test_counters_have_to_be_one_for_each_class() -> None:
    with pytest.raises(dn.CfgError, match="3 numbers in counters_per_class=, but classes=2; give one for each class"):
        dn.load(cfg_of(YOLO[0], YOLO[1] + " counters_per_class=1,2,3"), dialect="alexeyab")


# --- one cell: what a rule decides, by hand -------------------------------------------------------------------------------------


def one_cell(dialect: str, classes: list[float], boxes: list[list[float]], options: str = "") -> tuple[dn.Network, Array]:
    """A [yolo] of one anchor in one cell, whose box is the picture, after its loss; its deltas: box, objectness, classes."""
    count = len(classes)
    cfg = cfg_of(f"yolo classes={count} num=1 mask=0 anchors=1,1 max=4 {options}", w=1, h=1, c=5 + count)
    net = dn.load(cfg, dialect=dialect)
    x = np.array([0, 0, 0, 0, 0, *classes], np.float32).reshape(1, -1, 1, 1)
    net.loss(x, [np.array(boxes, np.float32)])
    return net, net.layers[0].delta.ravel()


@pytest.mark.parametrize(("dialect", "want"), [("pjreddie", [-0.0, -0.5, 0.5]), ("alexeyab", [-0.0, 0.5, 0.5])])
def test_what_tells_that_a_cell_has_a_class(dialect: str, want: list[float]) -> None:
    """The first class is sure not to be there and so has no delta: the first program then teaches all of them again."""
    _, delta = one_cell(dialect, [-200, 0, 0], [[1, 0.5, 0.5, 1, 1], [2, 0.5, 0.5, 1, 1]])
    assert delta[5:].tolist() == want


@pytest.mark.parametrize(
    ("dialect", "probability", "want"),
    [("pjreddie", 0.01, 0.0), ("alexeyab", 0.251, 0.0), ("alexeyab", 0.249, -0.5)],
)
def test_which_cells_are_spared_the_delta_of_no_object(dialect: str, probability: float, want: float) -> None:
    """Of a box that overlaps the truth by .81, but whose anchor is not the likest: there are two of them."""
    options = "classes=1 num=2 mask=0 anchors=10,10,9,9 max=4 ignore_thresh=.5"
    net = dn.load(cfg_of(f"yolo {options}", w=10, h=10, c=6), dialect=dialect)
    x = np.zeros((1, 6, 10, 10), np.float32)
    x[0, 5] = math.log(probability / (1 - probability))
    net.loss(x, [np.array([[0, 0.55, 0.55, 0.9, 0.9]], np.float32)])
    delta = net.layers[0].delta[0, 4]
    assert delta[5, 5] == want
    assert delta[0, 0] == -0.5


def test_two_boxes_on_one_anchor_replace_or_add_their_deltas() -> None:
    """Of x, whose logistic is .5: the boxes lie at .25 and .75. AlexeyAB's default normalizer is .75."""
    boxes = [[0, 0.25, 0.5, 1, 1], [0, 0.75, 0.5, 1, 1]]
    assert one_cell("pjreddie", [0], boxes)[1][0] == 0.25
    assert one_cell("alexeyab", [0], boxes)[1][0] == 0
    assert one_cell("alexeyab", [0], boxes[1:])[1][0] == 0.25 * 0.75


def test_max_delta_limits_a_slope_and_no_square() -> None:
    far = [[0, 0.99, 0.5, 0.9, 0.9]]
    assert abs(one_cell("alexeyab", [0], far, "iou_loss=iou max_delta=.01")[1][:4]).max() == np.float32(0.01)
    assert abs(one_cell("alexeyab", [0], far, "max_delta=.01")[1][:4]).max() > 0.3


def test_delta_normalizer_is_the_gpus() -> None:
    boxes = [[0, 0.25, 0.5, 0.5, 0.5]]
    plain, normalized = (one_cell("alexeyab", [0], boxes, options)[1] for options in ("", "delta_normalizer=.5"))
    assert plain.tolist() == normalized.tolist()
