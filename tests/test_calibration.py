"""Calibration: rolling arrays become mean and variance over all batches, whoever computes them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

import pydarknetbn as dn
from calibrating import LINEAR, SIZES, batches, mixed, on_ranks, rolling
from nets import cfg_of, noise
from pydarknetbn._native import Array

# --- which numbers --------------------------------------------------------------------------------------------------------------


def test_the_first_layers_arrays_are_of_all_values_at_once() -> None:
    """A [batchnorm] on the input itself, whose statistics depend on no other; the last batch weighs by its rows."""
    net = mixed()
    found = net.calibrate(batches())
    x = np.concatenate(batches()).astype(np.float64)
    assert found.layers[0].n == sum(SIZES) * 64
    np.testing.assert_array_equal(net.layers[0].rolling_mean, x.mean(axis=(0, 2, 3)).astype(np.float32))
    np.testing.assert_allclose(net.layers[0].rolling_variance, x.var(axis=(0, 2, 3)), rtol=1e-7)


def test_each_layer_of_one_pass_normalises_with_its_batch() -> None:
    """With one batch every layer's arrays are what a training forward's are: its mean, and its variance over n instead of n-1."""
    net, (x,) = mixed(), batches((6,))
    trained = net.clone()
    trained.forward(x, train=True)
    found = net.calibrate([x])
    for mine, theirs, told in zip(net.layers, trained.layers, found.layers, strict=True):
        np.testing.assert_allclose(mine.rolling_mean, theirs.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mine.rolling_variance, theirs.variance * (told.n - 1) / told.n, rtol=1e-4)


def test_layer_after_layer_an_inference_over_the_data_is_normal_everywhere() -> None:
    """Of linear layers the outputs have mean biases and deviation |scales|, if all layers before were set when one was measured."""
    net = mixed(LINEAR)
    net.calibrate(batches(), sequential=True)
    outputs: dict[int, list[Array]] = {layer.index: [] for layer in net.layers}
    for x in batches():
        net.forward(x)
        for layer in net.layers:
            outputs[layer.index].append(layer.output.astype(np.float64))
    for layer in net.layers:
        whole = np.concatenate(outputs[layer.index])
        np.testing.assert_allclose(whole.mean(axis=(0, 2, 3)), layer.biases, atol=1e-4)
        np.testing.assert_allclose(whole.std(axis=(0, 2, 3)), np.abs(layer.scales), rtol=1e-4)


def test_layers_that_share_a_batchnorm_give_it_the_values_of_both() -> None:
    sections = ("conv filters=2 size=1 activation=linear", "maxpool size=2 stride=1")
    shared = "conv filters=2 size=1 batch_normalize=1 activation=linear share_index={}"
    net = dn.load(cfg_of(*sections, shared.format(0).split(" share")[0], "route layers=0", shared.format(2)), None, seed=1)
    found = net.calibrate([noise(2, 3, 8, 8)])
    net.forward(noise(2, 3, 8, 8))
    kernel = net.layers[2].weights[:, :, 0, 0].astype(np.float64)
    sums = np.concatenate([np.einsum("fc,bchw->bfhw", kernel, net.layers[at].output.astype(np.float64)) for at in (1, 3)])
    assert [(layer.layer, layer.n) for layer in found.layers] == [(2, 256)]
    np.testing.assert_allclose(net.layers[2].rolling_mean, sums.mean(axis=(0, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(net.layers[4].rolling_variance, sums.var(axis=(0, 2, 3)), rtol=1e-4)


def test_nothing_but_the_rolling_arrays_changes() -> None:
    net = mixed()
    before = {name: array.copy() for layer in net.layers for name, array in _named(layer)}
    net.calibrate(batches())
    changed = {name for layer in net.layers for name, array in _named(layer) if not np.array_equal(array, before[name])}
    assert changed == rolling(net).keys()


def _named(layer: dn.Layer) -> Iterator[tuple[str, Array]]:
    return ((f"{layer.index}.{name}", array) for name, array in layer.params.items())


def test_a_dropout_passes_everything_on() -> None:
    sections = ("batchnorm", "dropout probability=.5", "conv filters=2 size=1 batch_normalize=1 activation=linear")
    with_it, without = mixed(cfg_of(*sections)), mixed(cfg_of(*(section for section in sections if "dropout" not in section)))
    with_it.calibrate(batches())
    without.calibrate(batches())
    np.testing.assert_array_equal(with_it.layers[2].rolling_mean, without.layers[1].rolling_mean)


def test_a_recurrent_state_starts_anew_with_each_batch() -> None:
    cfg = cfg_of("rnn output=4 hidden=4 activation=tanh", "connected output=3 batch_normalize=1 activation=linear", w=1, h=1)
    (one, other), nets = batches((4, 4)), [dn.load(cfg, None, seed=2) for _ in range(2)]
    one, other = one[:, :, :1, :1].copy(), other[:, :, :1, :1].copy()
    nets[0].calibrate([one, other])
    nets[1].calibrate([other, one])
    np.testing.assert_allclose(nets[0].layers[1].rolling_mean, nets[1].layers[1].rolling_mean, rtol=1e-6, atol=1e-7)


# --- the same bits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequential", [False, True], ids=["one-pass", "sequential"])
@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_any_number_of_ranks_gives_the_same_bits(size: int, sequential: bool) -> None:
    """Also more ranks than batches, and a number that does not divide theirs."""
    net = mixed()

    def work(comm: object) -> bytes:
        mine = net.clone()
        mine.calibrate(batches(), sequential=sequential, comm=comm)  # type: ignore[arg-type]
        return mine.to_bytes()

    found = on_ranks(size, work)
    net.calibrate(batches(), sequential=sequential)
    assert found == [net.to_bytes()] * size


def test_any_number_of_threads_gives_the_same_bits() -> None:
    found = set()
    for threads in (1, 2, 3):
        net = mixed()
        with dn.num_threads(threads):
            net.calibrate(batches())
        found.add(net.to_bytes())
    assert len(found) == 1


def test_batches_may_be_a_sequence_a_function_or_anything_to_iterate_over() -> None:
    given = batches()
    kinds = (given, lambda number: given[number] if number < len(given) else None, iter(given))
    found = set()
    for kind in kinds:
        net = mixed()
        net.calibrate(kind)
        found.add(net.to_bytes())
    assert len(found) == 1


def test_each_rank_walks_through_an_iterator_to_its_own_batches() -> None:
    def work(comm: object) -> bytes:
        net = mixed()
        net.calibrate(iter(batches()), comm=comm)  # type: ignore[arg-type]
        return net.to_bytes()

    whole = mixed()
    whole.calibrate(batches())
    assert on_ranks(3, work) == [whole.to_bytes()] * 3


def test_a_rank_asks_for_its_own_batches_alone() -> None:
    def work(comm: object) -> list[int]:
        asked = []

        def read(number: int) -> Array | None:
            asked.append(number)
            return batches()[number] if number < len(SIZES) else None

        mixed().calibrate(read, comm=comm)  # type: ignore[arg-type]
        return asked

    assert on_ranks(2, work) == [[0, 2, 4], [1, 3, 5]]


def test_a_batch_of_no_rows_is_passed_over() -> None:
    with_it, without = mixed(), mixed()
    found = with_it.calibrate([*batches()[:2], np.empty((0, 3, 8, 8), np.float32), *batches()[2:]])
    without.calibrate(batches())
    assert (found.units, found.images) == (6, 19)
    assert with_it.to_bytes() == without.to_bytes()


# --- what is told ---------------------------------------------------------------------------------------------------------------


def test_the_result_tells_old_and_new_arrays_and_their_distance() -> None:
    net = dn.load(cfg_of("batchnorm", c=1, w=2, h=1), None)
    net.layers[0].rolling_mean[...], net.layers[0].rolling_variance[...] = 5, 8
    (layer,) = net.calibrate([np.array([[[[0, 4]]]], np.float32), np.array([[[[0, 4]]]], np.float32)]).layers
    assert (layer.n, layer.mean.tolist(), layer.variance.tolist()) == (4, [2], [4])
    assert (layer.old_mean.tolist(), layer.old_variance.tolist()) == ([5], [8])
    assert (layer.mean_drift.tolist(), layer.variance_ratio.tolist(), layer.drift.tolist()) == ([1.5], [2], [1.5])


def test_the_result_is_a_summary_and_json() -> None:
    net = mixed()
    found = net.calibrate(batches())
    assert str(found).splitlines()[0] == "calibrated 5 batchnorms in one pass over 19 images in 5 batches"
    document = json.loads(json.dumps(found.to_json()))
    assert [layer["layer"] for layer in document["layers"]] == [0, 1, 2, 3, 4]
    assert document["layers"][1]["mean"] == net.layers[1].rolling_mean.tolist()


def test_progress_counts_the_batches_of_all_passes() -> None:
    told: list[tuple[int, int]] = []
    mixed(LINEAR).calibrate(batches((2, 2)), sequential=True, progress=lambda *each: told.append(each))
    assert [pair for at, pair in enumerate(told) if not at or told[at - 1] != pair] == [(number, 6) for number in range(1, 7)]
