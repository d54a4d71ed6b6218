"""A whole training by `fit`: how long it goes on, what it tells, and what it warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.training.monitoring import Monitor, batch_statistics
from trainings import CLASSIFIER, batch, batches, parameters

HOST = "convolutional batch_normalize=1 filters=4 size=3 pad=1 activation=leaky"


def said(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(each.category is dn.DarknetWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def classifier(profile: str = "textbook", **options: Any) -> dn.Network:
    return dn.load(CLASSIFIER, profile=profile, seed=3, **options)


# --- how long -------------------------------------------------------------------------------------------------------------------


def test_a_classifier_learns_what_a_class_is() -> None:
    """The brightest channel of three; guessing costs 1.1."""
    net = classifier()
    history = net.fit(batches, steps=60)
    assert history.loss[0] > 1
    assert history.loss[-20:].mean() < 0.1
    x, truth = batch(10_000, rows=200)
    assert np.mean(net.forward(x)[0].reshape(200, 3).argmax(1) == truth.argmax(1)) > 0.95


def test_a_step_is_what_train_step_does() -> None:
    fitted, stepped = classifier(), classifier()
    history = fitted.fit(batches, steps=3)
    losses = [stepped.train_step(*batch(step)) for step in range(3)]
    assert history.loss.tolist() == losses
    assert parameters(fitted) == parameters(stepped)
    assert (history.loss.dtype, history.rate.tolist()) == (np.float32, [np.float32(0.05)] * 3)


def test_without_steps_it_ends_with_the_batches_or_at_max_batches() -> None:
    assert classifier().fit(batch(step) for step in range(4)).steps == 4
    net = classifier()
    assert net.fit(batches).steps == 100
    assert net.seen == 800
    assert net.fit(batches).steps == 0
    assert net.fit(batches, steps=2).steps == 2


def test_no_batch_more_than_the_steps_is_taken() -> None:
    taken: list[int] = []

    def counted() -> Iterator[tuple[Array, Array]]:
        for number in range(10):
            taken.append(number)
            yield batch(number)

    classifier().fit(counted(), steps=3)
    assert taken == [0, 1, 2]


def test_a_function_of_batches_is_called_with_the_steps_that_are_done(tmp_path: Any) -> None:
    asked: list[int] = []

    def recorded(first: int) -> Iterator[tuple[Array, Array]]:
        asked.append(first)
        return batches(first)

    classifier().fit(recorded, steps=3, checkpoint=tmp_path / "a")
    classifier().fit(recorded, steps=5, resume=tmp_path / "a.ckpt")
    assert asked == [0, 3]


def test_every_has_to_be_a_number_of_steps() -> None:
    with pytest.raises(ValueError, match="expected every to be 1 or more steps, got 0"):
        classifier().fit([], every=0)


# --- what it tells --------------------------------------------------------------------------------------------------------------


def test_off_a_terminal_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    classifier().fit(batches, steps=2)
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_steps_loss_and_rate_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    history = classifier().fit(batches, steps=1)
    shown = capsys.readouterr().err
    assert "1/1" in shown
    assert f"loss {history.loss[0]:.4g}" in shown
    assert "rate 0.05" in shown
    classifier().fit(batches, steps=1, progress=False)
    assert capsys.readouterr().err == ""


def test_history_tells_of_each_batchnorm_what_its_statistics_are_of() -> None:
    net = classifier()
    history = net.fit(batches, steps=1)
    (told,) = history.statistics
    ratio = net.layers[0].variance.astype(np.float64) / net.layers[0].rolling_variance
    assert (told.layer, told.n) == (0, 4 * 64)
    assert (told.least, told.median, told.most) == pytest.approx((ratio.min(), np.median(ratio), ratio.max()))
    assert f"{history!r}".startswith("History(1 steps, loss ")


def test_a_silent_channel_is_counted_and_left_out_of_the_ratios() -> None:
    net = classifier()
    net.layers[0].weights[1] = 0
    net.train_step(*batch(0))
    (told,) = batch_statistics(net.layers)
    assert told.silent == 1
    assert 0 < told.least < told.most < 1000


# --- warnings -------------------------------------------------------------------------------------------------------------------


def test_what_the_profile_trains_wrongly_is_said_once() -> None:
    net = classifier("alexeyab-cpu")
    assert said(lambda: net.fit(batches, steps=1)) == [f"<bytes>: {fault}" for fault in net.training_faults]
    assert said(lambda: net.fit(batches, steps=1)) == []


def test_statistics_of_few_values_are_said_once() -> None:
    net = dn.load(cfg_of(HOST, "avgpool", "softmax", w=2, h=2, net="learning_rate=.01"), profile="textbook")
    x, truth = np.random.default_rng(1).random((3, 3, 2, 2), np.float32), np.eye(4, dtype=np.float32)[:3]
    sentence = (
        "<bytes>: mean and variance of layer 0 are of n = 12 values, fewer than 16: more rows in a subdivision make them steadier"
    )
    assert said(lambda: net.fit([(x, truth)] * 3)) == [sentence]


def test_a_batch_variance_far_from_the_rolling_one_is_said_once_the_arrays_are_full() -> None:
    """Zeros at first, they hold a tenth too little after 230 forwards with a factor of .99: before that nothing is said."""
    net = dn.load(cfg_of(HOST, "avgpool", "softmax", net="learning_rate=0"), profile="textbook", seed=1)
    x, truth = np.random.default_rng(1).random((4, 3, 8, 8), np.float32), np.eye(4, dtype=np.float32)
    assert said(lambda: net.fit([(x, truth)] * 230)) == []
    sentences = said(lambda: net.fit([(4 * x, truth)] * 2))
    assert len(sentences) == 1
    assert "the batch variance of layer 0 is far from the rolling variance (their ratio: least 1" in sentences[0]
    fresh = dn.load(cfg_of(HOST, "avgpool", "softmax", net="learning_rate=0"), profile="textbook", seed=1)
    assert said(lambda: fresh.fit([(x, truth)] * 2)) == []
    trained = dn.load(cfg_of(HOST, "avgpool", "softmax", net="learning_rate=0"), net.to_bytes(), profile="textbook")
    assert len(said(lambda: trained.fit([(4 * x, truth)]))) == 1
    assert len(said(lambda: trained.fit([(x / 8, truth)]))) == 1


def test_factors_that_are_no_weights_of_a_mean_are_taken_into_account() -> None:
    """One framework adds the new value whole and keeps .999 of the sum."""
    net = dn.load(cfg_of(HOST, "avgpool", "softmax", net="learning_rate=0"), profile="caffe", seed=1)
    x, truth = np.random.default_rng(1).random((4, 3, 8, 8), np.float32), np.eye(4, dtype=np.float32)
    net.fit([(x, truth)] * 700)
    (told,) = batch_statistics(net.layers)
    filled = 1 - 0.999**700
    assert told.median == pytest.approx(1 / filled, rel=1e-2)


def test_a_loss_that_is_no_number_is_said_once() -> None:
    monitor = Monitor((), 0)
    assert list(monitor.look(1.0, 1)) == []
    assert [each.split(";")[0] for each in monitor.look(float("nan"), 1)] == ["the loss is nan"]
    assert list(monitor.look(float("nan"), 1)) == []
