"""The house rules that a machine can check: sizes, floors, where fork names and epsilons may stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pydarknetbn

ROOT = Path(__file__).parent.parent
PACKAGE = Path(pydarknetbn.__file__).parent
C_SRC = ROOT / "c_src"
PYTHON = sorted(PACKAGE.rglob("*.py"))
C_FILES = sorted(path for path in C_SRC.rglob("*") if path.suffix in (".c", ".h", ".cu", ".cuh"))
TABLE = [path for path in PYTHON if path.is_relative_to(PACKAGE / "dialect")]
FILE_LINES, FUNCTION_LINES = 300, 40
FORKS = re.compile(r"pjreddie|alexeyab|hank.?ai", re.IGNORECASE)
# Defaults that the public surface names: file, function, argument.
DEFAULTS = {("layer.py", "__init__", "profile"), ("cfg.py", "read_cfg", "dialect")}
# Numbers this small are epsilons, which belong to the table of profiles.
SMALL = 1e-3
# What a shortcut adds to the sum of its weights, and normalize_channels to that of its channels: the same in both forks.
C_EPSILONS = {("shortcut_weights.h", "0.0001F"), ("curves.h", "0.0001F")}

# A module imports from lower floors, or from its own without a circle.
FLOORS = {
    0: {"contents", "dialect", "errors", "extras", "files", "npz"},
    1: {"options", "cfg", "programs", "rewriting", "trees"},
    3: {"_native", "exchanging"},
    4: {"_reading", "bn", "boxes", "cpu", "detections", "draw", "image", "layers", "sync"},
    5: {"building", "calibration", "cuda", "detecting", "devices", "loading", "network", "recurrence", "running", "training"}
    | {"variances", "weights"},
    6: {"checking", "convert", "differing", "doctor", "folding", "linting"},
    7: {"dumping", "golden", "testing"},
    8: {"cli"},
    9: {"__main__"},
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names}

pytestmark = pytest.mark.skipif(not C_SRC.exists(), reason="the source tree is not beside the tests")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else C_SRC))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def without_comments(text: str) -> str:
    """C text with comments, strings and characters blanked, line ends kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def c_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function and how many lines it has, from its first line to its closing brace."""
    text = without_comments(path.read_text(encoding="utf-8"))
    depth = start = opened = 0
    for at, character in enumerate(text):
        if character == "{":
            if depth == 0:
                opened = at
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                head = text[start:opened]
                found = re.search(r"(\w+)\s*\([^;{}]*\)\s*$", head)
                if found:
                    yield found[1], text[start + len(head) - len(head.lstrip()) : at].count("\n") + 1
        if depth == 0 and character in ";}":
            start = at + 1
        elif depth == 0 and character == "\n" and text[start:at].lstrip().startswith("#"):
            start = at + 1  # a preprocessor line has no end of its own


# --- sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in (*PYTHON, *C_FILES) if path.name != "darknetbn.h"], ids=name_of)
def test_files_are_under_300_lines(path: Path) -> None:
    """But for the header, which is one file however long the contract is."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < FILE_LINES


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_python_functions_are_under_40_lines_of_code(path: Path) -> None:
    """A docstring is no code."""
    long = {}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            described = ast.get_docstring(node) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if described else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
            if lines >= FUNCTION_LINES:
                long[node.name] = lines
    assert not long


@pytest.mark.parametrize("path", C_FILES, ids=name_of)
def test_c_functions_are_under_40_lines(path: Path) -> None:
    assert not {name: lines for name, lines in c_functions(path) if lines >= FUNCTION_LINES}


def test_the_scanner_sees_c_functions() -> None:
    found = dict(c_functions(C_SRC / "kernels" / "convolution.c"))
    assert {"pixel", "convolve_plain", "convolve_image", "convolve", "convolve_scratch"} <= found.keys()
    assert found["convolve_scratch"] == 5
    assert "activated" in dict(c_functions(C_SRC / "kernels" / "curves.h"))


# --- floors -------------------------------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    """The top-level module or subpackage that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield from run_time_nodes(other)
            continue
        yield child
        yield from run_time_nodes(child)


