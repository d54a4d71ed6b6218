"""The files that tree= and map= name: their text, each way it can be wrong, and where they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pydarknetbn as dn
from core import same_bits
from nets import cfg_of, refusal
from pydarknetbn._native import check, ffi, lib, make, rule
from pydarknetbn.dialect import DIALECTS, PROFILES
from pydarknetbn.trees import Tree, read_map, read_tree
from trees import PARENTS, REGION, TREE, written


def test_tree_has_a_name_and_a_parent_on_each_line(tmp_path):
    tree = read_tree(written(tmp_path, TREE))
    assert tree.names == ("animal", "thing", "cat", "dog", "poodle", "terrier", "car")
    assert (list(tree.parents), tree.leaves, len(tree)) == (PARENTS, (2, 4, 5, 6), 7)


@pytest.mark.parametrize("text", ["a\r\nb 0\r\n", "\ufeffa -1\nb\t0 and more\n\n \n", "a\rb 0"])
def test_line_ends_marks_and_blank_lines_at_the_end_mean_nothing(tmp_path, text):
    path = tmp_path / "x.tree"
    path.write_bytes(text.encode())
    assert read_tree(path) == Tree(("a", "b"), (-1, 0))


WRONG_TREES = {
    "a parent below": ("a -1\nb 2\nc 0\n", 2, "'b' has parent 2, expected -1 or one of the nodes before it, 0 to 0"),
    "itself": ("a -1\nb 0\nc 2\n", 3, "'c' has parent 2"),
    "a first node with a parent": ("a 0\n", 1, "'a' has parent 0, expected -1, since it is the first node"),
    "a parent below -1": ("a -1\nb -2\n", 2, "'b' has parent -2"),
    "a word": ("a -1\nb one\n", 2, "expected a whole number, got 'one'"),
    "a fraction": ("a -1\nb 0.0\n", 2, "expected a whole number, got '0.0'"),
    "a number without end": (f"a -1\nb {'9' * 5000}\n", 2, "expected a whole number"),
    "a blank line": ("a -1\n\nb 0\n", 2, "is a blank line, where every line counts as a class"),
}


@pytest.mark.parametrize(("text", "line", "words"), WRONG_TREES.values(), ids=WRONG_TREES)
def test_line_of_a_tree_that_is_wrong_is_named(tmp_path, text, line, words):
    written(tmp_path, text, "data/x.tree")
    cfg = written(tmp_path, cfg_of("softmax tree=data/x.tree", w=1, h=1).decode(), "net.cfg")
    message = refusal(dn.CfgError, cfg)
    assert message.startswith(f"{tmp_path / 'data' / 'x.tree'}:{line}: ")
    assert words in message


def test_empty_tree_and_map_are_told(tmp_path):
    with pytest.raises(dn.CfgError, match=r"x\.tree: holds no node"):
        read_tree(written(tmp_path, "\n"))
    with pytest.raises(dn.CfgError, match=r"x\.map: holds no class"):
        read_map(written(tmp_path, "", "x.map"), 7)


def test_map_is_the_number_of_a_class_on_each_line(tmp_path):
    assert read_map(written(tmp_path, "5\n0\n5 poodle\n"), 7) == (5, 0, 5)
    for text, line, words in (("5\n7\n", 2, "names class 7, expected one from 0 to 6"), ("dog\n", 1, "whole number, got 'dog'")):
        with pytest.raises(dn.CfgError, match=rf":{line}: .*{re.escape(words)}"):
            read_map(written(tmp_path, text), 7)


@pytest.mark.parametrize(("nodes", "told"), [(6, "a tree of 6 nodes"), (8, "a tree of 8 nodes")])
@pytest.mark.parametrize(("section", "line"), [(REGION, 11), ("softmax", 6)], ids=["region", "softmax"])
def test_tree_of_more_or_fewer_nodes_than_classes_is_refused(tmp_path, nodes, told, section, line):
    written(tmp_path, "node -1\n" * nodes)
    channels = 24 if "region" in section else 7
    cfg = written(tmp_path, cfg_of(f"{section} tree=x.tree", w=1, h=1, c=channels).decode(), "net.cfg")
    message = refusal(dn.CfgError, cfg)
    assert message.startswith(f"{cfg}:{line}: ")
    assert told in message
    assert "but 7 classes" in message


def test_core_takes_no_parent_that_is_not_before_its_daughter():
    layer = make("softmax", 3, 1, 1, 1, 1.0, rule("layer_rule", PROFILES["pjreddie-cpu"].layers))
    for parents in ([-1, 0], [-1, 0, 1, 2]):
        with pytest.raises(dn.ShapeError, match="nodes does not fit 3 values"):
            check(lib.set_softmax_tree(layer, ffi.new("int[]", parents), len(parents)))
    for parents in ([0, 0, 0], [-1, 1, 0], [-1, 0, -2], [-1, 0, 2**31 - 1]):
        with pytest.raises(dn.ShapeError, match="which is no node before it"):
            check(lib.set_softmax_tree(layer, ffi.new("int[]", parents), 3))


def test_recorded_tree_and_map_of_9418_classes(cfgs):
    tree = read_tree(cfgs / "data" / "9k.tree")
    assert (len(tree), tree.names[0], tree.parents[9417], len(read_map(cfgs / "data" / "coco9k.map", 9418))) == (
        9418,
        "n00002452",
        9413,
        80,
    )


# --- where the file is ----------------------------------------------------------------------------------------------------------


def test_file_is_sought_beside_the_cfg_then_above_then_where_the_program_runs(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    cfg = written(tmp_path, cfg_of("softmax tree=data/x.tree", w=1, h=1, c=4).decode(), "repository/cfg/net.cfg")
    x = np.zeros((1, 4, 1, 1), np.float32)

    def groups() -> list[float]:
        return dn.load(cfg).forward(x)[0].ravel().tolist()

    assert groups() == [0.25] * 4
    for place, tree, want in (
        ("run/data/x.tree", "a\nb 0\nc 0\nd 0\n", [1, *[float(np.float32(1) / np.float32(3))] * 3]),
        ("repository/data/x.tree", "a\nb\nc 0\nd 0\n", [0.5] * 4),
        ("repository/cfg/data/x.tree", "a\nb 0\nc 1\nd 2\n", [1] * 4),
    ):
        written(tmp_path, tree, place)
        assert groups() == want, place


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_the_file_there_is_a_warning_and_one_softmax(dialect):
    x = np.random.default_rng(2).normal(size=(1, 24, 1, 2)).astype(np.float32)
    section = f"{REGION.replace('softmax=1', 'softmax=0')} tree=no.tree map=no.map"
    net = dn.load(cfg_of(section, w=2, h=1, c=24), dialect=dialect)
    told = "is no file beside the cfg, in the folder above and in the working directory"
    assert net.warnings[:2] == (
        f"<bytes>:11: tree=no.tree {told}; a softmax over all classes takes its place",
        f"<bytes>:12: map=no.map {told}; there is no map",
    )
    plain = dn.load(cfg_of(REGION, w=2, h=1, c=24), dialect=dialect)
    assert same_bits(net.forward(x)[0], plain.forward(x)[0])
    assert "is no file" in refusal(dn.CfgError, cfg_of(section, w=2, h=1, c=24), strict=True)
