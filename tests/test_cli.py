"""The command line as a process: what it prints, its exit code, and one sentence for each wrong use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from nets import CFG, cfg_of, tiny_files
from pydarknetbn.cli import main


class Folder:
    """A folder with the little detector's files; `run` starts the command there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tiny_files(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from pydarknetbn.cli import main; main()", *arguments]
        plain = os.environ | {"NO_COLOR": "1", "COLUMNS": "160"}
        return subprocess.run(command, cwd=self.path, env=plain, capture_output=True, text=True, timeout=60, check=False)

    def good(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def document(self, *arguments: str) -> Any:
        return json.loads(self.good(*arguments, "--json"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    return Folder(tmp_path)


NET = ("tiny-yolo.cfg", "tiny-yolo.weights")

# --- good use -------------------------------------------------------------------------------------------------------------------


def test_info_shows_layers_header_dialect_and_names(folder):
    text = folder.good("info", *NET)
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "type", "size/stride", "input", "output", "parameters", "BF", "notes"]
    assert lines[1].split()[:2] == ["0", "convolutional"]
    assert "924 trainable, 964 stored" in text
    assert "version 0.2.5, 20 bytes, 6,400 images seen" in text
    assert "alexeyab: the weights are of version 0.2.5" in text
    assert "3 names: circle, square, triangle" in text


def test_info_json_has_what_the_table_has(folder):
    document = folder.document("info", *NET)
    net = dn.load(*(folder.path / name for name in NET))
    assert document["input"] == {"w": 32, "h": 32, "c": 3}
    assert [(layer["type"], tuple(layer["out"])) for layer in document["layers"]] == [
        (layer.type, tuple(layer.out_shape)) for layer in net.layers
    ]
    assert document["layers"][0]["arrays"] == {name: list(array.shape) for name, array in net.layers[0].params.items()}
    assert (document["stored"], document["trainable"], document["bytes_used"]) == (964, 924, 3876)
    assert document["header"] == {"major": 0, "minor": 2, "revision": 5, "seen": 6400, "bytes": 20}
    assert (document["dialect"], document["profile"], document["why"]) == ("alexeyab", "alexeyab-cpu", list(net.why))
    assert (document["names"], document["warnings"]) == (["circle", "square", "triangle"], [])


def test_info_needs_no_weights_and_takes_dialect_and_profile(folder):
    document = folder.document("info", NET[0], "--dialect", "pjreddie", "--profile", "hank-ai-cpu", "--threads", "2")
    assert (document["dialect"], document["profile"], document["bytes_used"]) == ("pjreddie", "hank-ai-cpu", 0)
    assert document["header"]["seen"] == 0


def test_detect_json_is_what_python_finds(folder):
    (document,) = folder.document("detect", *NET, "picture.png", "--thresh", "0.3", "--nms", "0.5", "--resize", "letterbox")
    net = dn.load(*(folder.path / name for name in NET))
    found = net.detect(folder.path / "picture.png", thresh=0.3, nms=0.5, resize="letterbox")
    assert document == {"picture": "picture.png", "resize": "letterbox", "detections": found.to_json()}
    assert len(found) > 5


def test_detect_prints_a_line_a_picture_and_a_row_a_box(folder):
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder.path / "dark.png")
    lines = folder.good("detect", *NET, "picture.png", "dark.png", "--thresh", "0.5").splitlines()
    counts = {line.split(": ")[0]: line.split(": ")[1] for line in lines if ".png: " in line}
    assert set(counts) == {"picture.png", "dark.png"}
    rows = [line for line in lines if line.split()[0] in ("circle", "square", "triangle")]
    assert len(rows) == sum(int(count.split()[0]) for count in counts.values()) > 0


def test_no_box_is_no_failure(folder):
    assert folder.good("detect", *NET, "picture.png", "--thresh", "1") == "picture.png: 0 objects\n"


def test_detect_takes_names_from_a_file(folder):
    (folder.path / "other.names").write_text("a\nb\n")
    (document,) = folder.document("detect", *NET, "picture.png", "--names", "other.names")
    assert {row["name"] for row in document["detections"]} <= {"a", "b", None}
    (folder.path / "tiny-yolo.names").unlink()
    assert "class 2" in folder.good("detect", *NET, "picture.png")


def test_detect_draws_into_a_file_or_a_folder(folder):
    second = folder.path / "second.png"
    second.write_bytes((folder.path / "picture.png").read_bytes())
    before = np.asarray(Image.open(second).convert("RGB"))
    folder.good("detect", *NET, "picture.png", "-o", "one.png")
    folder.good("detect", *NET, "picture.png", "second.png", "-o", "several", "--json")
    drawn = [folder.path / name for name in ("one.png", "several/picture.png", "several/second.png")]
    for path in drawn:
        with Image.open(path) as image:
            assert image.size == (48, 32)
            assert not np.array_equal(np.asarray(image.convert("RGB")), before)


@pytest.mark.parametrize("output", [".", "picture.png"])
def test_detect_never_draws_over_the_picture_itself(folder, output):
    before = (folder.path / "picture.png").read_bytes()
    folder.run("detect", *NET, "picture.png", "-o", output)
    assert (folder.path / "picture.png").read_bytes() == before


def test_pictures_of_the_same_name_get_a_drawing_each(folder):
    for name in ("a", "b"):
        (folder.path / name).mkdir()
        (folder.path / name / "x.png").write_bytes((folder.path / "picture.png").read_bytes())
    folder.run("detect", *NET, "a/x.png", "b/x.png", "-o", "out")
    assert len(list((folder.path / "out").iterdir())) == 2


def test_profiles_tell_their_numbers_and_evidence(folder):
    rows = [row.split() for row in folder.good("profiles").splitlines()]
    assert ["pjreddie-cpu", "recorded", "√v+1e-06"] in [row[:3] for row in rows]
    document = {profile["name"]: profile for profile in folder.document("profiles")}
    assert list(document) == [profile.name for profile in dn.profiles()]
    outside = {"value": 1e-6, "side": "outside", "literal": "float"}
    assert document["pjreddie-cpu"]["batchnorm"]["convolutional"]["forward"] == outside
    assert document["alexeyab-cpu"]["batchnorm"]["connected"]["rolling_keep"] == 0.95


def test_warnings_go_to_standard_error_unless_quiet(folder):
    (folder.path / "warned.cfg").write_bytes(cfg_of("conv batch_normalise=1"))
    told = folder.run("info", "warned.cfg")
    assert (told.returncode, told.stderr.count("\n")) == (0, 1)
    assert told.stderr.startswith("warning: warned.cfg:6: [conv] has no option batch_normalise")
    assert folder.good("info", "warned.cfg", "-q") == told.stdout
    assert folder.document("info", "warned.cfg")["warnings"] == [told.stderr.removeprefix("warning: ").rstrip("\n")]


def test_package_runs_as_a_module(tmp_path):
    command = [sys.executable, "-m", "pydarknetbn", "profiles", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[0]["name"] == dn.profiles()[0].name


# --- wrong use ------------------------------------------------------------------------------------------------------------------

SENTENCE = {
    "no cfg": (["info", "no.cfg"], "no.cfg: does not exist"),
    "a folder as cfg": (["info", "."], "is a directory"),
    "weights as cfg": (["info", "tiny-yolo.weights"], "so it is no text"),
    "an unknown section": (["info", "bad.cfg"], "bad.cfg:5: layer 0 is '[yolo9]'"),
    "an uncomputed option": (["info", "narrow.cfg"], "narrow.cfg:8: [conv_lstm], layer 0, has bottleneck=1, which is not computed"),
    "no weights": (["info", NET[0], "no.weights"], "no.weights: does not exist"),
    "a folder as weights": (["info", NET[0], "."], "is a directory"),
    "text as weights": (["info", NET[0], NET[0]], "is text"),
    "truncated weights": (["info", NET[0], "cut.weights"], "cut.weights: holds 120 floats"),
    "another net's weights": (["detect", str(CFG / "grouped.cfg"), NET[1], "picture.png"], "takes 132"),
    "no head": (["detect", "plain.cfg", "plain.weights", "picture.png"], "has no head, such as a [yolo] or [region] layer"),
    "an unknown profile": (["info", NET[0], "--profile", "gpu"], "expected a profile (pjreddie-cpu, "),
    "an unknown dialect": (["info", NET[0], "--dialect", "c"], "expected a dialect (pjreddie, alexeyab, hank-ai or auto), got 'c'"),
    "no thread": (["info", NET[0], "--threads", "0"], "got 0"),
    "no picture": (["detect", *NET, "no.png"], "no.png"),
    "a folder as picture": (["detect", *NET, "."], "."),
    "text as picture": (["detect", *NET, NET[0]], "expected a picture"),
    "a missing folder to draw in": (["detect", *NET, "picture.png", "-o", "no/such/out.png"], "no/such/out.png: cannot be written"),
    "a kind of file that cannot be drawn": (["detect", *NET, "picture.png", "-o", "out.xyz"], "out.xyz: cannot be written"),
    "a file as folder": (["detect", *NET, "picture.png", "picture.png", "-o", NET[0]], "expected a folder for 2 pictures"),
    "no names": (["detect", *NET, "picture.png", "--names", "no.names"], "no.names: cannot be read as class names"),
    "a picture as names": (["detect", *NET, "picture.png", "--names", "picture.png"], "cannot be read as class names"),
}

USAGE = {
    "no argument": (["info"], "Missing argument 'CFG'"),
    "an unknown verb": (["foo"], "No such command 'foo'"),
    "an unknown option": (["info", NET[0], "--foo"], "No such option: --foo"),
    "a threshold above 1": (["detect", *NET, "picture.png", "--thresh", "2"], "'--thresh'"),
    "a threshold that is nan": (["detect", *NET, "picture.png", "--thresh", "nan"], "'--thresh'"),
    "an overlap below 0": (["detect", *NET, "picture.png", "--nms", "-1"], "'--nms'"),
    "an unknown fit": (["detect", *NET, "picture.png", "--resize", "crop"], "'--resize'"),
    "threads by a word": (["info", NET[0], "--threads", "many"], "'--threads'"),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder with files that do not fit, too."""
    made = Folder(tmp_path_factory.mktemp("wrong"))
    (made.path / "bad.cfg").write_bytes(cfg_of("yolo9"))
    (made.path / "narrow.cfg").write_bytes(cfg_of("conv_lstm output=1 size=1 bottleneck=1"))
    (made.path / "cut.weights").write_bytes((made.path / NET[1]).read_bytes()[:500])
    (made.path / "plain.cfg").write_bytes(cfg_of("conv filters=1 activation=linear"))
    dn.load(made.path / "plain.cfg").save(made.path / "plain.weights")
    return made


@pytest.fixture
def refused(wrong: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], str]:
    """Runs the command in this process, which is quicker, and gives what it says on standard error with exit code 2."""

    def run(arguments: list[str]) -> str:
        monkeypatch.chdir(wrong.path)
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr(sys, "argv", ["pydarknetbn", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        out, told = capsys.readouterr()
        assert out == ""
        return told

    return run


@pytest.mark.parametrize(("arguments", "words"), SENTENCE.values(), ids=SENTENCE)
def test_wrong_use_is_one_sentence_and_exit_code_2(refused, arguments, words):
    told = refused(arguments)
    assert told.startswith("pydarknetbn: ")
    assert told.endswith("\n")
    assert told.count("\n") == 1
    assert words in told


def test_wrong_use_ends_the_process_without_a_traceback(wrong):
    done = wrong.run("info", NET[0], "cut.weights")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pydarknetbn: cut.weights: holds 120 floats")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE)
def test_wrong_options_show_the_usage_and_exit_code_2(refused, arguments, words):
    told = refused(arguments)
    assert told.lstrip().startswith("Usage: ")
    assert words in told


def test_more_threads_than_a_number_holds_is_one_sentence(wrong):
    done = wrong.run("info", NET[0], "--threads", str(2**64))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(("name", "words"), [("no.png", "no.png: "), (".", ".: ")])
def test_picture_that_cannot_be_opened_is_named_first(wrong, name, words):
    assert wrong.run("detect", *NET, name).stderr.startswith(f"pydarknetbn: {words}")
