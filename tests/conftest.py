"""Fixtures that every test may ask for. Nothing here runs by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pydarknetbn


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


@pytest.fixture(params=[1, 2], ids=["1thread", "2threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The test runs with one thread, then with two."""
    with pydarknetbn.num_threads(request.param):
        yield request.param
