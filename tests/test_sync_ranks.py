"""Several ranks give what one process gives on the joined batch: as threads, under mpiexec, under torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import pydarknetbn as dn
from pydarknetbn import sync
from ranks.checks import CUTS, PROFILES, check_against_torch, check_batchnorm, check_network
from ranks.threads import results_in_threads

PROGRAM, LATE = (Path(__file__).parent / "ranks" / name for name in ("run.py", "late.py"))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("profile", PROFILES)
def test_four_threads_are_one_process_on_the_joined_batch(profile: str, cut: Sequence[int], order: Sequence[int]) -> None:
    results_in_threads(sync.local(4, timeout=20), lambda comm: check_batchnorm(comm, profile, cut, order))


@pytest.mark.parametrize("profile", sorted({profile.name for profile in dn.profiles()} - {*PROFILES}))
def test_so_they_are_in_every_other_profile(profile: str) -> None:
    results_in_threads(sync.local(4, timeout=20), lambda comm: check_batchnorm(comm, profile, CUTS[1], range(4)))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("profile", PROFILES)
def test_steps_of_a_network_are_those_of_one_process_on_the_joined_batch(profile: str, cut: Sequence[int]) -> None:
    results_in_threads(sync.local(4, timeout=20), lambda comm: check_network(comm, profile, cut))


@pytest.mark.parametrize("cut", CUTS)
def test_four_threads_are_a_module_of_pytorch_on_the_joined_batch(cut: Sequence[int]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    results_in_threads(sync.local(4, timeout=20), lambda comm: check_against_torch(comm, cut))


def _run(*command: str) -> str:
    """What the program's ranks say."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command], capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ALL_ARE_RIGHT = [f"rank {rank} of 4 is right" for rank in range(4)]


@pytest.fixture
def mpiexec() -> str:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    program = Path(sys.executable).parent / "mpiexec"
    if not program.exists():
        pytest.skip("mpich is not installed beside this Python")
    return str(program)


@pytest.fixture
def torchrun() -> tuple[str, ...]:
    pytest.importorskip("torch", reason="torch is not installed")
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def test_four_processes_of_mpiexec_are_one_on_the_joined_batch(mpiexec: str) -> None:
    said = _run(mpiexec, "-n", "4", sys.executable, str(PROGRAM), "mpi")
    assert sorted(re.findall("rank . of 4 is right", said)) == ALL_ARE_RIGHT


@pytest.mark.long
def test_four_processes_of_torchrun_are_one_on_the_joined_batch(torchrun: tuple[str, ...]) -> None:
    said = _run(*torchrun, "4", str(PROGRAM), "torch")
    assert sorted(re.findall("rank . of 4 is right", said)) == ALL_ARE_RIGHT


@pytest.mark.long
def test_a_process_of_mpiexec_that_comes_too_late_is_told_by_the_layer(mpiexec: str) -> None:
    said = _run(mpiexec, "-n", "2", sys.executable, str(LATE), "mpi")
    assert said == "rank 0: <bytes>:5: layer 0 [batchnorm]: rank 0 of 2 waited for the others for 1 seconds\n"


@pytest.mark.long
def test_a_process_of_torchrun_that_comes_too_late_is_told_by_the_layer(torchrun: tuple[str, ...]) -> None:
    said = _run(*torchrun, "2", str(LATE), "torch")
    assert said.startswith("rank 0: <bytes>:5: layer 0 [batchnorm]: rank 0 of 2: all_gather of torch.distributed failed: ")
