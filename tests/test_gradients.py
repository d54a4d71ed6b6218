"""Derivatives of activations against recorded arrays and values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import libm
from core import assert_same_bits, same_bits
from pydarknetbn import _native
from pydarknetbn._native import Array, lib
from pydarknetbn.dialect import PROFILES, ArithmeticRule

SAMPLE = Path(__file__).parent / "golden" / "layers"
RULE = PROFILES["alexeyab-cpu"].layers.arithmetic
OF_INPUT = ("swish", "mish", "hard_mish")
FUNCTIONS = ("gelu", "swish", "mish")  # whose derivatives are made of exp, log and tanh


def gradient(y: Array, x: Array, name: str, rule: ArithmeticRule) -> Array:
    delta = np.ones_like(y)
    arguments = y.size, _native.enum("activation", name), _native.rule("arithmetic_rule", rule), _native.floats(delta)
    lib.gradient_array(_native.floats(y), _native.floats(x), *arguments)
    return delta


def recorded_gradients() -> list[tuple[str, str]]:
    found = []
    for profile in ("pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"):
        with np.load(SAMPLE / f"activations_{profile}.npz") as arrays:
            names = [key.partition(".")[0] for key in arrays if key.endswith((".grad_of_y", ".grad"))]
        found += [(profile, name) for name in names]
    return found


@pytest.mark.parametrize(("profile", "name"), recorded_gradients())
def test_recorded_derivatives(profile: str, name: str, threads: int, functions: str) -> None:
    """Of the recorded output. The curves of functions may differ by their last bits, at 32 * 2^-24 of max(1, |x|)."""
    with np.load(SAMPLE / f"activations_{profile}.npz") as arrays:
        x, y = arrays["x"], arrays[f"{name}.y"]
        want = arrays[f"{name}.grad" if name in OF_INPUT else f"{name}.grad_of_y"]
    got = gradient(y, x, name, PROFILES[profile].layers.arithmetic)
    if libm.is_the_recorders() or name not in FUNCTIONS:
        assert_same_bits(got, want, name)
    else:
        finite = np.isfinite(want)
        assert np.array_equal(np.isfinite(got), finite)
        assert np.all(np.abs(got - want)[finite] <= 32 * 2.0**-24 * np.maximum(1, np.abs(x))[finite])


def test_every_fork_and_kind_is_recorded() -> None:
    assert len(recorded_gradients()) == 14 + 20 + 20


LITERAL = {
    "leaky": [0.1, 0.1, 1.0, 1.0, 1.0],
    "relu": [0.0, 0.0, 1.0, 1.0, 1.0],
    "relu6": [0.0, 0.0, 1.0, 1.0, 0.0],
    "logistic": [-6.0, 0.0, 0.25, 0.0, -42.0],
    "tanh": [-3.0, 1.0, 0.75, 0.0, -48.0],
    "hardtan": [0.0, 1.0, 1.0, 0.0, 0.0],
    "linear": [1.0, 1.0, 1.0, 1.0, 1.0],
}


@pytest.mark.parametrize("name", LITERAL)
def test_derivatives_are_of_the_output(name: str) -> None:
    y = np.array([-2, 0, 0.5, 1, 7], np.float32)
    assert_same_bits(gradient(y, np.full_like(y, np.nan), name, RULE), np.array(LITERAL[name], np.float32), name)


def test_derivatives_of_the_input_do_not_see_the_output() -> None:
    x = np.array([-3, -1, 0.5], np.float32)
    assert gradient(np.full_like(x, np.nan), x, "hard_mish", RULE).tolist() == [0, 0, 1]


@pytest.mark.parametrize("field", ["gelu_gradient", "mish_gradient"])
def test_field_changes_that_derivative_alone(field: str) -> None:
    x = np.linspace(-4, 4, 4001, dtype=np.float32)
    single, double = replace(RULE, **{field: "float"}), replace(RULE, **{field: "double"})
    names = [name for name in _native.choices("activation") if "normalize" not in name]
    named = [name.replace(" ", "_") for name in names]
    changed = {name for name in named if not same_bits(gradient(x, x, name, single), gradient(x, x, name, double))}
    assert changed == {field.removesuffix("_gradient")}
