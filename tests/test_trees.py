"""Trees of classes: the softmax of each group, and which class the branches lead to, by a definition in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from core import same_bits
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.boxes import Detections, decode
from pydarknetbn.dialect import DIALECTS, PROFILES
from trees import PARENTS, REGION, TREE, written

GROUPS = [(0, 1), (2, 3), (4, 5), (6,)]
FLOATS = 5e-7  # exp, a sum of two, a quotient and at most two products, each half a unit in the last place of a number up to 1


# --- the definition -------------------------------------------------------------------------------------------------------------


def conditional(logits: np.ndarray) -> np.ndarray:
    """The softmax of each group."""
    result = np.empty(7)
    for group in GROUPS:
        powers = np.exp(logits[list(group)].astype(float))
        result[list(group)] = powers / powers.sum()
    return result


def along_branches(probabilities: np.ndarray) -> np.ndarray:
    """Each node's own times that of all above it."""
    whole = probabilities.astype(float)
    for node, parent in enumerate(PARENTS):
        above = parent
        while above >= 0:
            whole[node] *= probabilities[above]
            above = PARENTS[above]
    return whole


def top(whole: np.ndarray, hier: float) -> int:
    """Down from the first group to its most probable node, then that one's daughters, while the product of these is over hier."""
    node, sisters, product = -1, list(GROUPS[0]), 1.0
    while sisters:
        best = max(sisters, key=lambda sister: whole[sister])
        product *= whole[best]
        if product <= hier:
            return node if node >= 0 else best
        node, sisters = best, [daughter for daughter, parent in enumerate(PARENTS) if parent == best]
    return node


def deepest(whole: np.ndarray, hier: float) -> int | None:
    """The last node that is over hier."""
    return max(np.flatnonzero(whole > hier), default=None)


# --- softmax --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_softmax_with_a_tree_is_one_for_each_group(tmp_path, dialect):
    written(tmp_path, TREE)
    logits = np.random.default_rng(1).normal(0, 3, (3, 7)).astype(np.float32)
    cfg = written(tmp_path, cfg_of("softmax groups=1 temperature=2 tree=x.tree", w=1, h=1, c=7).decode(), "net.cfg")
    got = dn.load(cfg, dialect=dialect).forward(logits.reshape(3, 7, 1, 1))[0]
    want = [conditional(row / 2) for row in logits]
    assert np.allclose(got.reshape(3, 7), want, rtol=0, atol=FLOATS)
    assert got[:, 6].ravel().tolist() == [1, 1, 1]


# --- region ---------------------------------------------------------------------------------------------------------------------


def region(folder: Path, dialect: str, options: str = "", files: str = "tree=x.tree map=x.map") -> dn.Network:
    """A network of a [region] alone, 2 x 2 cells of two boxes."""
    written(folder, TREE)
    written(folder, "4\n6\n0\n", "x.map")
    return dn.load(written(folder, cfg_of(f"{REGION} {files} {options}", w=2, h=2, c=24).decode(), "net.cfg"), dialect=dialect)


def logits_of(seed: int) -> Array:
    """(2, 24, 2, 2): the entries of two boxes in planes, sure enough of the classes that branches are followed."""
    return np.random.default_rng(seed).normal(0, 3, (2, 24, 2, 2)).astype(np.float32)


def rows_of(x: Array, image: int, dialect: str) -> np.ndarray:
    """The entries of each detection in the order of the dialect's rows."""
    entries = x[image].reshape(2, 12, 4).astype(float)
    return (entries.transpose(0, 2, 1) if dialect == "pjreddie" else entries.transpose(2, 0, 1)).reshape(8, 12)


def found(net: dn.Network, image: int, thresh: float, hier: float, class_map: tuple[int, ...] = ()) -> Detections:
    heads: list[Any] = [(layer.index, layer.native, layer.type) for layer in net.heads]
    sizes: dict[str, Any] = {"picture_size": (2, 2), "net_size": (2, 2), "letter": False}
    layers = PROFILES[net.profile].layers
    return decode(heads, image, thresh=thresh, hier=hier, class_map=class_map, rule=layers, **sizes)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_region_with_a_tree_is_a_softmax_for_each_group_of_each_box(tmp_path, dialect):
    x = logits_of(3)
    got = region(tmp_path, dialect).forward(x)[0]
    for image in (0, 1):
        mine = got[image].reshape(2, 12, 4).transpose(0, 2, 1) if dialect == "pjreddie" else got[image]
        for row, logits in zip(mine.reshape(8, 12), rows_of(x, image, dialect), strict=True):
            assert np.allclose(row[5:], conditional(logits[5:]), rtol=0, atol=FLOATS)
            assert np.isclose(row[4], 1 / (1 + np.exp(-logits[4])), rtol=0, atol=FLOATS)
            assert row[2:4].tolist() == logits[2:4].tolist()


