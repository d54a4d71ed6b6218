"""What the README says is so: its Python runs, its tables are the code's, its commands are there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from pydarknetbn.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOUND = re.findall(r"(<!-- torch -->\n)?```python\n(.*?)```", README, flags=re.DOTALL)
BLOCKS = [block for marked, block in FOUND if not marked]
WITH_TORCH = [block for marked, block in FOUND if marked]


def test_python_examples_run_and_print_what_is_shown(capsys):
    scope: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    shown = re.search(r"<!-- output -->\n```text\n(.*?)```", README, flags=re.DOTALL)
    assert shown
    assert printed == shown[1]


def test_examples_with_pytorch_run():
    pytest.importorskip("torch", reason="torch is not installed")
    assert WITH_TORCH
    scope: dict[str, object] = {}
    exec("import numpy as np\nimport pydarknetbn as dn\n", scope)
    for block in WITH_TORCH:
        exec(compile(block, "README.md", "exec"), scope)


def test_first_example_is_short():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 16


@pytest.mark.parametrize("name", ["batchnorms", "cancellation", "gradients", "half", "profiles", "sections", "stability"])
def test_part_from_the_code_is_up_to_date(name, monkeypatch):
    if name == "half":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes, of the extra half, is not installed")
    monkeypatch.syspath_prepend(ROOT / "tools")
    tables = runpy.run_path(str(ROOT / "tools" / "readme_tables.py"))
    part = tables["PARTS"][name]()
    assert f"<!-- {name} -->{part}<!-- /{name} -->" in README, "run python tools/readme_tables.py"


def test_every_verb_is_listed():
    listed = re.findall(r"^    pydarknetbn (\w+)", README, flags=re.MULTILINE)
    assert sorted(listed) == sorted(command.name for command in app.registered_commands)


def test_pictures_and_files_that_it_names_are_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
