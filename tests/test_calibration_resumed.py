"""An interrupted calibration goes on from its file, to the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from calibrating import batches, mixed, on_ranks
from pydarknetbn import npz
from pydarknetbn._native import Array

ALL = (4, 3, 4, 2, 4, 4)


def until(end: int, asked: list[int] | None = None) -> Callable[[int], Array | None]:
    """The batches by number, and Ctrl-C at one of them."""

    def read(number: int) -> Array | None:
        if asked is not None:
            asked.append(number)
        if number == end:
            raise KeyboardInterrupt
        return batches(ALL)[number] if number < len(ALL) else None

    return read


def interrupted(path: Path, end: int, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        mixed().calibrate(until(end), resume=path, **options)


@pytest.mark.parametrize("sequential", [False, True], ids=["one-pass", "sequential"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_it_goes_on_with_the_next_batch_on_any_number_of_ranks(tmp_path: Path, size: int, sequential: bool) -> None:
    path = tmp_path / "work"
    interrupted(path, 3, sequential=sequential)
    asked: list[int] = []

    def work(comm: Any) -> bytes:
        net = mixed()
        net.calibrate(until(-1, asked), sequential=sequential, comm=comm, resume=path)
        return net.to_bytes()

    found = on_ranks(size, work)
    whole = mixed()
    whole.calibrate(batches(ALL), sequential=sequential)
    assert found == [whole.to_bytes()] * size
    assert not path.exists()
    assert sorted(asked)[0] == (0 if sequential else 3)
    assert sequential or 2 not in asked


def test_a_later_pass_goes_on_with_the_layers_before_it_set(tmp_path: Path) -> None:
    calls = 0

    def read(number: int) -> Array | None:
        nonlocal calls
        calls += 1
        if calls == 18:  # 7 reads each pass: the third pass has begun
            raise KeyboardInterrupt
        return batches(ALL)[number] if number < len(ALL) else None

    net, whole, path = mixed(), mixed(), tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        net.calibrate(read, sequential=True, resume=path)
    asked: list[int] = []
    net.calibrate(until(-1, asked), sequential=True, resume=path)
    whole.calibrate(batches(ALL), sequential=True)
    assert net.to_bytes() == whole.to_bytes()
    assert asked[0] == 3


def test_a_batch_that_fails_may_be_mended_and_goes_on(tmp_path: Path) -> None:
    path, given = tmp_path / "work", batches(ALL)
    bad = [*given[:4], given[4] * np.float32(np.nan), given[5]]
    net = mixed()
    with pytest.raises(dn.NumericsError, match="batch 4"):
        net.calibrate(bad, resume=path)
    net.calibrate(given, resume=path)
    whole = mixed()
    whole.calibrate(given)
    assert net.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"data": "other pictures"},
            "is unfinished work with other data or other batches; repeat what it began with, or delete it",
        ),
        ({"sequential": True}, "is unfinished work with other passes"),
        ({"scales": 1}, "is unfinished work with another weights"),
        ({"profile": "textbook"}, "is unfinished work with another profile"),
    ],
    ids=["data", "way", "weights", "profile"],
)
def test_a_file_of_other_work_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "work"
    interrupted(path, 3)
    held = path.read_bytes()
    net = mixed(**{"profile": change["profile"]} if "profile" in change else {})
    net.layers[1].scales[0] += change.get("scales", 0)
    with pytest.raises(dn.CheckpointError) as caught:
        net.calibrate(batches(ALL), resume=path, data=change.get("data", ""), sequential=change.get("sequential", False))
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert path.read_bytes() == held


def _no_state(path: Path) -> None:
    about = npz.read_metadata(path)
    with path.open("wb") as stream:
        npz.write_arrays(stream, [(npz.METADATA, np.array(json.dumps(about)))])


def _other_state(path: Path) -> None:
    about = npz.read_metadata(path)
    with path.open("wb") as stream:
        npz.write_arrays(stream, [(npz.METADATA, np.array(json.dumps(about))), ("state", np.full(7, np.nan))])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is no unfinished calibration; name another file, or delete it"),
        (lambda path: path.write_bytes(b"not a file of ours"), "is no unfinished calibration"),
        (_no_state, "it is damaged: delete it to begin anew"),
        (_other_state, "holds no moments of this network's batchnorms; it is damaged: delete it to begin anew"),
    ],
    ids=["cut", "other", "no-state", "nan"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[Path], Any], words: str) -> None:
    path = tmp_path / "work"
    interrupted(path, 3)
    damage(path)
    with pytest.raises(dn.CheckpointError) as caught:
        mixed().calibrate(batches(ALL), resume=path)
    assert words in str(caught.value)


def test_a_folder_that_is_not_there_is_told_and_nothing_is_lost() -> None:
    net = mixed()
    before = net.to_bytes()
    with pytest.raises(dn.CheckpointError, match=r"nowhere/work: cannot be written: there is no folder .*nowhere; make it first"):
        net.calibrate(batches(ALL), resume="nowhere/work")
    assert net.to_bytes() == before


def test_what_rank_0_cannot_write_is_an_error_on_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "work"
    found = on_ranks(2, lambda comm: mixed().calibrate(batches(ALL), comm=comm, resume=path))
    assert [type(each) for each in found] == [dn.CheckpointError, dn.SyncError]
    assert str(found[1]) == f"rank 0 of 2: {found[0]}"
