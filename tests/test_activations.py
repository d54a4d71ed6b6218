"""Activations against recorded arrays and values worked out by hand, and the fields of the arithmetic rule."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from core import LIBM, assert_activated, assert_same_bits, same_bits
from pydarknetbn import _native
from pydarknetbn._native import Array, lib
from pydarknetbn.dialect import ACTIVATIONS, PROFILES, ArithmeticRule

SAMPLE = Path(__file__).parent / "golden" / "layers"
RULE = PROFILES["alexeyab-cpu"].layers.arithmetic
# What the recorder's activate_array and its variant for convolutional layers are called, and whether it is the latter.
VARIANTS = {"y": False, "y_conv": True}
OVER_CHANNELS = {"normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval"}
# In a convolutional layer these have code of their own, and that is what was recorded.
OWN_CODE = ("swish", "mish", "hard_mish")


def activate(x: Array, name: str, rule: ArithmeticRule, *, host: bool = False) -> Array:
    result = np.ascontiguousarray(x, np.float32).copy()
    struct = _native.rule("arithmetic_rule", rule)
    lib.activate_array(_native.floats(result), result.size, _native.enum("activation", name), struct, host)
    return result


def recorded_arrays() -> list[tuple[str, str, str]]:
    found = []
    for profile in ("pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"):
        with np.load(SAMPLE / f"activations_{profile}.npz") as arrays:
            for key in arrays:
                name, _, variant = key.partition(".")
                zero = name == "relu6" and profile == "alexeyab-cpu"
                if name in ACTIVATIONS and variant in VARIANTS and not zero:
                    found.append((profile, name, variant))
    return found


@pytest.mark.parametrize(("profile", "name", "variant"), recorded_arrays())
def test_recorded_values(profile: str, name: str, variant: str, threads: int, functions: str) -> None:
    with np.load(SAMPLE / f"activations_{profile}.npz") as arrays:
        x, want = arrays["x"], arrays[f"{name}.{variant}"]
    host = VARIANTS[variant] or name in OWN_CODE
    got = activate(x, name, PROFILES[profile].layers.arithmetic, host=host)
    assert_activated(got, want, x, name, f"{profile} {name}.{variant}")


def test_every_activation_is_recorded() -> None:
    """Those over channels with a convolution, and in layers/conv_ab_options."""
    assert {name for _, name, _ in recorded_arrays()} == ACTIVATIONS - OVER_CHANNELS
    assert len(ACTIVATIONS) == 23
    assert set(ACTIVATIONS) == {name.replace(" ", "_") for name in _native.choices("activation")}


def test_the_comparison_allows_a_libm_its_last_bits_and_nothing_else() -> None:
    x = np.array([-8, -0.5, 3, np.inf], np.float32)
    want = np.array([-2e-3, -0.2, 2.9, np.inf], np.float32)
    near, far = want + np.float32(4e-7), want + np.float32(5e-6)
    assert_activated(near, want, x, "mish", "near", strict=False)
    with pytest.raises(AssertionError):
        assert_activated(near, want, x, "mish", "near", strict=True)
    for got, name in ((near, "relu"), (far, "mish"), (near, "logistic"), (np.abs(want), "mish"), (-want, "mish")):
        with pytest.raises(AssertionError):
            assert_activated(got, want, x, name, "other", strict=False)
    other = want.copy()
    other[3] = np.nan
    with pytest.raises(AssertionError):
        assert_activated(other, want, x, "mish", "not finite", strict=False)


def test_sample_is_that_of_the_whole_folder(golden: Path) -> None:
    for path in SAMPLE.glob("activations_*.npz"):
        assert path.read_bytes() == (golden / "layers" / path.name).read_bytes()


# --- by hand ------------------------------------------------------------------------------------------------------------

LITERAL = {
    "linear": [-3.0, -0.5, 0.0, 0.5, 7.0],
    "relu": [-0.0, -0.0, 0.0, 0.5, 7.0],
    "relu6": [0.0, 0.0, 0.0, 0.5, 6.0],
    "hard_mish": [0.0, -0.375, 0.0, 0.5, 7.0],
    "hardtan": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "stair": [-2.0, -0.5, 0.0, 0.0, 3.0],
    "relie": [-0.03, -0.005, 0.0, 0.5, 7.0],
    "ramp": [-0.3, -0.05, 0.0, 0.55, 7.7],
    "plse": [0.125, 0.4375, 0.5, 0.5625, 1.03],
    "lhtan": [-0.003, -0.0005, 0.0, 0.5, 1.006],
    "leaky": [-0.3, -0.05, 0.0, 0.5, 7.0],
    "revleaky": [-0.3, -0.05, 0.0, 0.5, 7.0],
}


@pytest.mark.parametrize("name", LITERAL)
def test_values_without_libm(name: str) -> None:
    assert name not in LIBM
    x = np.array([-3, -0.5, 0, 0.5, 7], np.float32)
    want = np.array(LITERAL[name], np.float32)
    got = activate(x, name, RULE)
    if name in ("leaky", "revleaky", "relie", "ramp", "plse", "lhtan"):  # .1F * -3 is one bit beside -.3
        assert np.all(np.abs(got - want) <= np.spacing(np.abs(want)))
    else:
        assert_same_bits(got, want, name)


def test_large_values_under_each_precision() -> None:
    """0 * inf: where exp overflows, the forks' elu and selu are NaN, in float from 88.8 on and in double from 709.8 on."""
    x = np.array([88, 89, 709, 710, np.inf], np.float32)
    double = replace(RULE, transcendental="double")
    for name in ("elu", "selu"):
        assert np.isnan(activate(x, name, RULE)).tolist() == [False, True, True, True, True]
        assert np.isnan(activate(x, name, double)).tolist() == [False, False, False, True, True]
    assert np.isnan(activate(x, "tanh", double)).tolist() == [False, False, True, True, True]
    assert activate(x, "tanh", RULE).tolist() == [1, 1, 1, 1, 1]
    assert activate(-x, "logistic", RULE)[4] == 0


