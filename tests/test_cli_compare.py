"""`pydarknetbn compare`: what it prints, its exit codes, and one sentence for each wrong use."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import comparisons
import pydarknetbn as dn
from nets import tiny_files
from pydarknetbn.cli.compare_table import print_comparison, shown_rows
from pydarknetbn.cli.other_side import other_side
from pydarknetbn.doctor.sources import trace_of
from pydarknetbn.errors import DarknetError

NET = ("tiny-yolo.cfg", "tiny-yolo.weights")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    tiny_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pydarknetbn", "compare", *arguments]
    plain = os.environ | {"NO_COLOR": "1"}
    return subprocess.run(command, env=plain, capture_output=True, text=True, timeout=60, check=False)


def printed(name: str, width: int, **options: Any) -> list[str]:
    out = Console(width=width, file=io.StringIO(), highlight=False, emoji=False)
    print_comparison(out, comparisons.ALL[name](), **({"quiet": False, "every": False} | options))
    return out.file.getvalue().splitlines()


# --- what is printed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("name", ["clean", "caused", "unknown", "without_numbers", "hostile", "long"])
def test_lines_fit_the_terminal_and_numbers_are_whole(name, width):
    lines = printed(name, width)
    assert max(map(len, lines)) <= width
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("layer ")) :]
    assert not any("e-…" in line or "convolu…" in line for line in table)


def test_the_verdict_comes_first_and_each_cause_with_its_fix():
    lines = printed("caused", 160)
    assert lines[0].startswith("layer 1 [convolutional] (line 15) and 4 more: batchnorm normalizes with epsilon 0.001")
    rest = [" ".join(line.split()) for line in lines]
    for expected in (
        "fix BatchNorm2d(channels, eps=1e-5)",
        "layers 1, 3-5, 9",
        "cause leaky has slope 0.01, Darknet 0.1",
        "fix LeakyReLU(0.1)",
    ):
        assert expected in rest
    assert "or a PReLU of one weight" in rest
    assert "theirs port.onnx in onnxruntime 1.27.0" in rest
    assert "unused 2 values of the other side: onnx::Reshape_412, onnx::Transpose_413" in rest


def test_rows_over_their_budget_are_shown_with_their_neighbors():
    made = comparisons.long()
    assert shown_rows(made) == [179, 180, 181]
    assert sum(" convolutional " in line for line in printed("long", 160, every=True)) == 300
    assert sum(" convolutional " in line for line in printed("long", 160)) == 3


def test_of_a_clean_port_the_rows_nearest_to_their_budgets_are_shown():
    rows = tuple(comparisons.row(number, "post", 1e-8 * number, 1e-8 * number) for number in range(20))
    assert shown_rows(comparisons.replace(comparisons.clean(), rows=rows)) == [15, 16, 17, 18, 19]


def test_quiet_is_the_verdict_alone():
    assert printed("unknown", 160, quiet=True) == [comparisons.unknown().verdict]


def test_a_name_cannot_steer_the_terminal():
    rows = tuple(comparisons.replace(row, tensor="\x1b[2Jgone\r[red]x[/red]") for row in comparisons.unknown().rows)
    out = Console(width=160, file=io.StringIO())
    print_comparison(out, comparisons.replace(comparisons.unknown(), rows=rows), quiet=False, every=False)
    assert "\x1b" not in out.file.getvalue()
    assert "?[2Jgone?[red]x[/red]" in out.file.getvalue()


# --- runs -----------------------------------------------------------------------------------------------------------------------


def test_the_same_weights_are_clean(folder):
    done = run(*NET, NET[1], "--input", "picture.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("clean: ")


def test_another_profile_is_a_finding_and_its_epsilon_is_named(folder):
    done = run(*NET, "profile:keras", "--input", "picture.png", "--json", "--html", "report.html")
    pytest.importorskip("plotly", reason="the extra report is not installed")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["causes"][0]["kind"] == "batchnorm.epsilon"
    assert document["causes"][0]["values"]["epsilon"] == pytest.approx(1e-3, rel=1e-2)
    assert document["verdict"] in (folder / "report.html").read_text(encoding="utf-8").replace("&#39;", "'")


def test_arrays_of_an_npz_are_compared_by_the_names_of_a_map(folder):
    net = dn.load(*NET)
    net.forward(dn.resize("picture.png", 32, 32)[np.newaxis])
    arrays = {f"their.{layer.index}": layer.output.copy() for layer in net.layers if layer.type == "convolutional"}
    arrays["their.0"][0, 1] += 0.5
    np.savez("theirs.npz", **arrays)
    Path("names.txt").write_text("".join(f"{name.split('.')[1]} = {name}\n" for name in arrays))
    done = run(*NET, "theirs.npz", "--input", "picture.png", "--names", "names.txt", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    rows = {row["tensor"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["their.0"]["match"].startswith("by name")
    assert rows["their.0"]["bad"]


def test_a_function_of_the_current_folder_is_called(folder):
    Path("mine.py").write_text(
        "import pydarknetbn as dn\n\ndef build():\n    return dn.load('tiny-yolo.cfg', 'tiny-yolo.weights').forward\n"
    )
    done = run(*NET, "mine:build", "--input", "picture.png")
    assert (done.returncode, done.stderr) == (0, "")


# --- files of PyTorch -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="the extra torch is not installed")


def test_programs_of_torch_are_loaded_and_compute(folder, torch):
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    x = torch.rand(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.trace(module, x).save("script.pt")
    torch.export.save(torch.export.export(module, (x,)), "exported.pt2")
    for name in ("script.pt", "exported.pt2"):
        loaded = other_side(name, None, None)
        assert torch.equal(loaded(x), module(x)), name
        assert [each.op for each in trace_of(loaded, x.numpy()).tensors] == ["conv", "relu"], name


@pytest.mark.parametrize(
    ("held", "told"), [("state", "holds a state_dict, numbers without a program"), ("module", "is a pickled module")]
)
def test_a_file_of_torch_without_a_safe_program_says_what_to_do(folder, torch, held, told):
    module = torch.nn.Linear(2, 2)
    torch.save(module if held == "module" else module.state_dict(), "model.pth")
    with pytest.raises(DarknetError) as caught:
        other_side("model.pth", None, None)
    assert told in str(caught.value)
    assert "torch.export.save" in str(caught.value)
    assert "module:function" in str(caught.value)


@pytest.mark.parametrize("name", ["broken.pt", "broken.pt2", "broken.pth"])
def test_a_broken_file_of_torch_is_one_sentence(folder, torch, name):
    Path(name).write_bytes(b"\x80\x02no" * 9)
    with pytest.raises(DarknetError, match=f"{name}: cannot be read as") as caught:
        other_side(name, None, None)
    assert "\n" not in str(caught.value)


# --- wrong use ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.onnx"], "nowhere.onnx: there is no such file; expected an .onnx, .npz"),
        (["picture.png"], "picture.png: expected an .onnx, .npz, .pt2"),
        (["profile:nothing"], "nothing"),
        (["absent_module:build"], "absent_module:build: absent_module cannot be imported: No module named 'absent_module'"),
        (["bad:missing"], "bad:missing: bad has no function missing"),
        (["bad:fails"], "bad:fails raised KeyError: 'what'"),
        (["bad:number"], "bad:number gave int; expected a torch.nn.Module"),
        ([NET[1], "--html", "report.pdf"], "report.pdf: expected a name that ends in .html"),
        ([NET[1], "--html", "no/report.html"], "there is no folder no; make it first"),
        ([NET[1], "--input", "no.png"], "no.png"),
        ([NET[1], "--other-input", "two.npz"], "two.npz: holds a, b; expected an array named input"),
        ([NET[1], "--names", "names.txt"], "names.txt:1"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(folder, arguments, told):
    Path("bad.py").write_text("def fails():\n    raise KeyError('what')\n\ndef number():\n    return 3\n")
    Path("names.txt").write_text("0 = nowhere\n")
    np.savez("two.npz", a=np.zeros(1), b=np.zeros(1))
    done = run(*NET, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pydarknetbn: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
    assert not list(folder.glob("report*"))


def test_an_error_in_a_function_of_the_user_names_its_line(folder):
    Path("wrong.py").write_text("def build():\n    return 1 / 0\n")
    with pytest.raises(DarknetError, match=r"raised ZeroDivisionError: division by zero \(.*wrong\.py:2\)"):
        other_side("wrong:build", None, None)


def test_three_names_are_expected(folder):
    done = run(*NET)
    assert done.returncode == 2
    assert "expected CFG, WEIGHTS and OTHER, got 2 names" in done.stderr
