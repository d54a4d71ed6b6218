"""The verbs about files: `check`, `lint`, `diff`, `cut`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, tiny_files
from pydarknetbn.cli import common, main

NET = ("tiny-yolo.cfg", "tiny-yolo.weights")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with the little detector's files; gives exit code, output and errors."""
    tiny_files(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["pydarknetbn", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, told = capsys.readouterr()
        return int(caught.value.code or 0), out, told

    return run


def test_check_shows_every_array_and_ends_with_the_verdict(run):
    code, out, told = run("check", *NET)
    lines = out.splitlines()
    assert (code, told) == (0, "")
    assert lines[0].split() == ["layer", "type", "array", "shape", "offset", "bytes"]
    assert lines[1].split()[:3] == ["0", "convolutional", "biases"]
    assert "header: version 0.2.5, 20 bytes, 6,400 images seen; 3,876 bytes used, 0 left over, 0 missing; dialect alexeyab" in out
    assert lines[-1].startswith("tiny-yolo.weights: fits tiny-yolo.cfg: all 3,876 bytes are used")
    assert run("check", *NET, "-q")[1].splitlines() == lines[-2:]


def test_check_of_a_bad_file_is_a_finding_with_the_reason(run):
    Path("page.weights").write_bytes(b"<html><body>moved</body></html>")
    code, out, told = run("check", NET[0], "page.weights")
    assert (code, told) == (1, "")
    assert out.splitlines()[-1].startswith("page.weights: is an HTML page")
    code, out, _ = run("check", NET[0], "page.weights", "--json")
    assert (code, json.loads(out)["good"]) == (1, False)


def test_check_quotes_a_file_of_another_kind_as_it_is(run):
    Path("users.weights").write_text("root:x:0:0:root", encoding="utf-8")
    assert (
        run("check", NET[0], "users.weights")[1]
        == "users.weights: is text ('root:x:0:0:r' …), not Darknet weights; download the raw file\n"
    )


def test_lint_names_line_and_message_then_who_runs_it(run):
    Path("bad.cfg").write_bytes(cfg_of("conv filters=two activation=leaky", net="max_crop=64"))
    code, out, told = run("lint", "bad.cfg")
    lines = out.splitlines()
    assert (code, told) == (1, "")
    assert lines[0] == "bad.cfg:7: error: [conv] has filters='two', expected a whole number in plain digits"
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["pjreddie", "yes"],
        ["alexeyab", "yes"],
        ["hank-ai", "no", "5"],
    ]  # fmt: skip
    assert lines[4].rstrip().endswith("[net] does not read max_crop=")
    document = json.loads(run("lint", "bad.cfg", "--json")[1])
    assert document["findings"][0]["key"] == "filters"
    assert [fork["runs"] for fork in document["forks"]] == ["yes", "yes", "no"]
    assert run("lint", NET[0])[0] == 0


def test_diff_is_0_for_equal_and_1_for_different_files(run):
    code, out, _ = run("diff", NET[0], NET[1], NET[1])
    assert (code, out.count("\n")) == (0, 1)
    net = dn.load(*NET)
    net.layers[0].scales[1] += np.float32(0.5)
    net.save("b.weights")
    code, out, _ = run("diff", NET[0], NET[1], "b.weights")
    assert code == 1
    assert out.splitlines()[1].split() == ["0", "convolutional", "scales", "1", "4", "0.5", "1"]
    assert json.loads(run("diff", NET[0], NET[1], "b.weights", "--json")[1])["arrays"][0]["differ"] == 1


def test_cut_writes_the_first_layers_and_says_how_to_load_them(run):
    code, out, _ = run("cut", *NET, "2", "-o", "part.weights")
    assert (code, out) == (0, f"part.weights: layers 0 to 1, {Path('part.weights').stat().st_size:,} bytes; load it with upto=2\n")
    whole = Path(NET[1]).read_bytes()
    part = Path("part.weights").read_bytes()
    assert whole.startswith(part)
    assert len(part) < len(whole)
    assert (dn.load(NET[0], "part.weights", upto=2).layers[0].weights == dn.load(*NET).layers[0].weights).all()
    assert "upto=" in run("check", NET[0], "part.weights")[1]


WRONG = {
    "no layer": (["cut", *NET, "0", "-o", "x"], "expected N from 1 to"),
    "more layers than there are": (["cut", *NET, "99", "-o", "x"], "got 99"),
    "over itself": (["cut", *NET, "2", "-o", NET[1]], "is the file itself"),
    "a folder that is not there": (["cut", *NET, "2", "-o", "no/x"], "no/x: cannot be written"),
    "no weights to check": (["check", NET[0], "no.weights"], "no.weights: does not exist"),
    "weights to lint": (["lint", NET[1]], "so it is no text"),
    "another net's file": (["diff", NET[0], NET[1], NET[0]], "is text"),
    "an unknown dialect": (["check", *NET, "--dialect", "c"], "expected a dialect"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_wrong_use_is_one_sentence_and_exit_code_2(run, arguments, words):
    code, out, told = run(*arguments)
    assert (code, out, told.count("\n")) == (2, "", 1)
    assert words in told


def test_bar_comes_after_a_second_and_only_on_a_terminal(monkeypatch):
    class Terminal:
        encoding = "utf-8"
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    terminal, now = Terminal(), [0.0]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    with common.late_progress("checking", quiet=False) as tell:
        tell(1, 10)
        assert terminal.text == ""
        now[0] = 1.5
        tell(2, 10)
    assert "checking" in terminal.text
    terminal.text = ""
    with common.late_progress("checking", quiet=True) as tell:
        now[0] = 9
        tell(2, 10)
    assert terminal.text == ""
