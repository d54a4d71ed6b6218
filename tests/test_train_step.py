"""A step: minibatches, counters, what moves and what does not, freezing, Adam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, weights_of
from pydarknetbn._native import Array
from trainings import ALL, LAYERS, RATES, ROLLING, batch, moved, network, parameters

# --- minibatches ----------------------------------------------------------------------------------------------------------------


def test_gradients_come_together_over_subdivisions_and_statistics_do_not() -> None:
    """Without a batchnorm a batch in subdivisions is the batch; with one its statistics are of each part."""
    x, truth = batch(0)
    cfg = cfg_of("conn output=3 activation=linear", "softmax", net=RATES)
    plain = [dn.load(cfg, seed=5, profile="textbook") for _ in range(2)]
    for net, parts in zip(plain, (1, 4), strict=True):
        net.settings = replace(net.settings, subdivisions=parts)
        net.train_step(x, truth)
    np.testing.assert_allclose(plain[0].layers[0].weights, plain[1].layers[0].weights, rtol=0, atol=1e-7)
    net = network()
    net.settings = replace(net.settings, subdivisions=2)
    net.train_step(x, truth)
    sums = dn.load(cfg_of(LAYERS[0].replace("leaky", "linear")), seed=5, profile="textbook")
    means = [sums.forward(part, train=True) and sums.layers[0].mean.copy() for part in (x[:4], x[4:])]
    keep, add = np.float32(0.99), np.float32(0.01)
    want = keep * (add * means[0]) + add * means[1]
    np.testing.assert_allclose(net.layers[0].rolling_mean, want, rtol=1e-6)


def test_rows_that_make_no_equal_subdivisions_and_truth_of_other_rows_are_refused() -> None:
    net = network()
    net.settings = replace(net.settings, subdivisions=3)
    with pytest.raises(dn.ShapeError, match=r"expected rows that make 3 equal subdivisions, got 8; see net\.settings"):
        net.train_step(*batch(0))
    net.settings = replace(net.settings, subdivisions=2)
    with pytest.raises(dn.ShapeError):
        net.train_step(batch(0)[0], batch(0)[1][:4])
    assert net.seen == 0


def test_a_network_without_a_loss_is_refused() -> None:
    with pytest.raises(dn.UnsupportedError, match="no layer has a loss"):
        dn.load(cfg_of(*LAYERS[:3])).train_step(*batch(0))


def test_a_step_that_fails_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(net.runner, "run", fail)
    with pytest.raises(MemoryError):
        net.train_step(*batch(0))
    assert (net.seen, net.header.seen) == (0, 0)


# --- counters -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "written"), [("pjreddie", 26), ("alexeyab", 24), ("hank-ai", 24)])
def test_seen_counts_rows_and_is_written_as_the_fork_writes_it(dialect: str, written: int) -> None:
    """AlexeyAB's program writes its iterations times the batch: ten images that were no whole batch are forgotten."""
    cfg = cfg_of("conn output=3 activation=linear", "softmax", net=RATES)
    net = dn.load(cfg, weights_of(np.zeros(579, np.float32), version=(0, 1, 0), seen=10, seen_bytes=4), dialect=dialect)
    for step in range(2):
        net.train_step(*batch(step))
    assert net.seen == 26
    again = dn.load(cfg, net.to_bytes(), dialect=dialect)
    assert again.seen == written
    assert again.header.version == ("0.2.0" if dialect == "pjreddie" else "0.2.5")


def test_the_rate_is_that_of_the_iteration_after_the_rows() -> None:
    net = network(net=f"{RATES} burn_in=4 power=1")
    rates = []
    for step in range(5):
        net.train_step(*batch(step))
        rates.append(net.progress.rate)
    np.testing.assert_allclose(rates, [0.025, 0.05, 0.075, 0.1, 0.1], rtol=1e-7)
    net.seen = 0
    assert net.learning_rate == 0
    net.train_step(*batch(0))
    assert net.header.seen == 8


def test_policy_random_draws_from_the_networks_generator() -> None:
    net = network(net=f"{RATES} policy=random power=1")
    net.generator = np.random.default_rng(8)
    net.train_step(*batch(0))
    want = np.float32(0.1) * np.random.default_rng(8).random(dtype=np.float32)
    assert net.progress.rate == pytest.approx(float(want), rel=1e-7)


def test_a_clone_goes_on_where_the_network_is() -> None:
    net = network(net=f"{RATES} burn_in=4 power=1")
    net.settings = replace(net.settings, momentum=0.5)
    net.train_step(*batch(0))
    made = net.clone()
    assert (made.seen, made.learning_rate, made.settings.momentum) == (8, net.learning_rate, 0.5)
    assert made.train_step(*batch(1)) == net.train_step(*batch(1))


# --- what moves -----------------------------------------------------------------------------------------------------------------


