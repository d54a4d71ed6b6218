"""The forks' own .cfg files: each layer has the sizes and counts that the fork's parser gives it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pydarknetbn as dn
from pydarknetbn.building import build_layers
from pydarknetbn.dialect import dialect_named, profile_named
from pydarknetbn.layers import Layer

COLUMNS = "type out_w out_h out_c n size stride pad groups outputs nweights batch_normalize".split()

# What the fork's program calls a section, where it is not the section's name; and sections whose sizes it does not keep.
NAMES = {
    "first": {"Gaussian_yolo": "gaussian_yolo"},
    "later": {"Gaussian_yolo": "gaussian_yolo", "reorg": "reorg_old", "reorg3d": "reorg"},
}
WITHOUT_SIZES = frozenset({"contrastive", "cost", "detection", "gru", "lstm", "rnn", "softmax"})

Row = tuple[Any, ...]
Numbers = Callable[[Layer, bool], dict[str, int]]


def convolutional(layer: Layer, later: bool) -> dict[str, int]:
    native = layer.native
    kernel = {"n": native.n, "size": native.size, "stride": native.stride_x, "pad": native.pad, "groups": native.groups}
    return kernel | {"nweights": native.nweights, "batch_normalize": "scales" in layer.shapes}


def local(layer: Layer, later: bool) -> dict[str, int]:
    native = layer.native
    return {"n": native.n, "size": native.size, "stride": native.stride_x, "pad": native.pad}


def window(layer: Layer, later: bool) -> dict[str, int]:
    return {"size": layer.native.size, "stride": layer.native.stride_x, "pad": layer.native.pad}


def connected(layer: Layer, later: bool) -> dict[str, int]:
    """The later forks keep it as a convolution of one pixel."""
    normalized = {"batch_normalize": "scales" in layer.shapes}
    return normalized | ({"n": layer.out_shape.c, "size": 1, "stride": 1, "groups": 1} if later else {})


def route(layer: Layer, later: bool) -> dict[str, int]:
    return {"n": len(layer.sources), "groups": layer.native.groups if later else 0}


def shortcut(layer: Layer, later: bool) -> dict[str, int]:
    return {"n": len(layer.sources) if later else 0, "nweights": layer.native.nweights}


def crnn(layer: Layer, later: bool) -> dict[str, int]:
    inner = next(iter(layer.inner.values())).native
    return {"size": inner.size, "stride": inner.stride_x, "pad": inner.pad, "groups": inner.groups} if later else {}


NUMBERS: dict[str, Numbers] = {
    "crnn": crnn,
    "detection": lambda layer, later: {"n": layer.native.n},
    "connected": connected,
    "convolutional": convolutional,
    "local": local,
    "local_avgpool": window,
    "maxpool": window,
    "Gaussian_yolo": lambda layer, later: {"n": layer.native.n},
    "region": lambda layer, later: {"n": layer.native.n},
    "reorg": lambda layer, later: {"stride": layer.native.stride_x or 1},
    "reorg3d": lambda layer, later: {"stride": layer.native.stride_x},
    "route": route,
    "shortcut": shortcut,
    "softmax": lambda layer, later: {"groups": layer.native.groups},
    "upsample": lambda layer, later: {"stride": layer.native.stride_x},
    "yolo": lambda layer, later: {"n": layer.native.n},
}


def row(layer: Layer, later: bool) -> Row:
    """A layer as the fork's parser has it; 0 stands for what it does not set."""
    sizeless = bool(layer.flat) or layer.type in WITHOUT_SIZES
    c, h, w = (0, 0, 0) if sizeless else layer.out_shape
    name = NAMES["later" if later else "first"].get(layer.type, layer.type)
    values = dict.fromkeys(COLUMNS, 0) | {"type": name, "out_w": w, "out_h": h, "out_c": c, "outputs": layer.out_shape.floats}
    values |= NUMBERS[layer.type](layer, later) if layer.type in NUMBERS else {}
    return tuple(values[column] for column in COLUMNS)


def built(path: Path, dialect: str) -> list[Layer]:
    """The layers of a cfg, without values."""
    cfg = dn.read_cfg(path, dialect=dialect)
    chosen = dialect_named(dialect)
    return list(build_layers(cfg, chosen, profile_named(chosen.profile)).layers)


# --- what each cfg is expected to be --------------------------------------------------------------------------------------------


def cases() -> list[Any]:
    """Each of the forks' cfgs, or one skip that says what is missing."""
    folder = os.environ.get("PYDARKNETBN_CFGS")
    if not folder:
        return [
            pytest.param(None, marks=pytest.mark.skip(reason="PYDARKNETBN_CFGS does not name the folder of the forks' cfg files"))
        ]
    paths = sorted(Path(folder).glob("*/*.cfg"))
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in paths]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def assert_rows(layers: list[Layer], want: list[list[Any]], *, later: bool) -> None:
    assert len(layers) == len(want)
    for layer, expected in zip(layers, want, strict=True):
        got = row(layer, later)
        if layer.type == "contrastive":  # there n is another layer's
            got = (*got[:4], expected[4], *got[5:])
        assert got == tuple(expected), f"layer {layer.index}, line {layer.line}"


@pytest.mark.parametrize("path", cases())
def test_cfg_has_the_recorded_table_of_layers(path, golden):
    recorded = json.loads((golden / "tables.json").read_text())
    assert recorded["columns"] == COLUMNS
    first = path.parent.name == "pjreddie"
    layers = built(path, "pjreddie" if first else "alexeyab")
    if name_of(path) in recorded["reference_crashes_while_parsing"]:
        return  # it is built here
    assert_rows(layers, recorded["layers"][name_of(path)], later=not first)


def test_cfgs_that_the_third_fork_reads_have_its_table_of_layers(cfgs, golden):
    recorded = json.loads((golden / "tables-hank-ai.json").read_text())
    others = json.loads((golden / "tables.json").read_text())["layers"]
    tables = recorded["layers"] | {name: others[name] for name in recorded["same_as_tables_json"]}
    for name, want in tables.items():
        assert_rows(built(cfgs / name, "hank-ai"), want, later=True)


def test_no_cfg_is_left_out(cfgs, golden):
    recorded = json.loads((golden / "tables.json").read_text())
    names = {name_of(path) for path in cfgs.glob("*/*.cfg")}
    assert names == {*recorded["layers"], *recorded["reference_crashes_while_parsing"]}
    assert len(names) == 184
