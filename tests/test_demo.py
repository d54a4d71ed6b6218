"""`pydarknetbn demo`: the shipped network on the shipped picture."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn

DATA = files("pydarknetbn") / "data"
# What is drawn on the picture: class, and the box's centre and size in pixels.
OBJECTS = [
    ("square", (322.2, 126.7, 62.8, 62.8)),
    ("circle", (278.2, 277.3, 153.1, 153.1)),
    ("triangle", (113.2, 75.1, 87.9, 99.7)),
    ("circle", (83.6, 239.5, 77.4, 77.4)),
]


def shipped() -> dn.Network:
    net = dn.load(DATA / "shapes.cfg", DATA / "shapes.weights")
    net.names = dn.load_names(DATA / "shapes.names")
    return net


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo with a blank")
    command = [sys.executable, "-c", "from pydarknetbn.cli import main; main()", "demo", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    return folder, done


def test_it_ends_well_and_tells_the_layers_the_boxes_and_the_fold(run):
    folder, done = run
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("convolutional", "yolo", "circle", "square", "triangle", "folded 8 batchnorms", str(folder / "demo.png")):
        assert word in done.stdout


def test_its_files_are_a_picture_and_a_network_that_loads(run):
    folder, _ = run
    assert sorted(path.name for path in folder.iterdir()) == ["demo-folded.cfg", "demo-folded.weights", "demo.png"]
    with Image.open(folder / "demo.png") as drawn, Image.open(str(DATA / "shapes.png")) as picture:
        assert drawn.size == picture.size
        assert np.asarray(drawn).tobytes() != np.asarray(picture.convert("RGB")).tobytes()
    folded = dn.load(folder / "demo-folded.cfg", folder / "demo-folded.weights")
    x = dn.resize(DATA / "shapes.png", folded.w, folded.h)[np.newaxis]
    for ours, theirs in zip(shipped().forward(x), folded.forward(x), strict=True):
        assert np.abs(ours - theirs).max() < 1e-4, "logistics are at most 1, sizes are powers of a few"


def test_boxes_are_those_that_were_drawn():
    found = shipped().detect(DATA / "shapes.png")
    assert len(found) == len(OBJECTS)
    for name, box in OBJECTS:
        same = [row for row in found if found.names[row["class_id"]] == name and np.abs(row["box"] - box).max() < 8]
        assert len(same) == 1, name
        assert same[0]["prob"] > 0.8


def test_json_is_one_document(tmp_path):
    command = [sys.executable, "-c", "from pydarknetbn.cli import main; main()", "demo", "-o", str(tmp_path), "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert len(document["detections"]) == len(OBJECTS)
    assert len(document["fold"]["folded"]) == 8
    assert [Path(path).name for path in document["files"]] == ["demo.png", "demo-folded.cfg", "demo-folded.weights"]


def test_the_shipped_network_is_small_and_of_the_announced_kind():
    net = shipped()
    assert sum(array.size for layer in net.layers for array in layer.params.values()) == 132_064
    assert (net.header.version, net.dialect) == ("0.2.5", "alexeyab")
    assert [layer.type for layer in net.heads] == ["yolo", "yolo"]