def test_everything_moves() -> None:
    assert moved(network()) == [ALL, ALL, {"weights", "biases"}, set()]


def test_freezing_keeps_parameters_or_rolling_arrays() -> None:
    net = network()
    net.freeze(statistics=False)
    assert moved(net) == [ROLLING, ROLLING, set(), set()]
    net = network()
    net.freeze(parameters=False)
    assert moved(net) == [ALL - ROLLING, ALL - ROLLING, {"weights", "biases"}, set()]
    net.freeze(parameters=None, statistics=False)
    assert moved(net)[0] == ALL
    net.freeze(layers=[0])
    assert moved(net) == [set(), ALL, {"weights", "biases"}, set()]
    net.freeze(parameters=False, statistics=False)
    assert moved(net) == [ALL, ALL, {"weights", "biases"}, set()]


def test_what_came_together_while_frozen_is_no_steps() -> None:
    frozen, fresh = network(), network()
    frozen.freeze()
    for step in range(3):
        frozen.train_step(*batch(step))
    frozen.freeze(parameters=False, statistics=False)
    for net in (frozen, fresh):
        net.train_step(*batch(7))
    assert parameters(frozen) == parameters(fresh)


@pytest.mark.parametrize("profile", ["textbook", "alexeyab-cpu"])
def test_dont_update_train_only_bn_and_stopbackward(profile: str) -> None:
    last = set() if profile == "alexeyab-cpu" else {"weights", "biases"}
    whole = ALL - {"biases"} if profile == "alexeyab-cpu" else ALL
    assert moved(network("dont_update=2", profile=profile), 2) == [ROLLING, whole, last, set()]
    assert moved(network("dont_update=2", profile=profile), 3) == [whole, whole, last, set()]
    assert moved(network("", "train_only_bn=1", profile=profile)) == [ROLLING, ROLLING, last, set()]
    assert moved(network("", "stopbackward=1", profile=profile)) == [ROLLING, ROLLING, last, set()]


def test_a_program_that_does_not_read_them_trains_on() -> None:
    net = network("dont_update=2", "train_only_bn=1", profile="pjreddie-cpu", dialect="pjreddie")
    assert moved(net) == [ALL, ALL, {"weights", "biases"}, set()]


def test_onlyforward_passes_a_layer_over() -> None:
    assert moved(network("", "onlyforward=1"))[1] == ROLLING


def test_learning_rate_of_a_layer_is_a_factor() -> None:
    slow, fast = network("learning_rate=.5"), network()
    start = slow.layers[0].weights.copy()
    for net in (slow, fast):
        net.train_step(*batch(0))
    np.testing.assert_allclose(slow.layers[0].weights - start, (fast.layers[0].weights - start) / 2, rtol=2e-2, atol=1e-8)


# --- Adam -----------------------------------------------------------------------------------------------------------------------


def adam(values: Any, gradients: list[Array], decay: float, rate: float) -> Any:
    """The definition, in double: moments of the gradients with decay, each step by their corrected ratio."""
    x, m, v = values.astype(np.float64), 0.0, 0.0
    for t, gradient in enumerate(gradients, start=1):
        d = gradient.astype(np.float64) - decay * x
        m, v = 0.9 * m + 0.1 * d, 0.999 * v + 0.001 * d**2
        x = x + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
    return x


def test_adam_moves_by_its_definition_and_begins_each_gradient_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(net="batch=8 learning_rate=.01 decay=.01 adam=1")
    gradients: dict[str, list[Array]] = {"weights": [], "biases": [], "scales": []}
    from pydarknetbn.training import stepping

    step = stepping.adam_step

    def spy(*given: Any, **options: Any) -> None:
        for name, updates in (("weights", "weight_updates"), ("biases", "bias_updates"), ("scales", "scale_updates")):
            gradients[name].append(getattr(net.layers[0], updates).copy())
        step(*given, **options)

    monkeypatch.setattr(stepping, "adam_step", spy)
    start = {name: array.copy() for name, array in net.layers[0].params.items()}
    for number in range(4):
        net.train_step(*batch(number))
    for name, found in gradients.items():
        got = getattr(net.layers[0], name)
        assert np.abs(got - start[name]).min() > 1e-4
        np.testing.assert_allclose(got, adam(start[name], found, 0.08, 0.01), rtol=0, atol=2e-6)
    assert not net.layers[0].weight_updates.any()


def test_on_the_cpu_the_forks_train_with_momentum_whatever_adam_says() -> None:
    nets = [network(net=f"{RATES} adam={adam}", profile="pjreddie-cpu") for adam in (0, 1)]
    for net in nets:
        net.train_step(*batch(0))
    assert parameters(nets[0]) == parameters(nets[1])
    assert nets[1].training_faults[-1] == (
        "pjreddie-cpu: adam=1 has no effect: the program trains with momentum on the CPU, and has Adam on a GPU only"
    )
