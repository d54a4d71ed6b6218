"""Each fault that ports have, in three networks, through PyTorch and ONNX: the doctor names it, and calls right ports clean."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import pytest

import pydarknetbn as dn

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ports import matrix, networks, real_faults

SEED, UNSEEN = 20261130, 20261201  # of weights and pictures; no hypothesis was tuned with the second
TORCH = find_spec("torch") is not None
SHARE = 0.98
EVERY = 24


def _rows(name: str, folder: str) -> list[matrix.Row]:
    dn.set_num_threads(1)
    import torch

    torch.set_num_threads(1)
    return list(matrix.run(UNSEEN, dn.compare, Path(folder), chosen=matrix.cells(UNSEEN, [name])))


def _told(rows: list[matrix.Row]) -> str:
    return "\n".join(f"{row.network} {row.backend} {row.mutation}: {row.named or row.words}" for row in rows)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_sample_of_faults_is_named_through_onnx(name, tmp_path):
    cells = [cell for cell in matrix.cells(SEED, [name]) if cell.backend == "onnx"]
    chosen = matrix.sample(cells, EVERY, first=list(networks.NETWORKS).index(name))
    for cell in chosen:
        found = dn.compare(cell.case.net, cell.port(tmp_path), cell.case.x, other_input=cell.given, picture=cell.case.picture)
        if cell.mutation is matrix.CLEAN or cell.mutation.harmless:
            assert found.clean, found.verdict
        elif found.cause is None:  # a fault that shows nowhere
            assert max(row.multiple for row in found.rows) < matrix.VISIBLE, (cell.mutation.name, found.verdict)
        else:
            assert found.cause.kind in cell.mutation.kinds, (cell.mutation.name, found.verdict)


@pytest.mark.long
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_the_whole_matrix_is_named(tmp_path):
    folders = [tmp_path / name for name in networks.NETWORKS]
    for folder in folders:
        folder.mkdir()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        rows = [row for part in pool.map(_rows, networks.NETWORKS, map(str, folders)) for row in part]
    if "PYDARKNETBN_MATRIX" in os.environ:  # what tools/matrix_picture.py draws
        Path(os.environ["PYDARKNETBN_MATRIX"]).write_text(json.dumps([row.__dict__ for row in rows], default=str), encoding="utf-8")
    counted = [row for row in rows if row.counts]
    summary = matrix.summary(rows)
    print(summary)
    assert not [row for row in counted if row.wrong], _told([row for row in counted if row.wrong])
    assert summary["clean called clean"] == summary["clean"] == 9
    assert summary["share"] >= SHARE, _told([row for row in counted if not row.correct])


@pytest.mark.long
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.skipif("PYDARKNETBN_MODELS" not in os.environ, reason="PYDARKNETBN_MODELS is not set")
def test_known_faults_of_published_ports_are_named_on_yolo_fastest(tmp_path):
    case = real_faults.real_case(Path(os.environ["PYDARKNETBN_MODELS"]))
    rows = [
        matrix.judged(cell, dn.compare(case.net, cell.port(tmp_path), case.x, other_input=cell.given, picture=case.picture))
        for cell in real_faults.real_cells(case)
    ]
    assert len(rows) == 16
    assert not [row for row in rows if not row.correct], _told([row for row in rows if not row.correct])
