"""`calibrate` as a command: its file, its sentences, and processes of mpiexec that share it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from nets import cfg_of, tiny_files
from pydarknetbn import npz
from pydarknetbn.cli import main
from pydarknetbn.cli.pictures import find_pictures

NET = ("tiny-yolo.cfg", "tiny-yolo.weights")
Run = Callable[..., tuple[int, str, str]]


def make_pictures(folder: Path, count: int) -> None:
    """Smooth colours of a seed, no two of one size."""
    folder.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((64 + number, 48), Image.Resampling.BICUBIC).save(folder / f"{number:03}.png")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with the little detector's files and seven pictures; gives exit code, output and errors."""
    tiny_files(tmp_path)
    make_pictures(tmp_path / "pictures", 7)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["pydarknetbn", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, told = capsys.readouterr()
        return int(caught.value.code or 0), out, told

    return run


def test_the_file_differs_in_rolling_arrays_alone(run: Run) -> None:
    code, out, told = run("calibrate", *NET, "pictures", "-o", "new.weights", "--batch", "3")
    assert (code, told) == (0, "")
    assert out.splitlines()[-2:] == ["calibrated 3 batchnorms in one pass over 7 pictures in 3 batches", "written: new.weights"]
    old, new = (np.frombuffer(Path(name).read_bytes(), np.uint8) for name in (NET[1], "new.weights"))
    assert old.size == new.size
    changed = set(np.flatnonzero(old != new).tolist())
    rolling = [place for place in dn.check(*NET).places if place.name.startswith("rolling")]
    allowed = {at for place in rolling for at in range(place.offset, place.offset + place.nbytes)}
    assert changed
    assert changed <= allowed
    assert [path.name for path in Path().iterdir() if "unfinished" in path.name] == []


def test_the_arrays_are_those_of_the_network_called_from_python(run: Run) -> None:
    assert run("calibrate", *NET, "pictures", "-o", "new.weights", "--batch", "3", "--sequential", "--resize", "letterbox")[0] == 0
    net = dn.load(*NET)
    pictures = [dn.letterbox(str(path), net.w, net.h) for path in sorted(Path("pictures").iterdir())]
    net.calibrate([np.stack(pictures[at : at + 3]) for at in (0, 3, 6)], sequential=True)
    assert Path("new.weights").read_bytes() == net.to_bytes()


def test_json_has_every_channel(run: Run) -> None:
    code, out, _ = run("calibrate", *NET, "pictures", "-o", "new.weights", "--json")
    document = json.loads(out)
    net = dn.load(NET[0], "new.weights")
    assert (code, document["file"], document["images"], document["units"]) == (0, "new.weights", 7, 1)
    for told in document["layers"]:
        assert told["variance"] == net.layers[told["layer"]].rolling_variance.tolist()


def test_pictures_are_folders_lists_and_files(run: Run) -> None:
    names = [str(path) for path in sorted(Path("pictures").iterdir())]
    Path("pictures/list.txt").write_text("000.png\n\n" + "\n".join(names[1:4]) + "\n")  # beside the list, and from here
    assert run("calibrate", *NET, "pictures", "-o", "a.weights")[0] == 0
    assert run("calibrate", *NET, "pictures/list.txt", *names[4:], "-o", "b.weights")[0] == 0
    assert Path("a.weights").read_bytes() == Path("b.weights").read_bytes()


def test_the_order_of_a_folder_is_that_of_the_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk says, and whatever else is there."""
    within = Path("pictures/000")
    within.mkdir()
    (within / "b.JPG").touch()
    (within / "notes.txt").touch()
    named = [Path("pictures/000.png"), within / "b.JPG", *(Path(f"pictures/{number:03}.png") for number in range(1, 7))]
    listed = list(Path("pictures").rglob("*"))
    for order in (listed, listed[::-1]):
        monkeypatch.setattr(Path, "rglob", lambda *_, order=order: iter(order))
        assert sorted(named) == list(find_pictures([Path("pictures")]))


def test_a_bad_picture_is_named_or_left_out(run: Run) -> None:
    Path("pictures/003.png").write_text("no picture")
    code, out, told = run("calibrate", *NET, "pictures", "-o", "new.weights", "--batch", "2")
    assert (code, out) == (2, "")
    reason = "pictures/003.png: expected a picture (JPEG, PNG, ...), got bytes of no known format"
    assert told == f"pydarknetbn: {reason}; --skip leaves such pictures out\n"
    assert not Path("new.weights").exists()
    code, out, told = run("calibrate", *NET, "pictures", "-o", "new.weights", "--batch", "2", "--skip")
    assert (code, told) == (0, f"warning: {reason}\n")
    assert "over 6 pictures in 4 batches" in out


def test_work_that_stopped_goes_on_with_the_same_bytes(run: Run) -> None:
    whole = ("calibrate", *NET, "pictures", "--batch", "2", "-o")
    assert run(*whole, "whole.weights")[0] == 0
    good = Path("pictures/005.png").read_bytes()
    Path("pictures/005.png").write_bytes(good[:100].ljust(len(good), b"\0"))
    assert run(*whole, "new.weights")[0] == 2
    assert "state" in npz.read_arrays("new.weights.unfinished", limit=10**6)
    code, _, told = run(*whole, "new.weights", "--sequential")
    assert (code, told.split(": ", 2)[2]) == (2, "is unfinished work with other passes; repeat what it began with, or delete it\n")
    Path("pictures/005.png").write_bytes(good)
    assert run(*whole, "new.weights")[0] == 0
    assert Path("new.weights").read_bytes() == Path("whole.weights").read_bytes()
    assert not Path("new.weights.unfinished").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "-o", "new.weights"), "nowhere: does not exist, expected a picture, a folder or a list of pictures"),
        (("empty", "-o", "new.weights"), "empty: holds no picture; expected files that end in .bmp, .gif"),
        (("bad.txt", "-o", "new.weights"), "bad.txt:2: gone.png does not exist"),
        (("pictures", "-o", "nowhere/new.weights"), "there is no folder"),
    ],
    ids=["gone", "empty", "list", "folder"],
)
def test_bad_use_is_a_sentence_and_writes_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    Path("empty").mkdir()
    Path("bad.txt").write_text("picture.png\ngone.png\n")
    before = sorted(Path().rglob("*"))
    code, out, told = run("calibrate", *NET, *arguments)
    assert (code, out) == (2, "")
    assert words in told
    assert told.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


# --- processes ------------------------------------------------------------------------------------------------------------------


def command(ranks: int, *arguments: str) -> list[str]:
    """The command line, in so many processes."""
    alone = [sys.executable, "-c", "from pydarknetbn.cli import main; main()", *arguments]
    if ranks == 1:
        return alone
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    mpiexec = shutil.which("mpiexec", path=beside)
    if not mpiexec:
        pytest.skip("there is no mpiexec")
    return [mpiexec, "-n", str(ranks), *alone]


def good(ranks: int, *arguments: str) -> str:
    """What it prints, once."""
    done = subprocess.run(command(ranks, *arguments), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_two_processes_write_one_file_and_print_once(run: Run) -> None:
    files = [f"{ranks}.weights" for ranks in (1, 2)]
    told = [
        good(ranks, "calibrate", *NET, "pictures", "--batch", "2", "-o", name) for ranks, name in zip((1, 2), files, strict=True)
    ]
    assert told[1] == told[0].replace(files[0], files[1])
    assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()


def test_what_fails_in_one_process_is_told_once_and_ends_all(run: Run) -> None:
    Path("pictures/003.png").write_text("no picture")
    line = command(2, "calibrate", *NET, "pictures", "--batch", "2", "-o", "new.weights")
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pydarknetbn: rank 1 of 2: pictures/003.png: expected a picture")
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_yolo_fastest_on_200_pictures_is_the_same_file_from_1_2_and_4_processes(models: Path, tmp_path: Path) -> None:
    make_pictures(tmp_path / "pictures", 200)
    files = []
    for ranks in (1, 2, 4):
        files.append(tmp_path / f"{ranks}.weights")
        net = (str(models / "yolo-fastest.cfg"), str(models / "yolo-fastest.weights"))
        out = good(ranks, "calibrate", *net, str(tmp_path / "pictures"), "--batch", "7", "-o", str(files[-1]))
        assert "calibrated 83 batchnorms in one pass over 200 pictures in 29 batches" in out
    one, two, four = (path.read_bytes() for path in files)
    assert one == two == four
    assert one != (models / "yolo-fastest.weights").read_bytes()


WIDE = cfg_of(*["conv filters=64 size=3 pad=1 batch_normalize=1 activation=leaky"] * 4, w=128, h=128)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "how"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (1, signal.SIGINT)])
def test_a_command_that_is_ended_goes_on_with_the_same_bytes(run: Run, ranks: int, how: signal.Signals) -> None:
    """kill -9 or Ctrl-C once some batches are in its file; then the same command in another number of processes."""
    Path("wide.cfg").write_bytes(WIDE)
    dn.load("wide.cfg", None, seed=1).save("wide.weights")
    make_pictures(Path("many"), 40)
    net = ("wide.cfg", "wide.weights", "many", "--batch", "2", "--threads", "1", "-o")
    good(1, "calibrate", *net, "whole.weights")
    with subprocess.Popen(command(ranks, "calibrate", *net, "new.weights"), start_new_session=True) as started:
        while started.poll() is None and not _units(Path("new.weights.unfinished")):
            time.sleep(0.05)
        os.killpg(started.pid, how)
    assert started.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert 0 < _units(Path("new.weights.unfinished")) < 20
    assert not Path("new.weights").exists()
    good(3 - ranks, "calibrate", *net, "new.weights")
    assert Path("new.weights").read_bytes() == Path("whole.weights").read_bytes()


def _units(path: Path) -> int:
    return int(npz.read_arrays(path, limit=10**7)["state"][1]) if path.exists() else 0
