"""Fixtures that every test may ask for. Nothing here runs by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pydarknetbn
from emulating import emulated_library
from pydarknetbn import cpu
from pydarknetbn.cuda import library as cuda_library
from pydarknetbn.cuda.library import Library, open_library
from watching import Watched


def _folder(variable: str, holds: str) -> Path:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} does not name the folder of {holds}")
    return Path(folder)


@pytest.fixture
def golden() -> Path:
    """The whole folder of recorded numbers; its sample is in tests/golden."""
    return _folder("PYDARKNETBN_GOLDEN", "recorded numbers")


@pytest.fixture
def models() -> Path:
    """Real .cfg and .weights files."""
    return _folder("PYDARKNETBN_MODELS", "real models")


@pytest.fixture
def cfgs() -> Path:
    """The forks' own .cfg files."""
    return _folder("PYDARKNETBN_CFGS", "the forks' cfg files")


@pytest.fixture(scope="session")
def gpu() -> Library:
    """The CUDA library of the installation, where there is a device."""
    try:
        library = open_library()
        library.devices()
    except pydarknetbn.DeviceError as reason:
        pytest.skip(f"needs a GPU: {reason}")
    return library


@pytest.fixture(params=[1, 2], ids=["1thread", "2threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The test runs with one thread, then with two."""
    with pydarknetbn.num_threads(request.param):
        yield request.param


@pytest.fixture(params=["own", "system"])
def functions(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs with the package's own exp, log and tanh, then with the machine's.

    With those the recorded bits are demanded where libm is the recorder's; the own ones stay within the limit of another libm.
    """
    with cpu.libm(request.param):
        yield request.param


@pytest.fixture
def system_functions() -> Iterator[None]:
    """The test runs with the machine's exp, log and tanh alone: it demands the bits of a recording."""
    with cpu.libm("system"):
        yield


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The CUDA library on the CPU, opened in the place of the installation's, with its calls counted."""
    watched = Watched(emulated_library())
    monkeypatch.setattr(cuda_library, "open_library", lambda: watched)
    return watched
