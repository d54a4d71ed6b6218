"""The fast loops over activations, with and without a bias, equal the plain loop that specifies them, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import assert_same_bits, connected, convolutional
from pydarknetbn import _native, cpu_info, num_threads
from pydarknetbn._native import Array, lib
from pydarknetbn.cpu import cpu_variant, libm
from pydarknetbn.dialect import ACTIVATIONS, PROFILES, ArithmeticRule

VARIANTS = cpu_info().variants
OVER_CHANNELS = {"normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval"}
NAMES = sorted(ACTIVATIONS - OVER_CHANNELS)
FLOAT = replace(PROFILES["alexeyab-cpu"].layers.arithmetic, transcendental="float", gelu="float", piecewise="float", leaky="float")
DOUBLE = replace(FLOAT, transcendental="double", gelu="double", piecewise="double", leaky="double", leaky_host="double")
RULES = {"float": replace(FLOAT, leaky_host="float"), "double": DOUBLE}
# Where a formula changes: ends of pieces, 0 * inf, softplus, over- and underflow of exp in float and in double.
EDGES = [0, 1, 2, 4, 6, 20, 22, 44, 87.3, 88.7, 88.8, 103.9, 104, 150, 709.7, 709.8, 745.1, 760]
TINY_AND_HUGE = [1e-45, 1e-40, 1e-20, 1e30, 3e38, np.inf]
SPECIAL = np.array([np.nan, *(sign * edge for edge in EDGES + TINY_AND_HUGE for sign in (1, -1))], np.float32)


def run(function: object, x: Array, name: str, rule: ArithmeticRule, host: bool) -> Array:
    result = x.copy()
    struct = _native.rule("arithmetic_rule", rule)
    function(_native.floats(result), result.size, _native.enum("activation", name), struct, host)  # type: ignore[operator]
    return result


def values(count: int, seed: int, kind: str) -> Array:
    rng = np.random.default_rng(seed)
    if kind == "bits":
        return rng.integers(0, 2**32, count, np.uint32).view(np.float32)
    x = (rng.normal(size=count) * rng.choice([0.01, 1, 8, 100], count)).astype(np.float32)
    if kind == "special":
        chosen = rng.random(count) < 0.3
        near = np.nextafter(SPECIAL, rng.choice(np.float32([-np.inf, np.inf]), SPECIAL.size))
        x[chosen] = rng.choice(np.concatenate([SPECIAL, near]), int(chosen.sum()))
    return x


COUNTS = st.one_of(st.integers(0, 40), st.integers(250, 520), st.sampled_from([20_001]))
SEED = st.integers(0, 2**31)
KIND = st.sampled_from(["normal", "special", "bits"])


@pytest.mark.parametrize("precision", RULES)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(count=COUNTS, seed=SEED, kind=KIND, host=st.booleans(), threads=st.sampled_from([1, 2]))
def test_fast_equals_plain(name: str, precision: str, count: int, seed: int, kind: str, host: bool, threads: int) -> None:
    x = values(count, seed, kind)
    for functions in ("own", "system"):
        with libm(functions):
            want = run(lib.activate_array_plain, x, name, RULES[precision], host)
            for variant in VARIANTS:
                with cpu_variant(variant), num_threads(threads):
                    got = run(lib.activate_array, x, name, RULES[precision], host)
                assert_same_bits(got, want, f"{variant} {functions}")


@pytest.mark.long
@pytest.mark.parametrize("precision", RULES)
@pytest.mark.parametrize("name", NAMES)
def test_fast_equals_plain_on_every_199th_float(name: str, precision: str) -> None:
    x = np.arange(0, 2**32, 199, dtype=np.uint32).view(np.float32)
    want = run(lib.activate_array_plain, x, name, RULES[precision], False)
    for variant in VARIANTS:
        with cpu_variant(variant):
            assert_same_bits(run(lib.activate_array, x, name, RULES[precision], False), want, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 12), st.integers(1, 12)),
    seed=SEED,
    kind=KIND,
    threads=st.sampled_from([1, 2]),
    functions=st.sampled_from(["own", "system"]),
)
def test_a_convolution_activates_what_its_biases_gave(
    variant: str, name: str, sizes: tuple[int, int, int, int], seed: int, kind: str, threads: int, functions: str
) -> None:
    """A kernel of one weight, 1: what goes in, plus the bias of its plane, then activated, whether in one pass or not."""
    batch, c, h, w = sizes
    x = values(batch * c * h * w, seed, kind).reshape(sizes)
    biases = values(c, seed + 1, "normal")
    layers = [convolutional("pjreddie-cpu", each, c=c, n=c, h=h, w=w, groups=c) for each in ("linear", name)]
    for layer in layers:
        layer.array("weights")[...] = 1
        layer.array("biases")[...] = biases
    with libm(functions), cpu_variant(variant), num_threads(threads):
        linear, got = (layer.forward(x) for layer in layers)
        with np.errstate(all="ignore"):
            assert_same_bits(linear, (x + np.float32(0)) + biases.reshape(-1, 1, 1), "linear")
        if name not in OVER_CHANNELS:
            want = run(lib.activate_array_plain, linear, name, PROFILES["pjreddie-cpu"].layers.arithmetic, True)
            assert_same_bits(got, want, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_connected_layer_activates_what_its_biases_gave(name: str) -> None:
    """Planes of one value. Outside convolutional and shortcut layers leaky has a precision of its own."""
    layers = [connected("alexeyab-cpu", each, 3, 37, False) for each in ("linear", name)]
    for layer in layers:
        layer.array("weights")[...] = values(111, 0, "normal")
        layer.array("biases")[...] = values(37, 1, "special")
    linear, got = (layer.forward(values(6, 2, "normal").reshape(2, 3, 1, 1)) for layer in layers)
    want = run(lib.activate_array_plain, linear, name, PROFILES["alexeyab-cpu"].layers.arithmetic, False)
    assert_same_bits(got, want, name)


def test_the_functions_in_use_are_asked_at_each_call() -> None:
    """A formula that needs none gives the same; an exp that is one float off moves the logistic by two roundings more."""
    x = np.linspace(-80, 80, 100_001, dtype=np.float32)
    for name in ("leaky", "logistic"):
        with libm("own"):
            own = run(lib.activate_array, x, name, RULES["float"], False)
        with libm("system"):
            system = run(lib.activate_array, x, name, RULES["float"], False)
        assert np.array_equal(own, system) == (name == "leaky")
        assert np.allclose(own, system, rtol=4 * 2.0**-24, atol=0)