@pytest.mark.parametrize("name", sorted(ACTIVATIONS - OVER_CHANNELS - {"hard_mish"}))
def test_nan_stays_nan(name: str) -> None:
    assert np.isnan(activate(np.full(5, np.nan, np.float32), name, RULE)).all()


def test_nan_is_0_where_the_fork_only_asks_what_is_larger() -> None:
    """AlexeyAB/darknet src/activations.c hard_mish_yashas: neither x > 0 nor x > -2 holds, which leaves its last line."""
    assert_same_bits(activate(np.full(2, np.nan, np.float32), "hard_mish", RULE), np.zeros(2, np.float32), "hard_mish")


def test_zero_length_is_no_error() -> None:
    assert activate(np.empty(0, np.float32), "mish", RULE).size == 0


# --- the rule -----------------------------------------------------------------------------------------------------------

X = np.linspace(-8, 8, 4001, dtype=np.float32)
TENTH = np.float32(0.1)
LEAKY = {
    "float": np.where(X > 0, X, TENTH * X),
    "double": np.where(X > 0, X, (0.1 * X.astype(np.float64)).astype(np.float32)),
}


@pytest.mark.parametrize("precision", ["float", "double"])
@pytest.mark.parametrize(("field", "host"), [("leaky", False), ("leaky_host", True)])
def test_leaky_is_computed_in_the_rules_type(field: str, host: bool, precision: str) -> None:
    other = {"float": "double", "double": "float"}[precision]
    rule = replace(RULE, leaky=other, leaky_host=other)
    assert_same_bits(activate(X, "leaky", replace(rule, **{field: precision}), host=host), LEAKY[precision], field)
    assert not same_bits(LEAKY["float"], LEAKY["double"])


