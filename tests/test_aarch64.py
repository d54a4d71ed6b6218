"""The C core on AArch64, cross-compiled and run by an emulator: NEON gives the bits of the plain loops, and those of x86-64."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "bits" / "bits.c"
SYSTEM = Path("/usr/aarch64-linux-gnu")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
TOOLS = {
    "cmake": "cmake",
    "ninja": "ninja",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu with libc6-dev-arm64-cross",
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}
FUSED = {"fmadd", "fmsub", "fnmadd", "fnmsub", "fmla", "fmls"}
KERNELS = ["convolution", "batchnorm", "activations", "functions"]

pytestmark = pytest.mark.long


def call(*command: str | Path) -> str:
    done = subprocess.run(command, env=os.environ | {"PATH": PATH}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def built(folder: Path, compiler: str, *options: str) -> Path:
    """The program, with the core compiled as the package's own build does it."""
    python = (f"-DPython_EXECUTABLE={sys.executable}", f"-DPython_INCLUDE_DIR={sysconfig.get_path('include')}")
    call("cmake", "-G", "Ninja", "-S", ROOT / "c_src", "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *python, *options)
    call("cmake", "--build", folder, "--target", "core")
    objects = sorted(folder.rglob("*.c.o"))
    program = folder / "bits"
    flags = ("-O2", "-ffp-contract=off", "-I", ROOT / "c_src")
    call(compiler, *flags, PROGRAM, *objects, "-o", program, "-lm", "-lpthread")
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool, package in TOOLS.items():
        if not shutil.which(tool, path=PATH):
            pytest.skip(f"{tool} is not installed ({package})")
    emulator = f"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;{SYSTEM}"
    system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc")
    return built(tmp_path_factory.mktemp("aarch64"), "aarch64-linux-gnu-gcc", *system, emulator)


def emulated(program: Path) -> str:
    return call("qemu-aarch64", "-L", SYSTEM, program)


def sums(printed: str) -> dict[str, dict[str, str]]:
    """{variant: {kernel: sum}}; the program ends with 1 where a variant differs from the plain loops."""
    found: dict[str, dict[str, str]] = {}
    for line in printed.splitlines():
        variant, kernel, value = line.split()
        found.setdefault(variant, {})[kernel] = value
    return found


def test_neon_and_portable_loops_equal_the_plain_ones(program: Path) -> None:
    found = sums(emulated(program))
    assert list(found) == ["neon", "portable"]
    assert all(list(of_kernels) == KERNELS for of_kernels in found.values())
    assert found["neon"] == found["portable"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with x86-64, which this machine is not")
def test_the_bits_are_those_of_x86_64(program: Path, tmp_path: Path) -> None:
    here = sums(call(built(tmp_path / "here", "cc")))
    there = sums(emulated(program))
    assert all(of_kernels == there["neon"] for of_kernels in here.values())


def test_nothing_is_rounded_once_where_the_source_says_twice(program: Path) -> None:
    """GCC fuses products and sums on AArch64 unless it is told not to."""
    code = call("aarch64-linux-gnu-objdump", "--disassemble", "--no-show-raw-insn", program)
    assert "fmul" in code
    fused = [line for line in code.splitlines() if line.split("\t")[1:2] and line.split("\t")[1].strip() in FUSED]
    assert fused == []
