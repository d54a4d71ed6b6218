"""Which inner loops run, and how another choice is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pydarknetbn
from pydarknetbn.cpu import cpu_variant
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
    assert ("avx2" in info.variants) <= ("avx2" in info.features)


def test_the_number_of_threads_is_that_of_the_calls() -> None:
    with pydarknetbn.num_threads(3):
        assert pydarknetbn.cpu_info().threads == 3


def test_the_environment_chooses() -> None:
    done = python("import pydarknetbn; print(pydarknetbn.cpu_info().variant)", PYDARKNETBN_CPU="portable")
    assert done.stdout == "portable\n"


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