def imports(path: Path) -> set[str]:
    """Top-level modules of the package that a file imports, also within functions."""
    package = ["pydarknetbn", *path.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    for node in run_time_nodes(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "pydarknetbn" and len(name) > 1}
    return found - {module_of(path)}


MODULES = {module_of(path) for path in PYTHON} - {"__init__", "__main__"}
GRAPH = {
    module: {name for path in PYTHON if module_of(path) == module for name in imports(path) if name in MODULES}
    for module in sorted(MODULES)
}


def test_every_module_has_a_floor() -> None:
    assert FLOOR_OF.keys() >= MODULES, "give the new module a floor in FLOORS"


@pytest.mark.parametrize("module", sorted(MODULES & FLOOR_OF.keys()))
def test_a_module_imports_nothing_above_it(module: str) -> None:
    above = {name for name in GRAPH[module] if FLOOR_OF.get(name, 9) > FLOOR_OF[module]}
    assert not above, f"{module} stands on floor {FLOOR_OF[module]}"


def test_imports_go_in_no_circle() -> None:
    left = dict(GRAPH)
    while left:
        free = [module for module, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for module in free:
            del left[module]


def test_one_module_imports_the_compiled_core() -> None:
    assert [name_of(path) for path in PYTHON if "_core" in imports(path)] == ["_native.py"]


# --- names and numbers --------------------------------------------------------------------------------------------------


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the constants that are statements of their own: docstrings, also those of attributes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def allowed_defaults(path: Path, tree: ast.Module) -> set[int]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if default is not None and (path.name, node.name, argument.arg) in DEFAULTS:
                    found.add(id(default))
    return found


@pytest.mark.parametrize("path", [path for path in PYTHON if path not in TABLE], ids=name_of)
def test_forks_are_named_in_the_table_alone(path: Path) -> None:
    tree = parsed(path)
    exempt = docstrings(tree) | allowed_defaults(path, tree)
    named = [
        f"line {node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exempt
        if FORKS.search(node.value)
    ]
    assert not named


@pytest.mark.parametrize("path", [path for path in PYTHON if path not in TABLE], ids=name_of)
def test_epsilons_stand_in_the_table_alone(path: Path) -> None:
    small = [
        f"line {node.lineno}: {node.value}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < abs(node.value) < SMALL
    ]
    assert not small


@pytest.mark.parametrize("path", C_FILES, ids=name_of)
def test_the_core_names_no_fork_outside_comments_and_holds_no_epsilon(path: Path) -> None:
    text = without_comments(path.read_text(encoding="utf-8"))
    assert not FORKS.search(text)
    literals = re.findall(r"(?<![\w.])(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|(?<![\w.])\d+[eE][+-]?\d+[fF]?", text)
    small = {literal for literal in literals if 0 < float(literal.rstrip("fF")) < SMALL}
    assert {(path.name, literal) for literal in small} <= C_EPSILONS


def test_the_table_holds_the_epsilons() -> None:
    constants = [node.value for path in TABLE for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)]
    assert {1e-5, 1e-6} <= {value for value in constants if isinstance(value, float)}


# --- the core -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((C_SRC / "kernels").glob("*.c")), ids=name_of)
def test_kernels_allocate_nothing(path: Path) -> None:
    """But for the scratch of the merge sort of detections."""
    text = without_comments(path.read_text(encoding="utf-8"))
    allocates = re.search(r"\b(?:malloc|calloc|realloc|aligned_alloc|make_array|ensure_array)\b", text)
    assert bool(allocates) == (path.name == "nms.c")


def test_one_header_is_the_contract_of_each_library() -> None:
    marked = {path.name for path in C_FILES if "/* cdef begin */" in path.read_text(encoding="utf-8")}
    contracts = [(C_SRC / name).read_text(encoding="utf-8") for name in ("darknetbn.h", "cuda/darknetbn_cuda.h")]
    parts = "".join(text.split("/* cdef begin */")[1].split("/* cdef end */")[0] for text in contracts)
    included = re.findall(r'#include "(?:\.\./)?(.+)"', parts)
    assert marked == {"darknetbn.h", "darknetbn_cuda.h", *included}


@pytest.mark.parametrize("path", C_FILES, ids=name_of)
def test_the_core_neither_prints_nor_ends_the_process(path: Path) -> None:
    text = without_comments(path.read_text(encoding="utf-8"))
    assert not re.search(r"\b(?:printf|fprintf|puts|perror|exit|abort|assert)\s*\(", text)


def test_no_flag_lets_the_compiler_change_a_rounding() -> None:
    build = (C_SRC / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "-ffp-contract=off" in build
    for flag in ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-march=native"):
        assert flag not in build, flag
