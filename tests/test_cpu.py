"""Which inner loops run, and how another choice is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pydarknetbn
from pydarknetbn.cpu import container_processors, cpu_variant, libm
from pydarknetbn.errors import UnsupportedError

HERE = Path(__file__).parent  # a folder without a package, which would hide the installed one


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_the_widest_variant_is_in_use_and_portable_runs_everywhere() -> None:
    done = python("import pydarknetbn; print(pydarknetbn.cpu_info())", PYDARKNETBN_CPU="")
    info = pydarknetbn.cpu_info()
    assert f"variant='{info.variants[0]}'" in done.stdout
    assert info.variants[-1] == "portable"
    needed = {"avx512": "avx512f", "avx2": "avx2", "neon": "neon"}
    assert all(needed[name] in info.features for name in info.variants[:-1])


def test_the_number_of_threads_is_that_of_the_calls() -> None:
    with pydarknetbn.num_threads(3):
        assert pydarknetbn.cpu_info().threads == 3


def test_the_environment_chooses() -> None:
    for name in pydarknetbn.cpu_info().variants:
        done = python("import pydarknetbn; print(pydarknetbn.cpu_info().variant)", PYDARKNETBN_CPU=name)
        assert done.stdout == f"{name}\n"


def test_an_unknown_variant_is_refused_with_those_there_are() -> None:
    done = python("import pydarknetbn", PYDARKNETBN_CPU="mmx")
    assert done.returncode == 1
    assert "UnsupportedError: PYDARKNETBN_CPU: expected one of " in done.stderr
    assert "portable, which run on this processor, got 'mmx'" in done.stderr


def test_a_block_ends_with_the_variant_from_before() -> None:
    before = pydarknetbn.cpu_info().variant
    with pytest.raises(UnsupportedError), cpu_variant("mmx"):
        raise AssertionError
    with cpu_variant("portable"):
        assert pydarknetbn.cpu_info().variant == "portable"
    assert pydarknetbn.cpu_info().variant == before


def test_own_functions_are_in_use_unless_the_environment_says_system() -> None:
    code = "import pydarknetbn; print(pydarknetbn.cpu_info().libm)"
    assert [python(code, PYDARKNETBN_LIBM=name).stdout for name in ("", "own", "system")] == ["own\n", "own\n", "system\n"]


def test_unknown_functions_are_refused_in_one_sentence() -> None:
    done = python("import pydarknetbn", PYDARKNETBN_LIBM="glibc")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "pydarknetbn.errors.UnsupportedError: PYDARKNETBN_LIBM: expected own (the package's exp, log and tanh) "
        "or system (the machine's), got 'glibc'"
    )


def test_a_block_ends_with_the_functions_from_before() -> None:
    before = pydarknetbn.cpu_info().libm
    with pytest.raises(UnsupportedError), libm("glibc"):
        raise AssertionError
    with libm("system"):
        assert pydarknetbn.cpu_info().libm == "system"
        with libm("own"):
            assert pydarknetbn.cpu_info().libm == "own"
        assert pydarknetbn.cpu_info().libm == "system"
    assert pydarknetbn.cpu_info().libm == before


# --- the number of threads ------------------------------------------------------------------------------------------------------

SHOW = "import pydarknetbn; print(pydarknetbn.cpu_info().threads)"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform does not bind processes to processors")
def test_threads_are_by_default_as_many_as_processors_that_the_process_may_use():
    least = container_processors() or 256
    assert python(SHOW).stdout == f"{min(least, len(os.sched_getaffinity(0)))}\n"
    one = min(os.sched_getaffinity(0))
    assert python(f"import os; os.sched_setaffinity(0, [{one}]); {SHOW}").stdout == "1\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"a/b/cpu.max": "100000 50000\n", "cpu.max": "max 100000\n"}, 2),
        ({"a/b/cpu.max": "max 100000\n", "cpu.max": "300000 100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu.max": "100000 0\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_limit_is_rounded_up_to_processors(tmp_path, files, expected):
    (tmp_path / "own").write_text("12:cpu:/x\n0::/a/b\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container_processors(tmp_path, tmp_path / "own") == expected
    assert container_processors(tmp_path / "none", tmp_path / "missing") is None
