"""Batch normalization as functions: against the definition in float64 and against the layer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import oracle
import pydarknetbn as dn
from core import assert_same_bits
from pydarknetbn._native import Array, flush_denormals
from pydarknetbn.dialect import PROFILES

ALL = list(PROFILES)
SHAPES = [(6, 3), (4, 3, 7), (2, 3, 4, 5), (2, 3, 2, 4, 3)]
X_OF = {shape: np.random.default_rng(sum(shape)).normal(1, 2, shape).astype(np.float32) for shape in SHAPES}
# Fewer than 50 terms below 10 in any order, their roots and quotients: 50 * 2^-24 * 10.
CLOSE = 3e-5


def channels(seed: int, n: int = 4) -> list[Array]:
    return list(np.random.default_rng(seed).uniform(0.5, 2, (n, 3)).astype(np.float32))


def spread(x: Array) -> oracle.Doubles:
    return oracle.doubles(x).reshape(x.shape[0], x.shape[1], -1)


def delta_of(x: Array) -> Array:
    return np.random.default_rng(1).normal(size=x.shape).astype(np.float32)


def close(got: Array, want: oracle.Doubles) -> bool:
    return bool(np.abs(oracle.doubles(got).ravel() - want.ravel()).max() <= CLOSE)


# --- against the definition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [False, True], ids=["batch", "given"])
@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_is_the_definition(shape: tuple[int, ...], profile: str, given: bool) -> None:
    x, rule = X_OF[shape], PROFILES[profile].rule("batchnorm")
    scales, biases, mean, variance = channels(2)
    found = dn.bn.forward(
        x, scales=scales, biases=biases, profile=profile, **({"mean": mean, "variance": variance} if given else {})
    )
    parameters = oracle.Parameters(*map(oracle.doubles, (scales, biases, mean, variance)))
    want = oracle.forward(rule, spread(x), parameters, train=not given)
    assert found.output.shape == shape
    assert close(found.output, want.output)
    assert close(found.mean, want.mean)
    assert close(found.variance, want.variance)
    if given:
        assert found.kept is None
    else:
        assert found.kept is not None
        n = x.size // 3
        assert close(found.kept, want.x.var((0, 2)) * (n / (n - 1) if rule.keep_variance == "n-1" else 1))


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_backward_is_the_definition(shape: tuple[int, ...], profile: str) -> None:
    x, rule = X_OF[shape], PROFILES[profile].rule("batchnorm")
    scales, biases, mean, variance = channels(3)
    parameters = oracle.Parameters(*map(oracle.doubles, (scales, biases, mean, variance)))
    want = oracle.backward(rule, oracle.forward(rule, spread(x), parameters, train=True), spread(delta_of(x)), train=True)
    found = dn.bn.backward(delta_of(x), x, scales=scales, profile=profile)
    assert found.delta.shape == shape
    for name, array in found._asdict().items():
        assert close(array, getattr(want, name)), name


@pytest.mark.parametrize("profile", ALL)
def test_no_delta_goes_through_given_statistics(profile: str) -> None:
    """In no profile, also where the fork's own backward outside training has terms of them."""
    x, (scales, mean, variance) = X_OF[2, 3, 4, 5], channels(4, 3)
    delta, rule = delta_of(x), PROFILES[profile].rule("batchnorm")
    found = dn.bn.backward(delta, x, scales=scales, mean=mean, variance=variance, profile=profile)
    root = oracle.root(oracle.doubles(variance), rule.direct_term)
    assert close(found.delta, (spread(delta) * (scales / root)[:, None]))
    normal = (spread(x) - mean[:, None]) / oracle.root(oracle.doubles(variance), rule.forward)[:, None]
    assert close(found.scale_updates, (spread(delta) * normal).sum((0, 2)))
    assert close(found.bias_updates, spread(delta).sum((0, 2)) * rule.bias_gradient)


def test_of_1_2_3_4() -> None:
    x = np.array([[1], [2], [3], [4]], np.float32)
    found = dn.bn.forward(x, profile="torch", epsilon=0.75)
    assert found.output.ravel().tolist() == pytest.approx([(v - 2.5) / np.sqrt(2) for v in (1, 2, 3, 4)], rel=1e-7)
    assert (found.mean.tolist(), found.variance.tolist()) == ([2.5], [1.25])
    assert found.kept is not None
    assert found.kept.tolist() == pytest.approx([5 / 3], rel=1e-7)
    assert dn.bn.forward(x).output[0, 0] == pytest.approx(-1.5 / np.sqrt(1.25 + 1e-5), rel=1e-7)


def test_torchs_functions_agree() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, (weight, bias, mean, variance) = X_OF[2, 3, 4, 5], channels(5)
    tensors = [torch.from_numpy(each.copy()).requires_grad_() for each in (x, weight, bias)]
    statistics = [torch.from_numpy(each.copy()) for each in (mean, variance)]
    for given in (False, True):
        for tensor in tensors:
            tensor.grad = None
        out = torch.nn.functional.batch_norm(tensors[0], *statistics, *tensors[1:], training=not given, momentum=0.0, eps=1e-3)
        out.backward(torch.from_numpy(delta_of(x)))
        options: dict[str, Any] = {"scales": weight, "profile": "torch", "epsilon": 1e-3}
        options |= {"mean": mean, "variance": variance} if given else {}
        assert np.abs(dn.bn.forward(x, biases=bias, **options).output - out.detach().numpy()).max() < 2e-6
        found = dn.bn.backward(delta_of(x), x, **options)
        for got, tensor in zip(found, tensors, strict=True):  # of a gradient it gives the gradients
            assert np.abs(got - tensor.grad.numpy()).max() < 1e-5


