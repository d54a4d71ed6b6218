"""The package's own exp, log, tanh and cubes against wider arithmetic, and how the system's are chosen."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import libm
from pydarknetbn import _native, cpu
from pydarknetbn._native import Array, ffi, lib

FUNCTIONS = {"exp": lib.ELEMENTARY_EXP, "log": lib.ELEMENTARY_LOG, "tanh": lib.ELEMENTARY_TANH, "cube": lib.ELEMENTARY_CUBE}
DEFINITIONS: dict[str, Any] = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "cube": lambda x: x * x * x}
# Every 4,001st of all 2^32 floats, of both signs, subnormal, infinite and NaN.
SAMPLE = np.arange(0, 2**32, 4001, dtype=np.uint32).view(np.float32)


def floats(name: str, x: Array, functions: str = "own") -> Array:
    out = np.empty_like(x)
    with cpu.libm(functions):
        lib.elementary_floats(FUNCTIONS[name], _native.floats(x), x.size, _native.floats(out))
    return out


def doubles(name: str, x: NDArray[np.float64], functions: str = "own") -> NDArray[np.float64]:
    out = np.empty_like(x)
    with cpu.libm(functions):
        lib.elementary_doubles(FUNCTIONS[name], ffi.from_buffer("double[]", x), x.size, ffi.from_buffer("double[]", out))
    return out


def steps(got: Array, want: Array) -> NDArray[np.int64]:
    """How many floats lie between them; NaN beside NaN 0."""
    both = [np.where(np.isnan(a), np.float32(np.nan), a).view(np.int32).astype(np.int64) for a in (got, want)]
    ordered = [np.where(b < 0, -(b & 0x7FFFFFFF), b) for b in both]
    return np.abs(ordered[0] - ordered[1])


# --- floats ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_are_the_definition_in_double_rounded_once(name: str) -> None:
    """At most one float beside it, and that for 1 in 10,000 at most: where the definition lies between two floats."""
    want = DEFINITIONS[name](SAMPLE.astype(np.float64)).astype(np.float32)
    off = steps(floats(name, SAMPLE), want)
    assert off.max() <= 1
    assert np.count_nonzero(off) <= 1e-4 * SAMPLE.size


DIFFERENT = {"exp": 170_741, "log": 416_903, "cube": 955_682, "tanh": 118_674_314}  # of all 2^32, as elementary.h says


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_this_share_of_all_floats_is_not_the_recorders(name: str) -> None:
    """Of 17 million of them, so that 700 and more are expected, with a standard deviation of 4 % or less: 12 % is three of it."""
    if not libm.systems_is_the_recorders():
        pytest.skip("this libm is not the recorder's")
    x = np.arange(0, 2**32, 257, dtype=np.uint32).view(np.float32)
    off = steps(floats(name, x), floats(name, x, "system"))
    assert np.count_nonzero(off) / x.size == pytest.approx(DIFFERENT[name] / 2**32, rel=0.12)
    assert off.max() == (2 if name == "tanh" else 1)


INF, NAN = np.inf, np.nan
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [
        (0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (88.72283, 3.4027985e38), (88.72284, INF), (3e38, INF),
        (-103.97207, 1e-45), (-103.9721, 0), (-3e38, 0), (-88, 6.0546e-39), (1e-40, 1),
    ],
    "log": [
        (1, 0), (0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1e-45, NAN), (NAN, NAN), (1e-45, -103.27893), (1e38, 87.49823),
    ],
    "tanh": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (30, 1), (-9.5, -1), (1e-45, 1e-45), (-1e-40, -1e-40)],
    "cube": [(-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e13, INF), (1e-15, 1e-45), (-3, -27), (1e-16, 0)],
}  # fmt: skip


@pytest.mark.parametrize("functions", ["own", "system"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_floats(name: str, functions: str) -> None:
    x, want = np.array(SPECIAL[name], np.float32).T.copy()
    got = floats(name, x, functions)
    assert steps(got, want).max() <= 1  # decimals of nine digits
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


DIGESTS = {"exp": "47d78a92f148afe2", "log": "1359bdd3ae3776bf", "tanh": "b5e6efac67407737", "cube": "0db30eb7abee8c5c"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_own_functions_have_these_bits_on_every_machine(name: str) -> None:
    results = floats(name, SAMPLE)
    digest = hashlib.sha256(np.where(np.isnan(results), np.float32(7), results).astype("<f4").tobytes())
    if name != "log":
        digest.update(doubles(name, np.arange(-30_000, 30_000) / 1000).astype("<f8").tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[name]


# --- doubles --------------------------------------------------------------------------------------------------------------------


def arguments(count: int) -> NDArray[np.float64]:
    """Of all sizes, most where the results are neither 0, 1 nor infinite."""
    rng = np.random.default_rng(0)
    even = [rng.uniform(-limit, limit, count) for limit in (0.5, 1, 5, 25, 700)]
    return np.concatenate([*even, rng.uniform(-1, 1, count) * 2.0 ** -rng.integers(0, 1070, count)])


@pytest.mark.parametrize("name", ["exp", "tanh", "cube"])
@pytest.mark.parametrize("count", [50_000, pytest.param(3_000_000, marks=pytest.mark.long)])
def test_doubles_are_within_one_unit_in_the_last_place(name: str, count: int) -> None:
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is no wider than double here")
    x = arguments(count)
    if name == "cube":
        x = x.astype(np.float32).astype(np.float64)  # what a float can be
    want = DEFINITIONS[name](x.astype(np.longdouble))
    off = np.abs(doubles(name, x) - want) / np.spacing(np.abs(want.astype(np.float64)))
    assert off.max() < {"exp": 0.9, "tanh": 0.9, "cube": 0.501}[name]


@pytest.mark.parametrize("functions", ["own", "system"])
def test_special_doubles(functions: str) -> None:
    x = np.array(
        [0, -0.0, INF, -INF, NAN, 709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412, 1e300, -1e300]
    )
    want = [1, 1, INF, 0, NAN, 1.7976931348622732e308, INF, 5e-324, 0, INF, 0]
    assert doubles("exp", x, functions).tolist() == pytest.approx(want, rel=1e-15, abs=0, nan_ok=True)
    x = np.array([0, -0.0, INF, -INF, NAN, 22, -1e300, 5e-324, -1e-310])
    got = doubles("tanh", x, functions)
    assert got.tolist() == pytest.approx([0, 0, 1, -1, NAN, 1, -1, 5e-324, -1e-310], rel=1e-16, abs=0, nan_ok=True)
    assert np.signbit(got[:2]).tolist() == [False, True]


# --- the system's ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "cube"])
def test_system_calls_the_machines_functions(name: str) -> None:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    x = (libm.PROBES if name != "cube" else libm.PROBES[:300])[::7]
    for code, kind, run in (("f", ctypes.c_float, floats), ("", ctypes.c_double, doubles)):
        if name == "log" and not code:
            continue
        function = getattr(library, ("pow" if name == "cube" else name) + code)
        function.restype, function.argtypes = kind, [kind] * (2 if name == "cube" else 1)
        values = np.array(x, np.float32 if code else np.float64)
        want = [function(value, 3) if name == "cube" else function(value) for value in values.tolist()]
        assert run(name, values, "system").tolist() == want  # type: ignore[operator]
