"""The CUDA library built for the CPU: its own sources, with `emulated/cuda_runtime.h` in the place of CUDA's.

Kernels run block after block, their threads as fibers, so that what they compute is tested where there is no GPU. With
PYDARKNETBN_TEST_DEVICE=cuda the same tests run on a real one.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from pydarknetbn.cuda.library import Library, open_library

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "c_src" / "cuda"
# nvcc compiles with -fmad=false. Fields have the names of their types, which C allows and C++ compilers but nvcc's complain of.
FLAGS = "-std=c++17 -O1 -fPIC -shared -ffp-contract=off -fpermissive -w".split()


@functools.cache
def emulated_blas() -> Path:
    """A library with the part of cuBLAS's functions that are called; it computes on the host."""
    if on_real_device():
        pytest.skip("what stands for cuBLAS reads the emulated device, whose memory is the host's")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("needs a C compiler, which builds what stands for cuBLAS")
    target = Path(tempfile.mkdtemp(prefix="emulated-cublas-")) / "libcublas.so.13"
    command = [compiler, *"-O1 -fPIC -shared -ffp-contract=off".split(), str(TESTS / "emulated" / "cublas.c"), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return target


@functools.cache
def _built(compiler: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="emulated-cuda-"))
    target = folder / "libemulated.so"
    sources = [str(path) for path in sorted(SOURCES.rglob("*.cu"))]
    include = ["-I", str(TESTS / "emulated"), "-x", "c++"]
    subprocess.run(
        [compiler, *FLAGS, *include, *sources, "-ldl", "-o", str(target)], check=True, capture_output=True, text=True, timeout=600
    )
    return target


def on_real_device() -> bool:
    """Whether the tests of the CUDA library are to run on a GPU."""
    return os.environ.get("PYDARKNETBN_TEST_DEVICE", "") == "cuda"


def emulated_library() -> Library:
    """The library, built once for the process; the test is skipped where it cannot be. On a GPU that of the installation."""
    return open_library() if on_real_device() else built_library()


def built_library() -> Library:
    """The same, whatever the tests are to run on."""
    if not SOURCES.exists():
        pytest.skip("the source tree is not beside the tests")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("needs a C++ compiler, which builds the CUDA library for the CPU")
    try:
        return Library(_built(compiler))
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr[:4000]) from error
