"""What a batchnorm hands out on its way, and what becomes of what comes back."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from pydarknetbn.exchanging import Exchange

CFG = b"""[net]
height=6
width=7
channels=5
[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
activation=leaky
[batchnorm]
"""
MEAN_AND_SQUARES = slice(1, None)


def network(profile: str = "textbook") -> dn.Network:
    return dn.load(CFG, profile=profile)


def images(n: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(2, 3, (n, 5, 6, 7)).astype(np.float32)


def test_the_moments_are_those_of_what_goes_in() -> None:
    net, seen = network(), []
    net.runner.exchanges = {1: Exchange(lambda kind, values: seen.append((kind, values.copy())))}
    net.forward(images(), train=True)
    x = net.layers[0].output.astype(np.float64)
    mean = x.mean(axis=(0, 2, 3))
    squares = np.square(x - mean[None, :, None, None]).sum(axis=(0, 2, 3))
    ((kind, values),) = seen
    assert (kind, values[0], len(values)) == ("moments", 168, 17)
    np.testing.assert_allclose(values[MEAN_AND_SQUARES], [*mean, *squares], rtol=1e-13)


def test_what_comes_back_normalises_and_moves_the_rolling_arrays() -> None:
    net = network()

    def take(kind: str, values: np.ndarray) -> None:
        values[:] = [168 * 2, *[1.0] * 8, *[168 * 2 * 4.0] * 8]  # mean 1, variance 4

    net.runner.exchanges = {1: Exchange(take)}
    (output,) = net.forward(images(), train=True)
    np.testing.assert_allclose(output, (net.layers[0].output - 1) / np.sqrt(4 + 1e-5), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(net.layers[1].rolling_mean, 0.01, rtol=1e-6)
    np.testing.assert_allclose(net.layers[1].rolling_variance, 0.04, rtol=1e-6)


def test_denominators_are_the_profiles_and_count_all_values() -> None:
    net = network("pjreddie-cpu")

    def take(kind: str, values: np.ndarray) -> None:
        values[:] = [5, *[0.0] * 8, *[8.0] * 8]

    net.runner.exchanges = {1: Exchange(take)}
    net.forward(images(), train=True)
    np.testing.assert_array_equal(net.layers[1].variance, np.float32(2))  # 8 / (5 - 1)


@pytest.mark.parametrize("profile", ["textbook", "torch", "pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"])
def test_moments_that_come_back_as_they_are_change_rounding_alone(profile: str) -> None:
    plain, exchanging, kinds = network(profile), network(profile), []
    exchanging.runner.exchanges = {number: Exchange(lambda kind, _: kinds.append(kind)) for number in (0, 1)}
    x = images()
    (expected,), (got,) = plain.forward(x, train=True), exchanging.forward(x, train=True)
    np.testing.assert_allclose(got, expected, atol=2e-6)
    delta = np.random.default_rng(1).normal(size=got.shape).astype(np.float32)
    np.testing.assert_allclose(exchanging.backward(delta.copy()), plain.backward(delta), atol=2e-6)
    assert kinds == ["moments", "moments", "delta sums", "delta sums"]
    for ours, theirs in zip(exchanging.layers, plain.layers, strict=True):
        for name in ("rolling_mean", "rolling_variance", "scale_updates", "bias_updates", "mean_delta", "variance_delta"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=3e-5, err_msg=name)


def test_sums_that_come_back_are_those_of_the_input_delta_and_the_updates_stay_own() -> None:
    own, doubled = network(), network()

    def double(kind: str, values: np.ndarray) -> None:
        if kind == "delta sums":
            values *= 2

    own.runner.exchanges = {1: Exchange(lambda *_: None)}
    doubled.runner.exchanges = {1: Exchange(double)}
    delta = np.random.default_rng(1).normal(size=(4, 8, 6, 7)).astype(np.float32)
    for net in (own, doubled):
        net.forward(images(), train=True)
        net.backward(delta.copy())
    for name in ("mean_delta", "variance_delta"):
        np.testing.assert_allclose(getattr(doubled.layers[1], name), 2 * getattr(own.layers[1], name), rtol=1e-6)
    for name in ("scale_updates", "bias_updates"):
        np.testing.assert_array_equal(getattr(doubled.layers[1], name), getattr(own.layers[1], name))


def test_a_measuring_exchange_in_inference_changes_no_bit() -> None:
    net, counts = network(), []
    (expected,) = net.forward(images())
    expected = expected.copy()
    net.runner.exchanges = {
        number: Exchange(lambda _, values: counts.append(values[0]), in_inference=True, normalizes=False) for number in (0, 1)
    }
    (got,) = net.forward(images())
    assert counts == [168, 168]
    np.testing.assert_array_equal(got, expected)


def test_a_normalising_exchange_in_inference_moves_nothing() -> None:
    net = network()
    before = [{name: array.copy() for name, array in layer.params.items()} for layer in net.layers]
    net.runner.exchanges = {number: Exchange(lambda *_: None, in_inference=True) for number in (0, 1)}
    (got,) = net.forward(images())
    np.testing.assert_allclose(got.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(got.var(axis=(0, 2, 3)), 1, atol=1e-3)
    for layer, kept in zip(net.layers, before, strict=True):
        for name, array in layer.params.items():
            np.testing.assert_array_equal(array, kept[name])
    with pytest.raises(dn.StateError, match="mean"):
        _ = net.layers[1].mean


def test_inference_does_not_exchange_unless_asked_to() -> None:
    net, seen = network(), []
    net.runner.exchanges = {0: Exchange(lambda *_: seen.append(0))}
    net.forward(images())
    assert not seen


def test_an_exchange_that_fails_names_the_layer_and_moves_nothing() -> None:
    net = network()

    def fail(kind: str, values: np.ndarray) -> None:
        raise dn.SyncError("rank 1 of 4 waited")

    net.runner.exchanges = {1: Exchange(fail)}
    before = net.layers[1].rolling_mean.copy()
    with pytest.raises(dn.SyncError, match=r"^<bytes>:11: layer 1 \[batchnorm\]: rank 1 of 4 waited$"):
        net.forward(images(), train=True)
    np.testing.assert_array_equal(net.layers[1].rolling_mean, before)
    net.runner.exchanges = {}
    net.forward(images(), train=True)


def test_an_interrupt_in_an_exchange_stays_one() -> None:
    net = network()

    def interrupt(kind: str, values: np.ndarray) -> None:
        raise KeyboardInterrupt

    net.runner.exchanges = {0: Exchange(interrupt)}
    with pytest.raises(KeyboardInterrupt):
        net.forward(images(), train=True)


def test_a_backward_without_the_exchange_of_its_forward_is_refused() -> None:
    net = network()
    net.runner.exchanges = {1: Exchange(lambda *_: None)}
    net.forward(images(), train=True)
    net.runner.exchanges = {}
    with pytest.raises(dn.StateError, match="exchange of statistics"):
        net.backward(np.zeros((4, 8, 6, 7), np.float32))


@pytest.mark.parametrize(("profile", "count"), [("pjreddie-cpu", 0), ("pjreddie-cpu", 1), ("torch", 1)])
def test_too_few_values_of_all_have_no_variance(profile: str, count: int) -> None:
    net = network(profile)

    def take(kind: str, values: np.ndarray) -> None:
        values[:] = 0
        values[0] = count

    net.runner.exchanges = {1: Exchange(take)}
    with pytest.raises(dn.NumericsError, match="layer 1"):
        net.forward(images(), train=True)
    assert not net.layers[1].rolling_mean.any()


def test_threads_change_no_bit_of_the_moments() -> None:
    def moments(threads: int) -> np.ndarray:
        net, seen = network(), []
        net.runner.exchanges = {0: Exchange(lambda _, values: seen.append(values.copy()))}
        with dn.num_threads(threads):
            net.forward(images(), train=True)
        return seen[0]

    np.testing.assert_array_equal(moments(1), moments(2))
