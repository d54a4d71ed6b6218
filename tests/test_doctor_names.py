"""Names that the user gives for layers: a dict, a .json or lines, and what is wrong in them is told with its line."""

from __future__ import annotations

import json

import pytest

import pydarknetbn as dn
from nets import tiny_yolo
from pydarknetbn.doctor.names import read_names
from pydarknetbn.doctor.steps import INPUT, steps_of

STEPS = steps_of(tiny_yolo())


def test_names_are_read_from_a_dict_json_or_lines(tmp_path):
    entries = {"input": "x", "0.sums": "a", "0 [convolutional] normal": "b", "7": "c", "7.boxes": "d"}
    (tmp_path / "names.json").write_text(json.dumps(entries), encoding="utf-8")
    lines = ["# layer = name", "", *(f"{key} = {name}" for key, name in entries.items())]
    (tmp_path / "names.txt").write_text("\n".join(lines), encoding="utf-8")
    want = {INPUT: "x", 0: "a", 1: "b", 14: "c", 15: "d"}
    for names in (entries, tmp_path / "names.json", str(tmp_path / "names.txt")):
        assert read_names(names, STEPS, "abcdx") == want


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"99": "relu1"}, "there is no layer 99; the network's are 0 to 12"),
        ({"1.sums": "relu1"}, "layer 1 has no sums; it has post"),
        ({"first": "relu1"}, "expected a layer such as 12, 12.sums, 12.normal or input, got 'first'"),
        ({"0": "relu2"}, "0 is called 'relu2', which is no value of the other side; did you mean relu1?"),
        ({"0": "zzz"}, "0 is called 'zzz', which is no value of the other side; it has 2, such as relu1, conv1"),
        ({"0": "relu1", "0.post": "conv1"}, "0.post is named twice, as 'relu1' and 'conv1'"),
    ],
)
def test_a_name_that_is_none_is_told(names, words):
    with pytest.raises(dn.CfgError) as caught:
        read_names(names, STEPS, ["relu1", "conv1"])
    assert str(caught.value).endswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("names.txt", "0 = relu1\n\n1 relu\n", "names.txt:3: expected a line such as `12 = model.3.relu`, got '1 relu'"),
        ("names.txt", "# all\n0 = nothing\n", "names.txt:2: 0 is called 'nothing'"),
        ("names.json", "[1]", 'names.json: expected an object such as {"12": "model.3.relu"}'),
        ("names.json", "{", "names.json: is no JSON: "),
    ],
)
def test_a_map_of_names_that_cannot_be_read_is_told_with_its_line(name, text, words, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(dn.CfgError) as caught:
        read_names(tmp_path / name, STEPS, ["relu1"])
    assert words in str(caught.value)
    with pytest.raises(dn.CfgError, match="cannot be read as a map of names"):
        read_names(tmp_path / "none", STEPS, ["relu1"])