# --- against the layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ALL)
def test_the_layer_has_the_same_bits(profile: str, threads: int) -> None:
    x = np.random.default_rng(6).normal(size=(3, 37, 5, 6)).astype(np.float32)
    delta = delta_of(x)
    layer = dn.BatchNorm(37, profile=profile, epsilon=0.01, rolling=(0.0, 1.0))
    layer.scales[...] = np.random.default_rng(7).uniform(0.5, 2, 37)
    scales = layer.scales.copy()
    found = dn.bn.forward(x, scales=scales, profile=profile, epsilon=0.01)
    assert_same_bits(found.output, layer.forward(x, train=True), "output")
    for name, got in (("mean", found.mean), ("variance", found.variance), ("rolling_variance", found.kept)):
        assert got is not None
        assert_same_bits(got, getattr(layer, name), name)
    back = dn.bn.backward(delta, x, scales=scales, profile=profile, epsilon=0.01)
    assert_same_bits(back.delta, layer.backward(delta), "delta")
    assert_same_bits(back.scale_updates, layer.scale_updates, "scale_updates")
    assert_same_bits(back.bias_updates, layer.bias_updates, "bias_updates")
    inference = dn.bn.forward(x, scales=scales, mean=found.mean, variance=found.kept, profile=profile, epsilon=0.01)
    assert_same_bits(inference.output, layer.forward(x, train=False), "inference")


def test_nothing_that_is_given_is_changed() -> None:
    x, (scales, biases, mean, variance) = X_OF[2, 3, 4, 5], channels(8)
    delta = delta_of(x)
    given = (x, delta, scales, biases, mean, variance)
    before = [each.copy() for each in given]
    found = dn.bn.forward(x, scales=scales, biases=biases, mean=mean, variance=variance)
    dn.bn.backward(delta, x, scales=scales, mean=mean, variance=variance)
    dn.bn.backward(delta, x, scales=scales)
    for got, want in zip(given, before, strict=True):
        assert_same_bits(got, want, "given")
    assert found.mean is mean


def test_denormals_are_flushed_where_that_is_on() -> None:
    x = np.full((4, 1), 1e-40, np.float32)
    mean, variance = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert dn.bn.forward(x, mean=mean, variance=variance).output.any()
    with flush_denormals(True):
        assert not dn.bn.forward(x, mean=mean, variance=variance).output.any()


# --- moments in parts -------------------------------------------------------------------------------------------------------


def test_moments_of_parts_are_those_of_the_whole() -> None:
    x = X_OF[2, 3, 4, 5]
    whole = dn.bn.forward(x, profile="torch")
    merged = dn.bn.merge([dn.bn.local_stats(x[:1]), dn.bn.local_stats(x[1:])])
    assert merged.n == 40
    assert close(whole.mean, merged.mean)
    assert close(whole.variance, merged.variance(unbiased=False))
    assert whole.kept is not None
    assert close(whole.kept, merged.variance(unbiased=True))


# --- refused ------------------------------------------------------------------------------------------------------------

X = X_OF[2, 3, 4, 5]
ONE = np.ones(3, np.float32)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X.astype(np.float64)}, dn.DtypeError, "expected x of float32, got float64"),
    ({"x": [1, 2]}, dn.DtypeError, "expected x to be a NumPy array of float32, got list"),
    ({"x": X[0, 0, 0]}, dn.ShapeError, "expected x of shape (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), got (5,)"),
    ({"scales": ONE[:2]}, dn.ShapeError, "expected scales of shape (3), got (2,)"),
    ({"mean": ONE, "variance": ONE[:, None]}, dn.ShapeError, "expected variance of shape (3), got (3, 1)"),
    ({"mean": ONE}, ValueError, "expected mean and variance together, or neither for the batch's own, got mean alone"),
    ({"variance": ONE}, ValueError, "got variance alone"),
    ({"profile": "mxnet"}, ValueError, "expected a profile"),
    ({"epsilon": -1}, ValueError, "expected an epsilon of 0 or more"),
    (
        {"x": X[:1, :, :1, :1].copy(), "profile": "pjreddie-cpu"},
        dn.NumericsError,
        "x of shape (1, 3, 1, 1) has one value in each channel, which has no variance over n-1 = 0; give a larger batch",
    ),
]


@pytest.mark.parametrize(("options", "error", "said"), BAD, ids=range(len(BAD)))
def test_bad_arguments_are_refused(options: dict[str, Any], error: type[Exception], said: str) -> None:
    arguments = {"x": X, **options}
    with pytest.raises(error, match=re.escape(said)):
        dn.bn.forward(**arguments)
    arguments["delta"] = arguments["x"]
    with pytest.raises(error, match=re.escape(said)):
        dn.bn.backward(**arguments)


def test_biases_and_deltas_of_another_shape_are_refused() -> None:
    with pytest.raises(dn.ShapeError, match=re.escape("expected biases of shape (3), got (4,)")):
        dn.bn.forward(X, biases=np.ones(4, np.float32))
    with pytest.raises(dn.ShapeError, match=re.escape("expected delta of shape (2, 3, 4, 5), got (2, 3, 5, 4)")):
        dn.bn.backward(np.ones((2, 3, 5, 4), np.float32), X)


def test_one_value_keeps_no_variance_over_n_minus_1() -> None:
    found = dn.bn.forward(np.array([[3]], np.float32), profile="torch")
    assert (found.output.tolist(), found.variance.tolist()) == ([[0]], [0])
    assert found.kept is not None
    assert np.isnan(found.kept).all()
