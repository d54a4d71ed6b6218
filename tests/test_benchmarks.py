"""The benchmarks: ratios and limits from medians, who is left out and why, and that a run runs."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").exists():
    pytest.skip("the source tree is not beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # behind the installed package

from benchmarks import networks, original, report, running  # noqa: E402
from benchmarks.common import LeftOut, Setting  # noqa: E402
from benchmarks.suites import SUITES  # noqa: E402

SETTING = Setting(threads=1, seconds=0.01, clock="wall", quick=True, folder="")


def suite(case: str, missing: dict[str, str] | None = None, **ms: float) -> dict[str, Any]:
    """One case; "two_threads" stands for "2 threads"."""
    names = {"one_thread": "1 thread", "two_threads": "2 threads"}
    return {"cases": {case: {"work": 0, "ms": {names.get(who, who): each for who, each in ms.items()}}}, "missing": missing or {}}


def ratio(name: str, contender: str, measured: dict[str, Any], **others: Any) -> report.Ratio:
    (found,) = (each for each in report.ratios({name: measured, **others}) if (each.suite, each.contender) == (name, contender))
    return found


def shown(suites: dict[str, Any], **more: Any) -> str:
    run = {"machine": {"processor": "a processor", "variant": "portable", "versions": {"torch": "2.13.0"}}, "threads": 1}
    stream = io.StringIO()
    report.show(run | {"clock": "cpu", "rounds": 3, "load": 0.0, "suites": suites} | more, Console(file=stream, width=150))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "contender", "measured", "value", "limit", "reached"),
    [
        ("convolution", "torch", suite("3x3 8-8, 4", ours=10, torch=12), 1.2, 1.0, True),
        ("convolution", "numpy", suite("3x3 8-8, 4", ours=10, numpy=8), 0.8, 0.85, False),
        ("convolution", "peak", suite("3x3 8-8, 4", ours=10, peak=8), 0.8, None, True),
        ("batchnorm", "torch", suite("training (1, 1, 1, 1)", ours=10, torch=13), 1.3, 1.3, True),
        ("batchnorm", "torch", suite("backward (1, 1, 1, 1)", ours=10, torch=5), 0.5, None, True),
        ("batchnorm", "copy", suite("inference (1, 1, 1, 1)", ours=10, copy=7), 0.7, 0.8, False),
        ("training", "torch", suite("16 of 64x64", ours=10, torch=8), 0.8, 0.7, True),
        ("network", "onnxruntime", suite("yolov4-tiny, 416", ours=10, onnxruntime=7), 0.7, 0.8, False),
        ("network", "onnxruntime", suite("yolo-fastest-1.1, 320", ours=10, onnxruntime=7), 0.7, 0.6, True),
        ("threads", "2 threads", suite("convolution 1", one_thread=18, two_threads=10), 1.8, 1.8, True),
        ("threads", "2 threads", suite("batchnorm training", one_thread=14, two_threads=10), 1.4, 1.5, False),
        ("alternate", "both", suite("convolution", ours=10, torch=10, both=20.5), 1.025, 1.05, True),
        ("alternate", "passive", suite("convolution", ours=10, torch=10, passive=22), 1.1, 1.05, False),
        ("startup", "import", suite("a process", numpy=80, **{"import": 150}), 70, 60, False),
        ("original", "original", suite("yolov3, 608", ours=1, original=30), 30, 20, True),
        ("original", "original", suite("yolov3-tiny, 416", ours=1, original=7), 7, 8, False),
    ],
)
def test_ratio_is_anothers_time_over_ours_beside_its_limit(name, contender, measured, value, limit, reached):
    found = ratio(name, contender, measured)
    assert (found.value, found.limit, found.reached) == (pytest.approx(value), limit, reached)


@pytest.mark.parametrize(("fma", "limit"), [(9.0, 0.85), (7.0, 0.85), (5.0, 0.425)])
def test_processor_with_pipes_for_fma_alone_lowers_the_limits_of_what_could_use_them(fma, limit):
    peak = suite("registers", apart=10, fma=fma)
    assert ratio("convolution", "numpy", suite("3x3", ours=10, numpy=8), peak=peak).limit == pytest.approx(limit)
    assert ratio("batchnorm", "torch", suite("training", ours=10, torch=8), peak=peak).limit == 1.3


def test_what_is_short_is_listed_below_the_tables():
    text = shown({"convolution": suite("3x3 8-8, 4", ours=10, torch=12, numpy=8)})
    assert "1.20 ≥ 1" in text
    assert "0.80 < 0.85" in text
    assert "The targets are meant for 2 threads.\n1 of 2 targets reached; not:\n" in text
    assert text.endswith("\n  convolution 3x3 8-8, 4, NumPy's product: 0.80, wanted at least 0.85\n")


def test_contender_that_is_not_installed_is_told_in_words():
    text = shown({"picture": suite("stretch", {"opencv": "No module named 'cv2'"}, ours=10)})
    assert "left out" in next(line for line in text.splitlines() if "stretch" in line)
    assert "  OpenCV: left out: No module named 'cv2'\n" in text


def test_networks_without_a_cfg_are_told_in_words():
    text = shown({"network": {"cases": {}, "missing": {}}})
    assert "(network)" not in text
    assert "left out: PYDARKNETBN_CFGS names no folder with the .cfg files" in text


@pytest.mark.parametrize(("clock", "load", "told"), [("wall", 1.5, True), ("wall", 0.1, False), ("cpu", 1.5, False)])
def test_times_of_a_busy_machine_are_to_be_taken_with_care(clock, load, told):
    assert ("(load 1.50 before the start)" in shown({}, clock=clock, load=load)) is told


def test_targets_speak_of_contenders_that_there_are():
    for name, each in SUITES.items():
        for target in each.targets:
            assert target.contender in each.contenders[1:], name


def test_folder_without_a_library_says_which_are_looked_for(tmp_path):
    with pytest.raises(LeftOut, match=r"holds none of libdarknet\.so"):
        next(original.original("original", Setting(1, 0.01, "wall", True, str(tmp_path), str(tmp_path))))


def test_random_networks_neither_explode_nor_die(monkeypatch, tmp_path):
    """Each convolution's values have the spread that its batchnorm gives."""
    import pydarknetbn as dn

    monkeypatch.setattr(networks, "NETWORKS", (("tiny-yolo", 64),))
    monkeypatch.setenv("PYDARKNETBN_CFGS", str(ROOT / "cfg"))
    monkeypatch.delenv("PYDARKNETBN_MODELS", raising=False)
    networks.prepare(Setting(1, 0.01, "wall", True, str(tmp_path)))
    net = dn.load(tmp_path / "tiny-yolo.cfg", tmp_path / "tiny-yolo.weights")
    assert (net.w, net.h) == (64, 64)
    net.forward(networks.image_for(net))
    spreads = [float(np.std(layer.output)) for layer in net.layers if "rolling_mean" in layer.params]
    assert spreads
    assert 0.2 < min(spreads) <= max(spreads) < 5


