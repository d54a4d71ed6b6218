"""Every field of a batchnorm's rule is obeyed, and agrees with the float64 oracle under the same rule."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

import oracle
from core import CoreLayer, batchnorm, bits
from pydarknetbn._native import Array
from pydarknetbn.dialect import PROFILES, BatchNormRule, EpsilonRule

BATCH, C, H, W = 3, 5, 2, 2
N = BATCH * H * W
RNG = np.random.default_rng(20)
X1, X2, X3, DELTA = RNG.uniform(-2, 2, (4, BATCH, C, H, W)).astype(np.float32)
SCALES = RNG.uniform(0.5, 2, C).astype(np.float32)
BIASES, ROLLING_MEAN = RNG.uniform(-1, 1, (2, C)).astype(np.float32)
ROLLING_VARIANCE = RNG.uniform(0.5, 2, C).astype(np.float32)

# Every array is made of sums of at most N terms, each below 8 (values below 4, scales below 2, roots above 1), by a chain of at
# most N + 16 float operations, each off by at most 2^-24 of such a sum.
LIMIT = (N + 16) * 2.0**-24 * N * 8

# Epsilons so large that each place where one stands shows.
BASE = replace(
    PROFILES["pjreddie-cpu"].rule("batchnorm"),
    forward=EpsilonRule(0.5, "outside"),
    direct_term=EpsilonRule(0.5, "inside"),
    statistic_terms=EpsilonRule(0.5, "inside"),
    rolling_keep=0.75,
    rolling_add=0.25,
)
OUTPUTS = {"output", "x_norm", "scale_updates", "inference"}
DELTAS = {"delta", "delta_outside_training"}
STATISTIC_DELTAS = {"mean_delta", "variance_delta"}

# field, the rule with another value, and exactly the arrays that this moves
MODIFIED = [
    ("forward.value", replace(BASE, forward=EpsilonRule(1.5, "outside")), OUTPUTS),
    ("forward.side", replace(BASE, forward=EpsilonRule(0.5, "inside")), OUTPUTS),
    ("direct_term.value", replace(BASE, direct_term=EpsilonRule(1.5, "inside")), DELTAS),
    ("direct_term.side", replace(BASE, direct_term=EpsilonRule(0.5, "outside")), DELTAS),
    ("statistic_terms.value", replace(BASE, statistic_terms=EpsilonRule(1.5, "inside")), STATISTIC_DELTAS | DELTAS),
    ("statistic_terms.side", replace(BASE, statistic_terms=EpsilonRule(0.5, "outside")), STATISTIC_DELTAS | DELTAS),
    (
        "normalize_variance",
        replace(BASE, normalize_variance="n"),
        {"variance", "output", "x_norm", "scale_updates", "delta"} | STATISTIC_DELTAS,
    ),
    ("keep_variance", replace(BASE, keep_variance="n"), {"rolling_variance", "inference", "delta_outside_training"}),
    (
        "rolling_keep",
        replace(BASE, rolling_keep=0.5),
        {"rolling_mean", "rolling_variance", "inference", "delta_outside_training"},
    ),
    (
        "rolling_add",
        replace(BASE, rolling_add=0.5),
        {"rolling_mean", "rolling_variance", "inference", "delta_outside_training"},
    ),
    ("bias_gradient", replace(BASE, bias_gradient=False), {"bias_updates"}),
    ("eval_statistics", replace(BASE, eval_statistics="batch"), {"delta_outside_training"}),
    ("eval_statistics", replace(BASE, eval_statistics="constant"), {"delta_outside_training"}),
]
EXACT_ELSEWHERE = {"intermediate", "forward.literal", "direct_term.literal", "statistic_terms.literal"}
EXACT_ELSEWHERE |= {"variance_formula", "summation", "moments", "squares", "inverse_cube", "quotients", "products"}
CARRIED_ELSEWHERE = {"fold.value", "fold.side", "fold.literal", "fold_root", "fold_factor", "trains_standalone"}
CARRIED_ELSEWHERE |= {"host_bias_gradient"}  # obeyed in test_batchnorm_cuda.py
OVER_BATCHES = {"rolling"}  # test_batchnorm_rolling.py


def layer_of(rule: BatchNormRule) -> CoreLayer:
    layer = batchnorm(rule, C, H, W)
    for name, start in (
        ("scales", SCALES),
        ("biases", BIASES),
        ("rolling_mean", ROLLING_MEAN),
        ("rolling_variance", ROLLING_VARIANCE),
    ):
        layer.array(name)[...] = start
    return layer


def run_core(rule: BatchNormRule) -> dict[str, Array]:
    """Two training forwards, a backward, a backward outside training, an inference."""
    layer = layer_of(rule)
    layer.forward(X1, train=True)
    got = {"output": layer.forward(X2, train=True)}
    got["delta"] = layer.backward(DELTA)
    names = ("mean", "variance", "rolling_mean", "rolling_variance", "x_norm", "mean_delta", "variance_delta")
    for name in (*names, "scale_updates", "bias_updates"):
        got[name] = layer.array(name).copy()
    got["delta_outside_training"] = layer.backward(DELTA, train=False)
    got["inference"] = layer.forward(X3)
    return got


def flat(x: Array) -> oracle.Doubles:
    return oracle.doubles(x).reshape(BATCH, C, H * W)


def run_oracle(rule: BatchNormRule) -> dict[str, oracle.Doubles]:
    start = oracle.Parameters(*map(oracle.doubles, (SCALES, BIASES, ROLLING_MEAN, ROLLING_VARIANCE)))
    first = oracle.forward(rule, flat(X1), start, train=True)
    after = oracle.forward(rule, flat(X2), first.parameters, train=True)
    back = oracle.backward(rule, after, flat(DELTA), train=True)
    outside = oracle.backward(rule, after, flat(DELTA), train=False)
    want = {name: getattr(after, name) for name in ("output", "x_norm", "mean", "variance")}
    want |= {name: getattr(after.parameters, name) for name in ("rolling_mean", "rolling_variance")}
    want |= {field.name: getattr(back, field.name) for field in fields(back)}
    want["delta_outside_training"] = outside.delta
    want["inference"] = oracle.forward(rule, flat(X3), after.parameters, train=False).output
    return want


def assert_agrees(rule: BatchNormRule) -> None:
    got, want = run_core(rule), run_oracle(rule)
    assert got.keys() == want.keys()
    for name, array in want.items():
        off = np.abs(got[name].astype(np.float64).reshape(array.shape) - array).max()
        assert off <= LIMIT, f"{name}: off by {off}"


@pytest.mark.parametrize("name", list(PROFILES))
@pytest.mark.parametrize("host", ["batchnorm", "convolutional", "connected"])
def test_rules_of_the_table_agree_with_the_oracle(name: str, host: str, threads: int) -> None:
    assert_agrees(PROFILES[name].rule(host))


@pytest.mark.parametrize(("field", "rule", "moves"), MODIFIED, ids=[f"{m[0]}-{i}" for i, m in enumerate(MODIFIED)])
def test_a_modified_field_moves_what_it_should_and_agrees_with_the_oracle(field: str, rule: BatchNormRule, moves: set[str]) -> None:
    before, after = run_core(BASE), run_core(rule)
    assert {name for name in before if not np.array_equal(bits(before[name]), bits(after[name]))} == moves
    base, modified = run_oracle(BASE), run_oracle(rule)
    assert max(np.abs(base[name] - modified[name]).max() for name in moves) > 10 * LIMIT, "the oracle ignores the field"
    assert_agrees(rule)


def test_no_field_is_forgotten() -> None:
    epsilons = {"forward", "direct_term", "statistic_terms", "fold"}
    wanted = {f"{name}.{part.name}" for name in epsilons for part in fields(EpsilonRule)}
    wanted |= {field.name for field in fields(BatchNormRule)} - epsilons
    assert {field for field, _, _ in MODIFIED} | EXACT_ELSEWHERE | CARRIED_ELSEWHERE | OVER_BATCHES == wanted


# --- derivatives ----------------------------------------------------------------------------------------------------------

STEP = 1e-5  # central differences: off by the order of STEP^2, and by 1e-16 / STEP of a loss of about 100
DIFFERENCES = 1e-7


def differences(rule: BatchNormRule, *, train: bool, x: oracle.Doubles, start: oracle.Parameters) -> oracle.Doubles:
    """The derivative of sum(DELTA * output) by each value of x."""
    result = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        losses = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * STEP
            losses.append((oracle.forward(rule, moved, start, train=train).output * flat(DELTA)).sum())
        result[index] = (losses[0] - losses[1]) / (2 * STEP)
    return result


START = oracle.Parameters(*map(oracle.doubles, (SCALES, BIASES, ROLLING_MEAN, ROLLING_VARIANCE)))


@pytest.mark.parametrize("train", [True, False])
def test_textbook_backward_is_the_derivative_of_its_forward(train: bool) -> None:
    rule = PROFILES["textbook"].rule("batchnorm")
    after = oracle.forward(rule, flat(X2), START, train=True)
    start = START if train else after.parameters
    want = differences(rule, train=train, x=flat(X2), start=start)
    assert np.abs(oracle.backward(rule, after, flat(DELTA), train=train).delta - want).max() < DIFFERENCES
    layer = layer_of(rule)
    layer.forward(X2, train=True)
    got = layer.backward(DELTA, train=train)
    assert np.abs(flat(got) - want).max() <= LIMIT + DIFFERENCES


@pytest.mark.parametrize("parameter", ["scales", "biases"])
def test_textbook_updates_are_the_derivatives_by_the_parameters(parameter: str) -> None:
    rule = PROFILES["textbook"].rule("batchnorm")
    want = np.empty(C)
    for f in range(C):
        losses = []
        for sign in (1, -1):
            moved = getattr(START, parameter).copy()
            moved[f] += sign * STEP
            start = replace(START, **{parameter: moved})
            losses.append((oracle.forward(rule, flat(X2), start, train=True).output * flat(DELTA)).sum())
        want[f] = (losses[0] - losses[1]) / (2 * STEP)
    layer = layer_of(rule)
    layer.forward(X2, train=True)
    layer.backward(DELTA)
    got = layer.array({"scales": "scale_updates", "biases": "bias_updates"}[parameter])
    assert np.abs(got - want).max() <= LIMIT + DIFFERENCES


@pytest.mark.parametrize("name", ["pjreddie-cpu", "alexeyab-cpu"])
def test_recorded_forks_do_not_differentiate_their_forward(name: str) -> None:
    """Their epsilons stand in other places, and the variance's n - 1 is taken for n: a tenth off in a batch this small."""
    rule = PROFILES[name].rule("batchnorm")
    after = oracle.forward(rule, flat(X2), START, train=True)
    off = oracle.backward(rule, after, flat(DELTA), train=True).delta - differences(rule, train=True, x=flat(X2), start=START)
    assert np.abs(off).max() > 0.005
