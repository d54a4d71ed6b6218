"""The profiles beside the frameworks' own batchnorms: what these gave is in parity.json, and the long tests run them again."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pydarknetbn.dialect import profiles

ROOT = Path(__file__).parent.parent
RECORD = json.loads((ROOT / "tests" / "parity.json").read_text())
ROUNDING = 1e-6  # relative to the largest value; the order of a framework's sums is the machine's

# Which records are of a profile's own framework, and by how many values in a channel there is one.
OWN = {
    "torch": ["torch"],
    "keras": ["keras", "keras over torch"],
    "flax": ["flax"],
    "onnx-9": ["onnx-9"],
    "onnx-14": ["onnx-14", "onnx-15"],
    "burn": ["burn"],
}
PAIRS = [(profile, framework) for profile, frameworks in OWN.items() for framework in frameworks]
SIZES = (4, 64)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import parity_table

    return parity_table


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import parity

    return parity


def values(framework: str, n: int, name: str) -> np.ndarray:
    return np.array(RECORD[framework][str(n)][name])


# --- the record -----------------------------------------------------------------------------------------------------------------


def test_each_record_names_the_versions_that_ran():
    assert {name: record["versions"].split()[0] for name, record in RECORD.items() if name != "burn"} == {
        "torch": "torch",
        "keras": "keras",
        "keras over torch": "keras",
        "flax": "flax",
        "onnx-9": "onnxruntime",
        "onnx-14": "onnxruntime",
        "onnx-15": "onnxruntime",
    }
    assert RECORD["burn"]["versions"].startswith("not run")


# Of the published comparison, rounded to six decimals there.
PUBLISHED = [
    ("torch", 4, [2.427054, 2.618560, 2.339880]),
    ("torch", 64, [1.902050, 1.903964, 1.911320]),
    ("burn", 4, [1.850685, 1.994315, 1.785304]),
]


@pytest.mark.parametrize(("framework", "n", "want"), PUBLISHED)
def test_rolling_variance_is_the_published_one(framework, n, want):
    np.testing.assert_allclose(values(framework, n, "rolling variance"), want, rtol=0, atol=6e-7)


@pytest.mark.parametrize("name", ["torch", "keras", "keras over torch", "flax"])
def test_frameworks_with_a_backward_have_every_quantity(name, tool):
    for n in SIZES:
        assert tuple(RECORD[name][str(n)]) == tool.QUANTITIES


@pytest.mark.parametrize("name", ["onnx-9", "onnx-14", "onnx-15"])
def test_onnxruntime_has_no_gradients(name, tool):
    for n in SIZES:
        assert list(RECORD[name][str(n)]) == [quantity for quantity in tool.QUANTITIES if "gradient" not in quantity]


# --- what is known of the differences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("biased", ["onnx-9", "onnx-14", "onnx-15"])
def test_torch_keeps_n_over_n_minus_1_times_the_variance_of_onnxruntime(biased, n):
    started = 0.9**20  # what is left of the variance of 1 that both began with
    kept = values("torch", n, "rolling variance") - started
    np.testing.assert_allclose(kept, (values(biased, n, "rolling variance") - started) * n / (n - 1), rtol=ROUNDING)


def test_torch_keeps_n_over_n_minus_1_times_the_variance_of_burn():
    started = 0.9**20
    kept = values("torch", 4, "rolling variance") - started
    np.testing.assert_allclose(kept, (values("burn", 4, "rolling variance") - started) * 4 / 3, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_keras_and_flax_differ_by_the_epsilon_of_keras_alone(n, tool):
    for name in ("rolling mean", "rolling variance"):
        np.testing.assert_allclose(values("keras", n, name), values("flax", n, name), rtol=ROUNDING)
    shape = tool.LAYOUTS[n]
    biases = np.array([0.25, 0, -1])[:, np.newaxis, np.newaxis]
    keras, flax = (values(name, n, "output").reshape(shape) - biases for name in ("keras", "flax"))
    variance = tool.batch(19, n).astype(np.float64).var((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(keras, flax * np.sqrt((variance + 1e-5) / (variance + 1e-3)), atol=2 * ROUNDING)


# --- the profiles ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "framework"), PAIRS)
def test_profile_is_its_framework_but_for_rounding(profile, framework, table):
    found = {(n, name): off for n in SIZES for name, off in table.distances(profile, framework, n).items()}
    quantities = sum(len(RECORD[framework].get(str(n), {})) for n in SIZES)
    assert len(found) == quantities
    assert max(found.values()) <= ROUNDING, found


def test_profiles_that_were_run_are_those_with_a_record():
    ran = {profile.name for profile in profiles() if profile.evidence == "run"}
    assert ran == OWN.keys() - {"burn"}


def test_large_mean_is_lost_where_the_variance_is_a_difference_of_squares():
    assert RECORD["flax"]["far from zero"] > 1
    assert RECORD["keras over torch"]["far from zero"] is None
    assert max(RECORD[name]["far from zero"] for name in ("torch", "keras", "onnx-14")) < 0.2


@pytest.mark.parametrize("name", ["parity", "quantities", "far from zero"])
def test_readme_has_the_table_of_the_record(name, table):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- {name} -->{table.PARTS[name]()}<!-- /{name} -->" in readme, "run python tools/readme_tables.py"


def test_readme_names_the_versions_in_the_headings(table):
    assert table.headings()[:4] == [
        f"{shown} {RECORD[name]['versions'].split()[1].split('+')[0]}"
        for shown, name in [("PyTorch", "torch"), ("Keras", "keras"), ("flax", "flax"), ("onnxruntime", "onnx-9")]
    ]


# --- the frameworks themselves --------------------------------------------------------------------------------------------------


@pytest.fixture
def framework(request, tool):
    """A name of a record. Importing Keras here would need a backend chosen before, so it is only looked for."""
    for package in tool.PACKAGES[request.param]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return request.param


LIVE = [pair for pair in PAIRS if pair[1] != "burn"]


@pytest.mark.long
@pytest.mark.parametrize(("profile", "framework"), LIVE, indirect=["framework"])
def test_framework_as_installed_is_its_profile_and_its_record(profile, framework, tool, table):
    ran = tool.run_apart(framework)
    for n in SIZES:
        theirs = {name: np.array(array, np.float32) for name, array in ran[str(n)].items()}
        assert theirs.keys() == RECORD[framework][str(n)].keys()
        ours = {name: array.ravel() for name, array in tool.run(table.Ours(tool.state(), profile), n).items()}
        assert max(tool.compared(ours, theirs).values()) <= ROUNDING
        assert max(tool.compared(table.recorded(framework, n), theirs).values()) <= ROUNDING
