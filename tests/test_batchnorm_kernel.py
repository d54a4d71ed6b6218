"""The fast passes of batch normalization equal the plain loops that specify them, bit by bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import assert_same_bits
from pydarknetbn import _native, cpu_info, num_threads
from pydarknetbn._native import Array, ffi, lib
from pydarknetbn.cpu import cpu_variant
from pydarknetbn.dialect import PROFILES
from pydarknetbn.dialect.rules import EpsilonRule

VARIANTS = cpu_info().variants
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38], np.float32)
CHANNELS = ("scales", "biases", "mean", "variance", "kept", "scale_updates", "bias_updates", "mean_delta", "variance_delta")
IMAGES = ("input", "output", "x", "x_norm")
RULES = sorted({profile.rule(host) for profile in PROFILES.values() for host in ("batchnorm", "convolutional")}, key=repr)


def arrays(batch: int, c: int, spatial: int, seed: int, kind: str) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(size=c).astype(np.float32) for name in CHANNELS}
    made |= {name: rng.normal(size=batch * c * spatial).astype(np.float32) for name in IMAGES}
    made["variance"] = rng.gamma(1.0, size=c).astype(np.float32)
    if kind == "special":
        for array in made.values():
            chosen = rng.random(array.shape) < 0.05
            array[chosen] = rng.choice(SPECIAL, int(chosen.sum()))
    elif kind == "grid":  # quotients that are often halfway between two floats
        made["mean"][:], made["variance"][:] = 0, 1
        for name in IMAGES:
            made[name] = (np.round(made[name] * 64) / 64 * (1 + rng.integers(0, 8, made[name].shape) * 2.0**-23)).astype(np.float32)
    return made


def run(
    function: Any, rule: Any, sizes: tuple[int, int, int], given: dict[str, Array], drop: frozenset[str], **flags: int
) -> dict[str, Array]:
    """The arrays after a pass over copies of the given ones."""
    after = {name: array.copy() for name, array in given.items()}
    p = ffi.new("batchnorm_pass *")
    p.batch, p.c, p.spatial = sizes
    struct = _native.rule("batchnorm_rule", rule)
    p.rule = struct
    pointers = {name: _native.floats(array) for name, array in after.items()}
    for name, pointer in pointers.items():
        setattr(p, name, ffi.NULL if name in drop else pointer)
    if "in place" in drop:
        p.output = pointers["input"]
    for name, value in flags.items():
        setattr(p, name, value)
    function(p)
    return after


def compare(name: str, variant: str, threads: int, *arguments: Any, **flags: int) -> None:
    with cpu_variant(variant), num_threads(threads):
        got = run(getattr(lib, name), *arguments, **flags)
    want = run(getattr(lib, f"{name}_plain"), *arguments, **flags)
    for array, expected in want.items():
        assert_same_bits(got[array], expected, f"{name} {array}")


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 150))
SEED = st.integers(0, 2**31)
KIND = st.sampled_from(["normal", "special", "grid"])


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    sizes=SIZES,
    seed=SEED,
    kind=KIND,
    rule=st.sampled_from(RULES),
    drop=st.frozensets(st.sampled_from(["x", "x_norm", "in place"])),
    threads=st.sampled_from([1, 2]),
)
@pytest.mark.parametrize("name", ["batchnorm_train", "batchnorm_infer"])
def test_forward_equals_plain(
    name: str, variant: str, sizes: tuple[int, int, int], seed: int, kind: str, rule: Any, drop: frozenset[str], threads: int
) -> None:
    compare(name, variant, threads, rule, sizes, arrays(*sizes, seed, kind), drop)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    sizes=SIZES,
    seed=SEED,
    kind=KIND,
    rule=st.sampled_from(RULES),
    drop=st.frozensets(st.sampled_from(["bias_updates", "x_norm"])),
    constant=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_backward_equals_plain(
    variant: str,
    sizes: tuple[int, int, int],
    seed: int,
    kind: str,
    rule: Any,
    drop: frozenset[str],
    constant: bool,
    threads: int,
) -> None:
    compare("batchnorm_backward", variant, threads, rule, sizes, arrays(*sizes, seed, kind), drop, constant=constant)


@pytest.mark.parametrize("drop", [frozenset(), frozenset(["x_norm"])], ids=["x_norm", "made"])
@pytest.mark.parametrize("spatial", [255, 256, 257, 777])
def test_sums_in_double_go_over_planes_longer_than_what_is_kept_of_them(spatial: int, drop: frozenset[str]) -> None:
    rule = PROFILES["torch"].rule("batchnorm")
    assert rule.summation == "double"
    compare("batchnorm_backward", VARIANTS[0], 2, rule, (2, 5, spatial), arrays(2, 5, spatial, spatial, "grid"), drop)


@pytest.mark.parametrize("variant", VARIANTS)
def test_quotients_halfway_between_two_floats_are_rounded_as_by_a_division(variant: str) -> None:
    """Subnormal x over 98 gives exact halves; a product with the rounded reciprocal would be wrong for 2497 of these x."""
    none = EpsilonRule(0.0, "inside", "double")
    rule = dataclasses.replace(PROFILES["pjreddie-cpu"].rule("convolutional"), forward=none)
    given = arrays(1, 1, 2**20, 0, "normal")
    given["mean"][:], given["variance"][:], given["scales"][:], given["biases"][:] = 0, 98**2, 1, 0
    given["input"] = (np.arange(2**20) * 2.0**-149).astype(np.float32)
    compare("batchnorm_infer", variant, 2, rule, (1, 1, 2**20), given, frozenset({"x"}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_quotients_close_to_the_middle_of_two_floats_are_rounded_as_by_a_division(variant: str) -> None:
    """Of 2^20 values about 1700 are too close for products in float (one or none for fused ones); of some these overflow."""
    n = 2**20 + 5  # the last steps overlap
    given = arrays(1, 1, n, 3, "normal")
    given["mean"][:], given["variance"][:] = 1.5, 0.377
    given["input"][::1000] = np.float32(3e38)
    for drop in (frozenset({"x"}), frozenset({"in place"}), frozenset({"x", "output"})):
        compare("batchnorm_infer", variant, 1, RULES[0], (1, 1, n), given, drop)


HARD = (0.303710014, 0.325970024, 0.340810001)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("variance", HARD)
def test_the_quotient_of_every_mantissa_is_the_rounded_one(variant: str, variance: float) -> None:
    """All floats from 1 to 2 by three roots, of each of which one is rounded wrongly by fused products without a division.

    Another exponent changes no bit of the mantissa.
    """
    rule, n = dataclasses.replace(RULES[0], forward=EpsilonRule(0.0, "inside", "double")), 2**23
    x = (np.arange(n, dtype=np.uint32) + np.float32(1).view(np.uint32)).view(np.float32)
    channel = {name: np.zeros(1, np.float32) for name in ("mean", "variance", "scales", "biases")}
    channel["variance"][0] = variance
    given = channel | {"input": x, "x_norm": np.empty(n, np.float32)}
    with cpu_variant(variant):
        got = run(lib.batchnorm_infer, rule, (1, 1, n), given, frozenset())["x_norm"]
    want = run(lib.batchnorm_infer_plain, rule, (1, 1, n), given, frozenset())["x_norm"]
    assert_same_bits(got, want, "x_norm")


SQUARES = {
    "middle": np.repeat(np.arange(4000.0, 4096.0, 0.5), 2),  # above 2^24 the floats are even, and every odd square is between two
    "subnormal": np.repeat([1e-24, 3e-23, 1e-22, 1e-20, 1e-3, 2.0], 16),
    "overflow": np.repeat([1e18, 1.2e19, 1e19, 1.3e18], 16),
    "constant": np.zeros(64),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", SQUARES)
def test_sums_of_squares_are_rounded_as_floats_at_every_step(variant: str, kind: str) -> None:
    """Pairs of x and -x, so that the mean is 0 and the squares are those of x, in 1 to 40 channels; the last one is of ones."""
    plane = (SQUARES[kind] * np.tile([1, -1], SQUARES[kind].size // 2)).astype(np.float32)
    for c in (1, 5, 16, 40):
        given = arrays(2, c, plane.size, 0, "normal")
        image = np.tile(plane, (c, 1))
        image[-1] = np.tile([1, -1], plane.size // 2)
        given["input"] = np.tile(image, (2, 1, 1)).ravel()
        compare("batchnorm_train", variant, 1, RULES[0], (2, c, plane.size), given, frozenset({"x_norm"}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_deltas_in_the_middle_of_two_floats_are_rounded_as_by_divisions(variant: str) -> None:
    """root * k / root + 2^-12 is in the middle of two floats, root * k / root - 4097 is 0 for some k: a product is next to both.

    x is its mean. Deltas come in pairs of root * k and its opposite; the last one alone makes the sum that gives the third term.
    """
    none = EpsilonRule(0.0, "inside", "double")
    rule = dataclasses.replace(RULES[0], direct_term=none, statistic_terms=none)
    roots, n = np.arange(3, 2000, 50, dtype=np.float32), 2**15
    k = np.repeat(np.arange(n // 2) % 4095 + 4097, 2) * np.tile([1, -1], n // 2)
    for third in (2.0**-12, -4097.0):
        delta = roots[:, None] * k.astype(np.float32)
        delta[:, -2:] = 0
        delta[:, -1] = -roots * np.float32(third * n)
        given = arrays(1, roots.size, n, 0, "normal")
        given |= {"input": delta.ravel(), "x": np.full(delta.size, 0.5, np.float32)}
        given["mean"][:], given["variance"], given["scales"][:] = 0.5, roots**2, 1
        compare("batchnorm_backward", variant, 1, rule, (1, roots.size, n), given, frozenset({"x_norm"}))
