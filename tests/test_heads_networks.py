"""Networks with heads of every kind, from the command line and from the forks' own cfgs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.cfg import read_cfg
from pydarknetbn.cli import app
from pydarknetbn.dialect import DIALECTS
from pydarknetbn.rewriting import rewrite


def test_command_finds_objects_of_a_first_yolo(tmp_path):
    cfg = tmp_path / "first.cfg"
    cfg.write_bytes(cfg_of("connected output=24 activation=linear", "detection side=2 num=1 coords=4 classes=1", w=8, h=8))
    cfg.with_suffix(".names").write_text("dog\n")
    net = dn.load(cfg, dialect="alexeyab")
    net.layers[0].weights[:] = 0
    net.layers[0].biases[:] = [1, 1, 1, 1, 0, 0.75, 0, 0, *[0.5, 0.5, 0.25, 0.25] * 4]
    net.save(cfg.with_suffix(".weights"))
    Image.new("RGB", (40, 20)).save(tmp_path / "black.png")
    files = [str(cfg), str(cfg.with_suffix(".weights")), str(tmp_path / "black.png")]
    result = CliRunner().invoke(app, ["detect", *files, "--hier", "0.4", "--json"])
    assert result.exit_code == 0, result.output
    (document,) = json.loads(result.output)
    assert [(row["name"], row["prob"], row["box"]) for row in document["detections"]] == [
        ("dog", 0.75, {"x": 30.0, "y": 5.0, "w": 10.0, "h": 5.0})
    ]


SECTIONS = re.compile(r"^\[(?:detection|gaussian_yolo|iseg|contrastive|region)\]|^ *tree *=", re.IGNORECASE | re.MULTILINE)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cfgs_of_the_forks_with_these_heads_run_small(cfgs, tmp_path, dialect):
    """Each that has no section left out by the package, on 64 x 64 pixels, from seeded weights: no NaN comes out."""
    shutil.copytree(cfgs / "data", tmp_path / "data")
    (tmp_path / "cfg").mkdir()
    ran, refused = [], []
    for path in sorted((cfgs / dialect).glob("*.cfg")):
        if not SECTIONS.search(path.read_text(errors="replace")):
            continue
        small = tmp_path / "cfg" / path.name
        small.write_text(rewrite(read_cfg(path, dialect=dialect), {(-1, "width"): "64", (-1, "height"): "64"}))
        try:
            outputs = run_small(small, dialect)
        except dn.UnsupportedError:
            refused.append(path.stem)
            continue
        assert all(np.isfinite(output).all() for output in outputs), path.name
        ran.append(path.stem)
    assert len(ran) >= {"pjreddie": 8, "alexeyab": 13, "hank-ai": 1}[dialect]
    assert set(refused) <= {"tiny-yolo_xnor", "yolov1", "yolov4-tiny_contrastive"}


def run_small(path: Path, dialect: str) -> list[Array]:
    with dn.load(path, seed=1, dialect=dialect) as net:
        assert not any("is no file" in warning for warning in net.warnings)
        for layer in net.layers:
            if "rolling_variance" in layer.params:
                layer.rolling_variance[...] = 1
        return net.forward(np.random.default_rng(1).random((1, net.c, net.h, net.w), np.float32))