@pytest.mark.parametrize("hier", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_class_is_told_where_the_branches_lead(tmp_path, dialect, hier):
    net, led = region(tmp_path, dialect), set()
    for seed in range(8):
        x = logits_of(seed)
        net.forward(x)
        for image in (0, 1):
            rows = found(net, image, 0.25, hier)
            for row, logits in zip(rows, rows_of(x, image, dialect), strict=True):
                whole, object_ = along_branches(conditional(logits[5:])), 1 / (1 + np.exp(-logits[4]))
                products = np.outer(whole, [1, *whole])  # whatever is held against hier is one of these or a product of three
                assert np.abs(products - hier).min() > 1e-5
                assert abs(object_ - 0.25) > 1e-5
                want = np.zeros(7)
                if dialect == "pjreddie":
                    want[top(whole, hier)] = object_ if object_ > 0.25 else 0
                elif (node := deepest(whole, hier)) is not None:
                    want[node] = whole[node] if object_ > 0.25 else 0
                assert np.allclose(row["probs"], want, rtol=0, atol=FLOATS)
                led.add(int(row["class_id"]))
    assert len(led) > 4  # classes of every depth, and none


@pytest.mark.parametrize("dialect", DIALECTS)
def test_map_gives_the_probability_of_the_nodes_that_it_names(tmp_path, dialect):
    net, x = region(tmp_path, dialect), logits_of(5)
    net.forward(x)
    rows = found(net, 1, 0.0, 0.5, net.heads[0].head.map)
    assert rows["probs"].shape == (8, 3)
    for row, logits in zip(rows, rows_of(x, 1, dialect), strict=True):
        whole = along_branches(conditional(logits[5:])) / (1 + np.exp(-logits[4]))
        assert np.allclose(row["probs"], whole[[4, 6, 0]], rtol=0, atol=FLOATS)
    over = found(net, 1, 0.3, 0.5, (4, 6, 0))["probs"]
    assert np.array_equal(over, np.where(rows["probs"] > np.float32(0.3), rows["probs"], 0))
    with pytest.raises(ValueError, match="name nodes 0 to 6, got 7"):
        found(net, 0, 0.3, 0.5, (0, 7))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_second_look_at_an_output_gives_the_same(tmp_path, dialect):
    net = region(tmp_path, dialect)
    net.forward(logits_of(6))
    before = net.layers[0].output.copy()
    assert found(net, 0, 0.1, 0.5).tobytes() == found(net, 0, 0.1, 0.5).tobytes()
    assert same_bits(net.layers[0].output, before)


def test_background_class_stands_where_objectness_was(tmp_path):
    # the branches are followed from the entry of the background on, and a map counts from the entry behind it
    net, x = region(tmp_path, "pjreddie", "background=1"), logits_of(7)
    net.forward(x)
    output = net.layers[0].output[0].reshape(2, 12, 4).transpose(0, 2, 1).reshape(8, 12).astype(float)
    rows, mapped = found(net, 0, 0.0, 0.5), found(net, 0, 0.0, 0.5, (4, 6, 0))
    for row, other, entries in zip(rows, mapped, output, strict=True):
        whole = along_branches(entries[4:11])
        assert (row["objectness"], row["prob"], row["class_id"]) == (1, 1, top(whole, 0.5))
        assert np.allclose(other["probs"], np.maximum([whole[5], entries[11], whole[1]], 0), rtol=0, atol=1e-5)


def test_detect_names_nodes_and_mapped_classes(tmp_path):
    conv = "conv filters=24 size=1 stride=4 activation=linear"
    written(tmp_path, TREE)
    written(tmp_path, "4\n6\n0\n", "x.map")
    text = cfg_of(conv, f"{REGION} tree=x.tree map=x.map", w=8, h=8)
    net = dn.load(written(tmp_path, text.decode(), "net.cfg"))
    assert net.names == ("animal", "thing", "cat", "dog", "poodle", "terrier", "car")
    net.layers[0].biases[:] = np.tile([0, 0, 0, 0, 9, 5, 0, 0, 5, 5, 0, 0], 2)  # sure of poodle
    net.layers[0].weights[:] = 0
    picture = np.zeros((3, 8, 8), np.float32)
    assert {row["name"] for row in net.detect(picture).to_json()} == {"poodle"}
    assert {row["name"] for row in net.detect(picture, hier=0.99).to_json()} == {"animal"}
    mapped = net.detect(picture, mapped=True, thresh=0.6)
    assert mapped.names == ("poodle", "car", "animal")
    assert {row["name"] for row in mapped.to_json()} == {"animal"}
    with pytest.raises(dn.UnsupportedError, match=r"no \[region\] with the files of tree= and map="):
        dn.load(cfg_of(conv, REGION, w=8, h=8)).detect(picture, mapped=True)
    with pytest.raises(ValueError, match="hier from 0 to 1, got 2"):
        net.detect(picture, hier=2)


def test_fold_keeps_the_tree(tmp_path):
    written(tmp_path, TREE)
    text = cfg_of("conv filters=24 size=1 batch_normalize=1 activation=linear", f"{REGION} tree=x.tree", w=8, h=8)
    net = dn.load(written(tmp_path, text.decode(), "net.cfg"), seed=1)
    net.layers[0].rolling_variance[:] = 1
    folded, report = dn.fold(net, check=np.random.default_rng(0).random((1, 3, 8, 8), np.float32))
    assert folded.heads[0].head.tree == net.heads[0].head.tree
    assert report.worst.largest < 1e-5