# What each slope is in the type of the rule, x + 4 and the like in float either way.
PIECES = {
    "relie": lambda x, kind: np.where(x > 0, x, kind(0.01) * x.astype(kind)),
    "ramp": lambda x, kind: (x * (x > 0)).astype(kind) + kind(0.1) * x.astype(kind),
    "lhtan": lambda x, kind: np.select(
        [x < 0, x > 1], [kind(0.001) * x.astype(kind), kind(0.001) * (x - 1).astype(kind) + kind(1)], x.astype(kind)
    ),
    "plse": lambda x, kind: np.select(
        [x < -4, x > 4],
        [kind(0.01) * (x + 4).astype(kind), kind(0.01) * (x - 4).astype(kind) + kind(1)],
        kind(0.125) * x.astype(kind) + kind(0.5),
    ),
}


@pytest.mark.parametrize("precision", ["float", "double"])
@pytest.mark.parametrize("name", PIECES)
def test_straight_pieces_are_computed_in_the_rules_type(name: str, precision: str) -> None:
    want = {
        "float": PIECES[name](X, np.float32).astype(np.float32),
        "double": PIECES[name](X, np.float64).astype(np.float32),
    }
    assert_same_bits(activate(X, name, replace(RULE, piecewise=precision)), want[precision], name)
    assert not same_bits(want["float"], want["double"])


def test_stair_of_a_value_beyond_an_int_is_half_of_it_and_precision_tells_at_the_smallest_values() -> None:
    large = np.array([3e9, -3e9, 1e30, np.inf, -np.inf], np.float32)
    assert activate(large, "stair", RULE).tolist() == [1.5e9, -1.5e9, float(np.float32(1e30) / 2), np.inf, -np.inf]
    tiny = np.array([-1e-45], np.float32)  # its half is 0 in float: then it is on the step above
    assert activate(tiny, "stair", RULE).tolist() == [1.0]
    assert activate(tiny, "stair", replace(RULE, piecewise="double")).tolist() == [0.0]


DEFINITIONS = {
    "loggy": lambda x: np.tanh(x / 2),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507 * np.where(x >= 0, x, 1.6732 * np.expm1(np.minimum(x, 0))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.797885 * x + 0.035677 * x**3)),
}


@pytest.mark.parametrize("precision", ["float", "double"])
@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_curves_are_their_definitions(name: str, precision: str) -> None:
    """Bound: a handful of float steps, each within 2^-24 of values up to max(1, |x|); 32 covers exp, sum, quotient and product."""
    rule = replace(RULE, transcendental=precision, gelu=precision)
    want = DEFINITIONS[name](X.astype(np.float64))
    assert np.all(np.abs(activate(X, name, rule) - want) <= 32 * 2.0**-24 * np.maximum(1, np.abs(X)))


@pytest.mark.parametrize("name", ["logistic", "loggy", "tanh", "elu", "selu"])
def test_transcendental_in_double_is_the_rounded_definition(name: str) -> None:
    """One rounding at the end, so within a unit in the last place or so of the definition, which the float steps are not.

    16 * 2^-53 is for the double steps: exp(x) - 1 cancels where x is near 0.
    """
    want = DEFINITIONS[name](X.astype(np.float64))
    double = activate(X, name, replace(RULE, transcendental="double"))
    assert np.all(np.abs(double - want) <= np.spacing(np.abs(want).astype(np.float32)) + 16 * 2.0**-53)
    assert not same_bits(double, activate(X, name, replace(RULE, transcendental="float")))


def test_gelu_field_changes_gelu_alone() -> None:
    single, double = replace(RULE, gelu="float"), replace(RULE, gelu="double")
    changed = {name for name in ACTIVATIONS - OVER_CHANNELS if not same_bits(activate(X, name, single), activate(X, name, double))}
    assert changed == {"gelu"}


def test_fields_of_the_arithmetic_rule_are_those_tested_here_or_with_their_layers() -> None:
    here = {"transcendental", "leaky", "leaky_host", "piecewise", "gelu"}
    elsewhere = {"channel_gradient", "gelu_gradient", "mish_gradient", "softmax", "box", "diou"}
    assert {field.name for field in fields(ArithmeticRule)} == here | elsewhere
