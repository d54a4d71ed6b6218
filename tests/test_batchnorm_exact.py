"""The type of each step: literals and intermediate values bit for bit, and rule structs that carry every field."""

from __future__ import annotations

import typing
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from core import CoreLayer, assert_same_bits, batchnorm, bits, same_bits
from pydarknetbn import _native, dialect
from pydarknetbn._native import Array, ffi
from pydarknetbn.dialect import PROFILES, BatchNormRule, EpsilonRule

BATCH, C, H, W = 2, 300, 2, 3
N = BATCH * H * W
RNG = np.random.default_rng(21)
X, DELTA = RNG.uniform(-2, 2, (2, BATCH, C, H, W)).astype(np.float32)
SCALES = RNG.uniform(0.5, 2, C).astype(np.float32)
BASE = PROFILES["pjreddie-cpu"].rule("batchnorm")
EPSILON = 0.1  # as a float it is 1.5e-8 larger, which shows in the last bit of some channels


def rule_of(side: str, literal: str, intermediate: str) -> BatchNormRule:
    epsilon = EpsilonRule(EPSILON, side, literal)
    return replace(BASE, forward=epsilon, direct_term=epsilon, statistic_terms=epsilon, intermediate=intermediate)


def exact_root(v: Array, side: str, literal: str, intermediate: str) -> NDArray[np.float64]:
    """sqrt is exact in both types; what is left is where a float is rounded."""
    single = np.float32(EPSILON)
    if intermediate == "float":
        return (np.sqrt(v + single) if side == "inside" else np.sqrt(v) + single).astype(np.float64)
    wide = np.float64(single) if literal == "float" else np.float64(EPSILON)
    if side == "outside":
        return np.sqrt(v.astype(np.float64)) + wide
    return np.sqrt((v + single).astype(np.float64)) if literal == "float" else np.sqrt(v.astype(np.float64) + wide)


def spread(channels: NDArray[typing.Any]) -> NDArray[typing.Any]:
    return channels[None, :, None, None]


def float_sum(terms: Array) -> Array:
    """By channel, in the order batch, pixel, from 0, each sum rounded to float."""
    ordered = terms.transpose(1, 0, 2, 3).reshape(C, N)
    return np.add.accumulate(np.concatenate([np.zeros((C, 1), np.float32), ordered], axis=1), axis=1)[:, -1]


def layer_after_training(rule: BatchNormRule) -> CoreLayer:
    layer = batchnorm(rule, C, H, W)
    layer.array("scales")[...] = SCALES
    layer.forward(X, train=True)
    layer.backward(DELTA)
    return layer


VARIANTS = [(side, literal, t) for side in ("inside", "outside") for literal in ("float", "double") for t in ("float", "double")]


@pytest.mark.parametrize(("side", "literal", "intermediate"), VARIANTS)
def test_normalising_is_exact(side: str, literal: str, intermediate: str) -> None:
    layer = layer_after_training(rule_of(side, literal, intermediate))
    r = spread(exact_root(layer.array("variance"), side, literal, intermediate))
    deviation = X - spread(layer.array("mean"))
    quotient = deviation / r.astype(np.float32) if intermediate == "float" else deviation.astype(np.float64) / r
    assert_same_bits(layer.array("x_norm"), quotient.astype(np.float32), "x_norm")


@pytest.mark.parametrize(("side", "literal", "intermediate"), VARIANTS)
def test_backward_is_exact(side: str, literal: str, intermediate: str) -> None:
    """But for the power in float: a libm's powf may be one unit off, and so may variance_delta then.

    In double, what pow may be off by is 2^-29 of a unit of the float that it is rounded to.
    """
    layer = layer_after_training(rule_of(side, literal, intermediate))
    variance, deviation = layer.array("variance"), X - spread(layer.array("mean"))
    r = exact_root(variance, side, literal, intermediate)
    scaled = DELTA * spread(SCALES)
    mean_delta = (float_sum(scaled).astype(np.float64) * (-1 / r)).astype(np.float32)
    assert_same_bits(layer.array("mean_delta"), mean_delta, "mean_delta")
    power = r**-3.0
    if side == "inside" and intermediate == "float":
        power = ((variance + np.float32(EPSILON)).astype(np.float64) ** -1.5).astype(np.float32).astype(np.float64)
    variance_delta = (float_sum(scaled * deviation).astype(np.float64) * (-0.5 * power)).astype(np.float32)
    got = layer.array("variance_delta")
    if intermediate == "double":
        assert_same_bits(got, variance_delta, "variance_delta")
    assert np.all(np.abs(got - variance_delta) <= 2 * np.spacing(np.abs(variance_delta)))
    delta = (
        scaled.astype(np.float64) / spread(r)
        + spread(got.astype(np.float64) * 2) * deviation.astype(np.float64) / N
        + spread((mean_delta / np.float32(N)).astype(np.float64))
    )
    assert_same_bits(layer.array("delta"), delta.astype(np.float32), "delta")