def test_a_run_prints_medians_and_who_is_left_out():
    command = [sys.executable, "-m", "benchmarks", "picture", "--quick", "--json", "--threads", "1"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    case = run["suites"]["picture"]["cases"]["stretch 1080p to 416"]
    assert case["ms"]["ours"] > 0
    assert ("opencv" in case["ms"]) != ("opencv" in run["suites"]["picture"]["missing"])
    assert (run["threads"], run["rounds"], run["clock"]) == (1, 1, "wall")


def test_layers_of_a_network_are_listed_with_their_time():
    command = [sys.executable, "-m", "benchmarks.layers", "cfg/tiny-yolo.cfg", "--size", "64"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tiny-yolo.cfg, 64 x 64: ")
    first = r"^   0 convolutional +64 x 64 x 3 to 32 x 32 x 4 +[\d.]+ ms +[\d.]+ GFLOP/s$"
    assert re.search(first, done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "no suite is named nonsense; there are peak, batchnorm"),
        (["--threads", "999"], "expected 1 to"),
        (["--clock", "cpu", "--threads", "2"], "--threads"),
        (["--rounds", "0"], "--rounds and --seconds are to be over 0"),
    ],
)
def test_bad_use_is_told(arguments, words):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_table_of_the_readme_gives_the_range_over_shapes():
    pytest.importorskip("PIL")
    tool = runpy.run_path(str(ROOT / "tools" / "speed.py"))
    rows = [("batchnorm", "training (8, 64, 104, 104)", "torch", 1.37), ("batchnorm", "training (64, 512, 13, 13)", "torch", 0.97)]
    rows += [("network", "yolov3, 416", "opencv", 2.0), ("original", "batchnorm training (8, 64, 104, 104)", "original", 12.4)]
    ratios = [dict(zip(("suite", "case", "contender", "value"), row, strict=True)) for row in rows]
    assert tool["_table"]([{"threads": 2, "ratios": ratios}, {"threads": 1, "ratios": ratios[:2]}]).splitlines() == [
        "| | PyTorch | OpenCV | original |",
        "|---|---|---|---|",
        "| batchnorm, training step | 0.97–1.37 / 0.97–1.37 |  | 12 / - |",  # noqa: RUF001
        "| yolov3, 416 |  | 2.0 / - |  |",
    ]


@pytest.mark.parametrize(("status", "why"), [(1, "it failed: KeyError: 'x'"), (LeftOut.STATUS, "KeyError: 'x'")])
def test_contender_that_fails_leaves_the_others(monkeypatch, status, why):
    def run(_: str, contender: str, __: Setting) -> subprocess.CompletedProcess[str]:
        if contender == "opencv":
            return subprocess.CompletedProcess([], status, "", "Traceback\nKeyError: 'x'\n")
        return subprocess.CompletedProcess([], 0, '{"stretch": {"ms": 2.0, "work": 0}}', "")

    monkeypatch.setattr(running, "_run", run)
    assert running.measured(["picture"], 2, SETTING, lambda _: None) == {
        "picture": {"cases": {"stretch": {"work": 0, "ms": {"ours": 2.0}}}, "missing": {"opencv": why}}
    }


def test_median_is_over_the_rounds(monkeypatch):
    answers = iter([3.0, 1.0, 8.0])

    def run(_: str, contender: str, __: Setting) -> subprocess.CompletedProcess[str]:
        ms = next(answers) if contender == "ours" else 1.0
        return subprocess.CompletedProcess([], 0, json.dumps({"stretch": {"ms": ms, "work": 0}}), "")

    monkeypatch.setattr(running, "_run", run)
    assert running.measured(["picture"], 3, SETTING, lambda _: None)["picture"]["cases"]["stretch"]["ms"]["ours"] == 3.0
