"""Every cfg of the three forks builds, and computes one image, or one word, from seeded weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from pydarknetbn.rewriting import rewrite

FOLDER = os.environ.get("PYDARKNETBN_CFGS")
SIDE = 128
"""Wider and higher images are made this small, to be quick, unless a [crop] needs more."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(FOLDER is None, reason="PYDARKNETBN_CFGS does not name the folder of the forks' cfg files"),
]


def made_small(path: Path) -> bytes:
    cfg = dn.read_cfg(path, dialect=path.parent.name)
    if any(section.type == "crop" for section in cfg.layers):
        return cfg.text.encode()
    sides = {key: cfg.net.integer(key, 0) for key in ("width", "height")}
    return rewrite(cfg, {(-1, key): str(SIDE) for key, side in sides.items() if side > SIDE and side % 32 == 0}).encode()


@pytest.mark.parametrize(
    "path", sorted(Path(FOLDER or "/none").glob("*/*.cfg")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_cfg_of_a_fork_computes_one_input(path):
    with dn.load(made_small(path), dialect=path.parent.name, seed=1) as net:
        generator = np.random.default_rng(0)
        for layer in net.layers:
            for name, array in layer.params.items():
                if name.endswith("rolling_variance"):  # 0 until a network is trained, and x divided by its root is no number soon
                    array[...] = generator.uniform(0.5, 2, array.shape)
        x = generator.random((net.time_steps, net.c, net.h, net.w), dtype=np.float32)
        outputs = net.forward(x)
        assert outputs
        assert [layer.index for layer in net.layers if not np.isfinite(layer.output).all()] == []


def test_no_cfg_is_left_out():
    assert len(list(Path(FOLDER or "/none").glob("*/*.cfg"))) == 184