@pytest.mark.parametrize("side", ["inside", "outside"])
@pytest.mark.parametrize(
    ("field", "shows"),
    [("forward", "x_norm"), ("direct_term", "delta"), ("statistic_terms", "mean_delta"), ("statistic_terms", "variance_delta")],
)
def test_the_type_of_a_literal_shows_in_last_bits(field: str, shows: str, side: str) -> None:
    base = rule_of(side, "float", "double")
    literal = replace(base, **{field: EpsilonRule(EPSILON, side, "double")})
    a, b = (layer_after_training(rule).array(shows) for rule in (base, literal))
    assert 0 < (bits(a) != bits(b)).sum() < a.size


def test_the_intermediate_type_shows_in_forward_and_backward() -> None:
    a, b = (layer_after_training(rule_of("inside", "float", t)) for t in ("float", "double"))
    for name in ("x_norm", "mean_delta", "variance_delta", "delta"):
        assert not same_bits(a.array(name), b.array(name)), name
    for name in ("mean", "variance", "rolling_variance"):
        assert same_bits(a.array(name), b.array(name)), name


@pytest.mark.parametrize(
    ("field", "value", "intermediate", "shows", "leaves"),
    [
        ("variance_formula", "squares", "double", ("mean", "variance", "rolling_variance", "x_norm"), ()),
        ("summation", "strided", "float", ("scale_updates", "mean_delta", "variance_delta", "delta"), ()),
        ("moments", "quotient", "float", ("mean", "variance", "rolling_variance"), ()),
        ("squares", "float", "float", ("variance", "rolling_variance"), ("mean",)),
        ("inverse_cube", "root", "float", ("variance_delta", "delta"), ("mean_delta", "scale_updates")),
        ("quotients", "float", "float", ("mean_delta", "delta"), ("variance_delta", "scale_updates")),
        ("quotients", "float", "double", ("mean_delta", "delta"), ("variance_delta", "scale_updates")),
        ("products", "float", "float", ("delta",), ("mean_delta", "scale_updates")),
        ("products", "float", "double", ("variance_delta", "delta"), ("mean_delta", "scale_updates")),
    ],
)
def test_a_type_or_order_shows_in_last_bits_of_what_it_is_of(
    field: str, value: str, intermediate: str, shows: tuple[str, ...], leaves: tuple[str, ...]
) -> None:
    base = rule_of("inside", "float", intermediate)
    a, b = (layer_after_training(rule) for rule in (base, replace(base, **{field: value})))
    for name in shows:
        got, other = b.array(name), a.array(name)
        assert 0 < (bits(got) != bits(other)).sum() < other.size, name
        scale = np.abs(other).max()
        assert np.abs(got - other).max() <= scale * N * 2.0**-22, name
    for name in leaves:
        assert same_bits(a.array(name), b.array(name)), name


@pytest.mark.parametrize("denominator", ["n", "n-1"])
def test_the_formula_of_squares_is_exact(denominator: str) -> None:
    """Mean and mean of squares from exact sums, rounded once; the difference in float, and no less than 0."""
    rule = replace(BASE, variance_formula="squares", normalize_variance=denominator, keep_variance=denominator, rolling_add=1.0)
    x = X.copy()
    x[:, 1], x[:, 2], x[:, 3] = 1e4, np.float32(1e4) + X[:, 2] * np.float32(0.01), 1234.5678
    layer = batchnorm(rule, C, H, W)
    layer.forward(x, train=True)
    ordered = x.transpose(1, 0, 2, 3).reshape(C, N)
    mean = np.add.accumulate(ordered.astype(np.float64), axis=1)[:, -1] / N
    squares = np.add.accumulate((ordered * ordered).astype(np.float64), axis=1)[:, -1] / N
    mean = mean.astype(np.float32)
    variance = np.maximum(squares.astype(np.float32) - mean * mean, 0)
    if denominator == "n-1":
        variance = variance * np.float32(N / (N - 1))
    assert_same_bits(layer.array("mean"), mean, "mean")
    assert_same_bits(layer.array("variance"), variance, "variance")
    assert_same_bits(layer.array("rolling_variance"), variance, "rolling_variance")
    assert layer.array("variance")[1] == 0
    assert layer.array("variance")[2] % 8 == 0 or denominator == "n-1"  # floats near 1e8 are 8 apart


def test_squares_keep_nan_and_infinity() -> None:
    x = X.copy()
    x[0, 0, 0, 0], x[0, 1, 0, 0] = np.nan, np.inf
    x[0, 2], x[1, 2] = 1e30, -1e30
    layer = batchnorm(replace(BASE, variance_formula="squares"), C, H, W)
    layer.forward(x, train=True)
    assert np.isnan(layer.array("variance")[:2]).all()
    assert np.isposinf(layer.array("variance")[2])


