"""The tool that measures how far a profile's backward is from its forward's derivative."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from definitions import normalized
from pydarknetbn.dialect import PROFILES, profiles
from tape import Value, gradients

TOOLS = Path(__file__).parent.parent / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    import gradient_distance

    return gradient_distance


@pytest.mark.parametrize("profile", PROFILES)
def test_derivative_is_that_of_the_definition(profile, tool):
    rng = np.random.default_rng(3)
    x, delta = rng.normal(size=(2, 3, 2, 2)), rng.normal(size=(2, 3, 2, 2))
    rule = PROFILES[profile].rule("batchnorm")
    value, one = Value(x), {"scales": Value(np.ones(3)), "biases": Value(np.zeros(3))}
    want = gradients(normalized(value, rule, one), delta, {"x": value})["x"]
    # the definition takes the float32 of an epsilon, which is 1e-8 of it away
    assert tool.derivative(rule, x, delta) == pytest.approx(want, rel=0, abs=1e-10)


def test_forks_are_as_far_from_it_as_their_denominators_are_apart(tool):
    """1/n of the term of the variance, whose share falls with the root of n: known from the forks themselves."""
    near = {"pjreddie-cpu": (0.126, 2e-3, 5e-6), "alexeyab-cpu": (0.126, 2e-3, 5e-6)}
    for profile, want in near.items():
        for shape, known in zip(tool.SHAPES, want, strict=True):
            assert known / 1.5 < tool.distance(profile, shape) < known * 1.5


def test_profiles_that_are_their_own_derivative_differ_by_rounding(tool):
    rules = {each.name: each.rule("batchnorm") for each in profiles()}
    same = [name for name, rule in rules.items() if rule.forward == rule.direct_term == rule.statistic_terms]
    others = [name for name in same if rules[name].normalize_variance == "n"]
    assert len(others) > 5
    for profile in others:
        assert all(tool.distance(profile, shape) < 1e-6 for shape in tool.SHAPES)
