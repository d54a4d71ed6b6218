"""What an import brings in, and what it leaves for later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pydarknetbn

HEAVY = ("PIL", "typer", "click", "rich", "pydantic", "onnx", "onnxruntime", "torch", "difflib", "multiprocessing")
HERE = Path(__file__).parent  # a folder without a package, which would hide the installed one


def modules(code: str) -> set[str]:
    """The modules that a process has after some code, from its own last line."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_imports_nothing_heavy_and_little_of_its_own():
    found = modules("import pydarknetbn") - modules("import numpy")
    assert not found & set(HEAVY)
    own = {name.split(".")[1] for name in found if name.startswith("pydarknetbn.")}
    assert own == {"_core", "_native", "cpu", "errors"}


def test_a_forward_needs_neither_pillow_nor_the_command_line():
    code = """
import numpy, pydarknetbn
net = pydarknetbn.load(b"[net]\\nwidth=4\\nheight=4\\nchannels=1\\n[maxpool]\\n")
net.forward(numpy.ones((1, 1, 4, 4), numpy.float32), keep="heads")
"""
    assert not modules(code) & {"PIL", "typer", "rich", "pydarknetbn.folding", "pydarknetbn.image", "pydarknetbn.boxes"}


def test_info_needs_neither_pillow_nor_typers_parser():
    code = f"""
import sys
from pydarknetbn.cli import main
sys.argv = ["pydarknetbn", "info", {str(HERE.parent / "cfg" / "tiny-yolo.cfg")!r}]
main()
"""
    assert not modules(code) & {"PIL", "pydantic", "pydarknetbn.folding", "pydarknetbn.image", "pydarknetbn.cli.detect"}


def test_every_name_is_there_when_it_is_asked_for():
    for name in pydarknetbn.__all__:
        assert getattr(pydarknetbn, name) is not None
        assert name in dir(pydarknetbn)
    assert pydarknetbn.image.fit is not None
    namespace: dict[str, object] = {}
    exec("from pydarknetbn import *", namespace)
    assert namespace.keys() >= set(pydarknetbn.__all__)


@pytest.mark.parametrize("name", ["nothing", "_nothing", "__wrapped__", "lode"])
def test_a_name_that_is_not_there(name):
    assert not hasattr(pydarknetbn, name)
    with pytest.raises(AttributeError, match=f"module pydarknetbn has no {name}"):
        getattr(pydarknetbn, name)