@pytest.mark.parametrize(("side", "literal", "intermediate"), VARIANTS)
def test_sums_in_double_are_rounded_once(side: str, literal: str, intermediate: str) -> None:
    """Each beside the float64 sum in NumPy's order: half a unit, and a hundredth for what doubles may differ by."""
    layer = layer_after_training(replace(rule_of(side, literal, intermediate), summation="double", keep_variance="n"))
    x, delta = X.astype(np.float64), DELTA.astype(np.float64)
    mean, float_mean = x.mean((0, 2, 3)), layer.array("mean").astype(np.float64)
    squares = np.square(x - spread(mean)).sum((0, 2, 3))
    r = exact_root(layer.array("variance"), side, literal, intermediate)
    want = {
        "mean": mean,
        "variance": squares / (N - 1),
        "bias_updates": delta.sum((0, 2, 3)),
        "scale_updates": (delta * layer.array("x_norm").astype(np.float64)).sum((0, 2, 3)),
        "mean_delta": -(delta.sum((0, 2, 3)) * SCALES) / r,
    }
    if intermediate == "double":
        want["variance_delta"] = -0.5 * (delta * (x - spread(float_mean))).sum((0, 2, 3)) * SCALES / r**3
    for name, expected in want.items():
        assert np.all(np.abs(layer.array(name) - expected) <= 0.51 * np.spacing(np.abs(expected).astype(np.float32))), name


def test_sums_in_double_do_not_cancel() -> None:
    """A mean of 1000 and a deviation of 0.01, over more values than a float sum can take: 3e-4 of the variance are lost in it."""
    x = (1000 + 0.01 * np.random.default_rng(5).normal(size=(4, 1, 50, 50))).astype(np.float32)
    want = x.astype(np.float64).var()
    off = {}
    for summation in ("serial", "double"):
        layer = batchnorm(replace(BASE, summation=summation, normalize_variance="n"), 1, 50, 50)
        layer.forward(x, train=True)
        off[summation] = abs(layer.array("variance")[0] / want - 1)
    assert off["double"] < 2.0**-24
    assert off["serial"] > 1e-4


# --- structs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("fold", [EpsilonRule(0.25, "inside", "double"), EpsilonRule(0.5, "outside", "float")]),
        ("fold_root", ["float", "double"]),
        ("fold_factor", ["float", "double"]),
        ("trains_standalone", [False, True]),
        ("host_bias_gradient", [False, True]),
    ],
)
def test_a_layer_carries_what_its_forward_does_not_read(field: str, values: list[object]) -> None:
    for value in values:
        rule = replace(BASE, **{field: value})
        carried = getattr(batchnorm(rule, 1).native.batchnorm_rule, field)
        if isinstance(value, EpsilonRule):
            got = (carried.value, carried.side, carried.literal)
            assert got == (value.value, _native.enum("side", value.side), _native.enum("literal", value.literal))
        elif isinstance(value, str):
            assert carried == _native.enum("precision", value)
        else:
            assert carried == value


STRUCTS = {
    "epsilon_rule": dialect.EpsilonRule,
    "batchnorm_rule": dialect.BatchNormRule,
    "arithmetic_rule": dialect.ArithmeticRule,
    "loss_rule": dialect.LossRule,
    "layer_rule": dialect.LayerRule,
    "recurrent_rule": dialect.RecurrentRule,
}


@pytest.mark.parametrize("struct", STRUCTS)
def test_records_have_the_fields_of_their_structs_in_order(struct: str) -> None:
    assert [field.name for field in fields(STRUCTS[struct])] == [name for name, _ in ffi.typeof(struct).fields]


def enum_fields() -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for struct, record in STRUCTS.items():
        hints = typing.get_type_hints(record)
        for name, field in ffi.typeof(struct).fields:
            if field.type.kind == "enum":
                found.append((field.type.cname, typing.get_args(hints[name])))
    return found


@pytest.mark.parametrize(("kind", "words"), enum_fields())
def test_words_of_a_field_are_those_of_its_enum(kind: str, words: tuple[str, ...]) -> None:
    assert set(words) == set(_native.choices(kind))


def test_fields_that_are_no_enum_are_numbers_flags_or_records() -> None:
    for struct, record in STRUCTS.items():
        hints = typing.get_type_hints(record)
        for name, field in ffi.typeof(struct).fields:
            kinds = {"double": float, "int": bool}
            if field.type.kind == "primitive":
                assert hints[name] is kinds[field.type.cname], name
            elif field.type.kind == "struct":
                assert hints[name] is STRUCTS[field.type.cname], name
