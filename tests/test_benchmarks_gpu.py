"""The script for a machine with a GPU, as far as a machine without one can run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emulating import built_library

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").exists():
    pytest.skip("the source tree is not beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # behind the installed package

from benchmarks import gpu, gpu_work  # noqa: E402
from benchmarks.gpu_machine import Machine  # noqa: E402


def python(name: str, code: str, seconds: float = 30) -> gpu.Step:
    return gpu.Step(name, seconds, (sys.executable, "-c", code))


@pytest.mark.parametrize(
    ("code", "status", "rest"),
    [
        ("print('words'); print('{\"a\": 1}')", "done", {"figures": {"a": 1}}),
        ("print('3 passed in 2 s')", "done", {"said": "3 passed in 2 s\n"}),
        ("print('{\"a\": 1}'); print('it broke'); raise SystemExit(9)", "failed", {"said": '{"a": 1}\nit broke\n'}),
        ("print('needs more'); raise SystemExit(3)", "left out", {"said": "needs more\n"}),
        ("import sys, time; print('begun'); sys.stdout.flush(); time.sleep(60)", "timed out", {"said": "begun\n"}),
    ],
)
def test_a_step_tells_how_it_ended(code: str, status: str, rest: dict[str, Any]) -> None:
    result = gpu.run_step(python("a", code, 2 if status == "timed out" else 30), 100)
    assert result.pop("seconds") < 30
    assert result == {"status": status, **rest}


def test_a_program_that_is_not_there_fails_its_step_alone() -> None:
    result = gpu.run_step(gpu.Step("racecheck", 5, ("/no/such/compute-sanitizer",)), 100)
    assert (result["status"], "No such file" in result["said"]) == ("failed", True)


def test_a_step_that_fails_leaves_the_others_and_the_file_holds_all(tmp_path: Path) -> None:
    chosen = [python("first", "raise SystemExit(1)"), python("second", "print('{\"x\": 2}')")]
    gpu.run(chosen, tmp_path / "out.json", budget=60, emulated=False)
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [(name, each["status"]) for name, each in written["steps"].items()] == [("first", "failed"), ("second", "done")]
    assert written.keys() == {"machine", "emulated", "budget", "steps", "seconds", "targets"}


def test_what_the_budget_does_not_hold_is_cut_or_left_out(tmp_path: Path) -> None:
    chosen = [python("long", "import time; time.sleep(60)"), python("late", "print(1)")]
    steps = gpu.run(chosen, tmp_path / "out.json", budget=1, emulated=False)["steps"]
    assert [each["status"] for each in steps.values()] == ["timed out", "left out"]


def test_targets_are_of_float32_and_of_bits() -> None:
    case = {"pass": "training", "dtype": "float32", "shape": [64, 256, 56, 56], "ms": 2.0, "share_of_copy": 0.75, "torch_ms": 1.5}
    other = {"pass": "inference", "dtype": "float32", "shape": [1, 2], "ms": 1.0, "share_of_copy": 0.79, "torch_ms": None}
    figures = {"cases": [case, other, case | {"dtype": "float16"}], "strict": [{"profile": "p", "equal": False}]}
    networks = {"cases": [{"network": "n", "math": "exact", "said": "no memory"}, {"network": "n", "math": "fast", "equal": False}]}
    done = {"batchnorm": {"figures": figures}, "networks": {"figures": networks}}
    assert [(each["value"], each["limit"], each["reached"]) for each in gpu.targets(done)] == [
        (0.75, 0.7, True),
        (0.75, 1.0, False),
        (0.79, 0.8, False),
        (0.0, 1.0, False),
        (0.0, 1.0, False),
    ]
    assert gpu.targets({}) == []


def test_steps_of_a_gpu_build_for_it_and_test_on_it() -> None:
    steps = {step.name: step for step in gpu.steps("90")}
    assert list(steps)[:3] == ["build", "batchnorm", "test_gpu_batchnorm.py"]
    assert list(steps)[-4:] == ["memcheck", "racecheck", "networks", "ranks"]
    assert "cmake.define.CMAKE_CUDA_ARCHITECTURES=90-real" in steps["build"].command
    assert steps["test_cuda_batchnorm.py"].environment == {"PYDARKNETBN_TEST_DEVICE": "cuda"}
    assert steps["test_cuda_batchnorm.py"].command[-1] == "tests/test_cuda_batchnorm.py"
    assert steps["racecheck"].command[1:5] == ("--tool", "racecheck", "--error-exitcode", "9")


def test_without_a_gpu_it_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "capability", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match="no GPU: the CUDA driver is not installed or has no device"):
        gpu.main()
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--only", "nonsense"], "no step is named nonsense"), (["--budget", "0"], "over 0")]
)
def test_bad_use_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--emulated", *arguments])
    with pytest.raises(SystemExit):
        gpu.main()
    assert words in capsys.readouterr().err


def test_what_is_measured_is_measured_on_the_emulation_too() -> None:
    figures = gpu_work.batchnorm(Machine(built_library(), None, True))
    assert [each["equal"] for each in figures["strict"]] == [True, True]
    (case,) = (each for each in figures["cases"] if (each["pass"], each["dtype"], each["shape"][0]) == ("training", "float32", 2))
    assert (case["bytes"], case["torch_ms"]) == (8 * 2 * 3 * 4 * 4 * 4, None)
    assert case["share_of_copy"] == pytest.approx(case["bytes"] / case["ms"] * 1e3 / figures["copy_bytes_per_second"])


def test_the_program_for_sanitizers_runs_every_kernel_of_batch_normalization() -> None:
    assert gpu_work.program(Machine(built_library(), None, True)) == {"passes": 60, "networks": 0}


@pytest.mark.long
def test_the_emulated_run_writes_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--emulated", "--out", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert not ended.value.code
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [each["status"] for each in written["steps"].values()] == ["done", "done"]
