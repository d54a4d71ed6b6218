"""A network over several ranks: its steps, what it refuses, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import TINY, cfg_of
from pydarknetbn import sync
from pydarknetbn._native import Array
from pydarknetbn.training import clear_gradients
from ranks.checks import normal
from ranks.comms import Comm
from ranks.threads import in_threads, results_in_threads
from trainings import CLASSIFIER, batch, network, parameters

SHARED = cfg_of(
    "convolutional batch_normalize=1 filters=3 size=3 pad=1 activation=leaky",
    "convolutional batch_normalize=1 filters=3 size=3 pad=1 activation=leaky share_index=0",
    "connected output=3 activation=linear",
    "softmax",
    net="batch=8 learning_rate=.1 momentum=.9 decay=.01",
)


def over_two(work: Callable[[Any], Any]) -> list[Any]:
    return results_in_threads(sync.local(2, timeout=20), work)


# --- steps ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["textbook", "pjreddie-cpu", "alexeyab-cpu"])
def test_a_detector_trains_on_two_ranks_as_on_one(profile: str) -> None:
    """cfg/tiny-yolo.cfg: losses of both heads, parameters and rolling arrays after three steps; ranks of 1 and 3 pictures."""
    x = np.random.default_rng(1).random((4, 3, 32, 32), np.float32)
    labels = [np.array([[n % 3, 0.2 + 0.1 * n, 0.5, 0.3, 0.2 + 0.1 * n]], np.float32) for n in range(4)]

    def work(comm: Any) -> tuple[list[float], list[Array]]:
        rows = slice(None) if comm.size == 1 else (slice(0, 1), slice(1, 4))[comm.rank]
        net = dn.load(TINY, seed=7, profile=profile)
        net.settings = replace(net.settings, subdivisions=1, learning_rate=0.001)
        net.sync_bn(comm)
        losses = [net.train_step(x[rows], labels[rows]) for _ in range(3)]
        return losses, [array.copy() for layer in net.layers for array in layer.params.values()]

    (want_losses, want), *ranks = work(sync.local(1)[0]), *over_two(work)
    assert want_losses[0] > 1
    for losses, arrays in ranks:
        np.testing.assert_allclose(losses, want_losses, rtol=1e-5)  # its parameters are a few ulp off from the second step on
        for got, expected, first in zip(arrays, want, ranks[0][1], strict=True):
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
            assert np.array_equal(got, first)


@pytest.mark.parametrize("cfg", [SHARED, CLASSIFIER.replace(b"probability=.25", b"probability=0")], ids=["shared", "subdivisions"])
def test_momentum_decay_shared_kernels_and_subdivisions_are_as_on_one_rank(cfg: bytes) -> None:
    """The joined batch has the ranks' subdivisions one after another."""
    parts = dn.load(cfg).settings.subdivisions
    mine = [np.arange(0, 4), np.arange(4, 8)]
    joined = np.concatenate([rows.reshape(parts, -1) for rows in mine], axis=1).ravel()

    def work(comm: Any) -> tuple[bytes, list[Array], int]:
        net = dn.load(cfg, seed=3, profile="textbook")
        net.sync_bn(comm)
        for step in range(3):
            x, truth = batch(step)
            rows = joined if comm.size == 1 else mine[comm.rank]
            net.train_step(x[rows], truth[rows])
        return parameters(net), [array.copy() for layer in net.layers for array in layer.params.values()], net.seen

    (_, want, seen), one, two = work(sync.local(1)[0]), *over_two(work)
    assert one[0] == two[0]
    assert one[2] == two[2] == seen == 24
    for got, expected in zip(one[1], want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("profile", ["textbook", "pjreddie-cpu", "alexeyab-cpu"])
def test_gradients_of_shared_kernels_are_as_without_ranks(profile: str) -> None:
    """In the forks layers that share a kernel share the last one's mean and variance in a backward, but not x_norm."""
    found = []
    for comm in (None, sync.local(1)[0]):
        net = dn.load(SHARED, seed=3, profile=profile)
        net.sync_bn(comm)
        (output,) = net.forward(normal(1, 8, 3, 8, 8, mean=1, deviation=2), train=True)
        net.backward(normal(2, *output.shape))
        found.append([net.layers[0].scale_updates.copy(), net.layers[0].weight_updates.copy()])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-6 * np.abs(want).max())


def test_a_rank_without_rows_takes_part_in_steps_losses_and_backwards() -> None:
    def work(comm: Any) -> tuple[list[float], bytes]:
        net = network()
        net.sync_bn(comm)
        losses = []
        for step in range(2):
            x, truth = batch(step)
            rows = slice(0, 8 if (step + comm.rank) % 2 or comm.size == 1 else 0)
            losses.append(net.train_step(x[rows], truth[rows]))
        loss = net.loss(x[rows], truth[rows])
        delta = net.backward()
        assert delta.shape == x[rows].shape
        assert (loss.value > 0) == (len(x[rows]) > 0)
        (output,) = net.forward(x[rows], train=True)
        assert output.shape == (len(x[rows]), 3, 1, 1)
        net.backward(np.ones_like(output))
        return losses, parameters(net)

    (want, _), *ranks = work(sync.local(1)[0]), *over_two(work)
    assert ranks[0] == ranks[1]
    np.testing.assert_allclose(ranks[0][0], want, rtol=1e-6)


def test_adam_and_fit_are_as_on_one_rank() -> None:
    def work(comm: Any) -> tuple[Array, bytes, int]:
        net = network(net="batch=8 learning_rate=.01 momentum=.9 decay=.01 adam=1")
        net.sync_bn(comm)
        rows = slice(None) if comm.size == 1 else slice(4 * comm.rank, 4 * comm.rank + 4)
        history = net.fit(([batch(step)[0][rows], batch(step)[1][rows]] for step in range(3)), progress=False)
        return history.loss, parameters(net), history.statistics[0].n

    (want, _, _), one, two = work(sync.local(1)[0]), *over_two(work)
    assert one[1:] == two[1:]
    assert one[2] == 8 * 64
    np.testing.assert_allclose([one[0], two[0]], [want, want], rtol=1e-5)


def test_without_reduce_params_each_rank_takes_its_own_gradients_and_counts_its_own_rows() -> None:
    def work(comm: Any) -> tuple[int, Array, Array]:
        net = network()
        net.sync_bn(comm, reduce_params=False)
        x, truth = batch(0)
        net.train_step(x[4 * comm.rank :][:4], truth[4 * comm.rank :][:4])
        return net.seen, net.layers[0].weights.copy(), net.layers[0].rolling_mean.copy()

    (seen, weights, mean), (other_seen, other_weights, other_mean) = over_two(work)
    assert seen == other_seen == 4
    assert not np.array_equal(weights, other_weights)
    assert np.array_equal(mean, other_mean)


def test_a_random_learning_rate_is_that_of_rank_0() -> None:
    def work(comm: Any) -> tuple[float, bytes]:
        net = network(net="batch=8 learning_rate=.1 policy=random power=2")
        net.generator = np.random.default_rng(comm.rank)
        net.sync_bn(comm)
        x, truth = batch(0)
        net.train_step(x[:4], truth[:4])
        return net.progress.rate, parameters(net)

    one, two = over_two(work)
    assert one[0] == two[0]
    alone = network(net="batch=8 learning_rate=.1 policy=random power=2")
    alone.generator = np.random.default_rng(0)
    alone.train_step(*batch(0))
    assert alone.progress.rate == one[0]


# --- who exchanges what ---------------------------------------------------------------------------------------------------------


def test_a_single_rank_trains_bit_by_bit_as_without_a_communicator() -> None:
    comm, nets = Comm(1), [network(), network()]
    nets[1].sync_bn(comm)
    for net in nets:
        net.train_step(*batch(0))
    assert parameters(nets[0]) == parameters(nets[1])
    assert comm.calls == 0


def test_inference_and_a_clone_send_nothing() -> None:
    comm, net = Comm(2), network()
    net.sync_bn(comm)
    net.forward(batch(0)[0])
    net.clone().forward(batch(0)[0], train=True)
    assert comm.calls == 0
    net.sync_bn(None)
    net.train_step(*batch(0))
    assert comm.calls == 0


def test_one_gather_for_each_batchnorm_forward_and_one_backward() -> None:
    comm, net = Comm(2), network()
    assert sync.convert_sync_batchnorm(net, comm) is net
    (output,) = net.forward(batch(0)[0], train=True)
    assert comm.calls == 1 + 2  # whether all are alike, and two batchnorms
    net.backward(np.ones_like(output))
    assert comm.calls == 1 + 2 + 2
    net.forward(batch(0)[0], train=True)
    assert comm.calls == 1 + 2 + 2 + 2


def test_frozen_layers_take_the_statistics_of_all_and_their_gradients_are_not_sent() -> None:
    def work(comm: Any) -> tuple[bytes, Array, Array]:
        net = network()
        net.freeze(layers=[0])
        net.sync_bn(comm)
        x, truth = batch(0)
        net.train_step(x[4 * comm.rank :][:4], truth[4 * comm.rank :][:4])
        return parameters(net), net.layers[0].mean, net.layers[0].weights

    fresh = network()
    fresh.forward(batch(0)[0], train=True)
    found = over_two(work)
    for _, mean, weights in found:
        np.testing.assert_allclose(mean, fresh.layers[0].mean, rtol=1e-5, atol=1e-7)
        assert np.array_equal(weights, fresh.layers[0].weights)
    assert found[0][0] == found[1][0]


# --- what is refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("convolutional cbn=1 filters=2 size=1", "layer 0 [convolutional]: cbn=1 takes statistics of several minibatches"),
        ("convolutional batch_normalize=2 filters=2 size=1", "layer 0 [convolutional]: cbn=1 takes"),
        (
            "crnn batch_normalize=1 pad=1 output_filters=2 hidden_filters=2",
            "layer 0 [crnn]: its inner layers normalize each time step",
        ),
    ],
)
def test_statistics_that_are_not_the_batchs_are_refused(section: str, said: str) -> None:
    net = dn.load(cfg_of(section), dialect="alexeyab")
    with pytest.raises(dn.UnsupportedError) as caught:
        net.sync_bn(Comm(2))
    assert said in str(caught.value)
    net.sync_bn(Comm(1))  # nothing is asked of it
    net.forward(normal(1, 2, 3, 8, 8), train=True)


def test_recurrent_layers_without_batchnorms_are_not() -> None:
    comm, net = Comm(2), dn.load(cfg_of("crnn pad=1 output_filters=2 hidden_filters=2", "batchnorm"))
    net.sync_bn(comm)
    net.forward(normal(1, 2, 3, 8, 8), train=True)
    assert comm.calls == 2


LONGER = cfg_of("convolutional batch_normalize=1 filters=2 size=1", "batchnorm", "softmax")
OTHERS = {
    "layers": (
        lambda: dn.load(cfg_of("convolutional batch_normalize=1 filters=4 size=1", "batchnorm")),
        "rank 0 has layer 0 [convolutional] 8 x 8 x 3 -> 8 x 8 x 2, normalized over the ranks, "
        "rank 1 has layer 0 [convolutional] 8 x 8 x 3 -> 8 x 8 x 4, normalized over the ranks",
    ),
    "number of layers": (lambda: dn.load(LONGER), "rank 0 has 2 layers, 1 subdivisions, 1 time steps, rank 1 has 3 layers"),
    "profile": (lambda: dn.load(cfg_of(*TWO), profile="textbook", seed=0), "rank 0 has profile torch, rank 1 has profile textbook"),
    "parameters": (lambda: dn.load(cfg_of(*TWO), profile="torch", seed=1), "rank 0 has parameters of checksum"),
}
TWO = ("convolutional batch_normalize=1 filters=2 size=1", "batchnorm")


@pytest.mark.parametrize("what", OTHERS)
def test_ranks_with_another_network_are_told_both(what: str) -> None:
    load, said = OTHERS[what]

    def work(comm: Any) -> None:
        net = load() if comm.rank else dn.load(cfg_of(*TWO), profile="torch" if what in ("profile", "parameters") else None, seed=0)
        net.sync_bn(comm)
        net.forward(normal(1, 2, 3, 8, 8), train=True)

    for error in in_threads(sync.local(2), work):
        assert isinstance(error, dn.SyncError)
        assert said in str(error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda net: setattr(net, "seen", 8), "rank 1 has another number of images seen than rank 0"),
        (lambda net: net.freeze(layers=[0]), "rank 1 has other frozen parameters than rank 0"),
    ],
)
def test_ranks_at_another_step_are_told(change: Callable[[dn.Network], None], said: str) -> None:
    def work(comm: Any) -> None:
        net = network()
        if comm.rank:
            change(net)
        net.sync_bn(comm)
        net.train_step(*batch(0))

    for error in in_threads(sync.local(2), work):
        assert isinstance(error, dn.SyncError)
        assert said in str(error)


@pytest.mark.parametrize(("rows", "said"), [((4, 3), "got 3 of rank 1"), ((0, 0), "got none of any")])
def test_rows_that_make_no_step_are_told_on_every_rank(rows: tuple[int, int], said: str) -> None:
    def work(comm: Any) -> None:
        net = network()
        net.settings = replace(net.settings, subdivisions=2)
        net.sync_bn(comm)
        x, truth = batch(0)
        net.train_step(x[: rows[comm.rank]], truth[: rows[comm.rank]])

    for error in in_threads(sync.local(2), work):
        assert isinstance(error, dn.ShapeError)
        assert said in str(error)


def test_no_rows_are_for_training_over_ranks() -> None:
    net = network()
    with pytest.raises(dn.ShapeError, match=r"got \(0, 3, 8, 8\)"):
        net.forward(np.empty((0, 3, 8, 8), np.float32), train=True)
    net.sync_bn(Comm(2), reduce_params=False)
    with pytest.raises(dn.ShapeError, match="a batch of 0 images has no output"):
        net.forward(np.empty((0, 3, 8, 8), np.float32))
    with pytest.raises(dn.ShapeError, match="expected rows that make 1 equal subdivisions, got 0"):
        net.train_step(batch(0)[0][:0], batch(0)[1][:0])


# --- what goes wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 4, 5, 6, 8, 12])
def test_a_step_that_fails_at_any_exchange_moves_nothing_and_can_be_done_again(calls: int) -> None:
    """But for the momentum, which is forgotten: some of the gradients may have been sums already."""
    comm, net = Comm(2), network()
    net.sync_bn(comm)
    net.train_step(*batch(0))
    needed, before = comm.calls, (parameters(net), net.seen)
    comm.calls, comm.fails_at, comm.error = 0, calls, lambda: dn.SyncError("the line is dead")
    with pytest.raises(dn.SyncError, match="the line is dead"):
        net.train_step(*batch(1))
    assert calls < needed
    assert (parameters(net), net.seen) == before
    comm.fails_at = None
    net.train_step(*batch(1))
    other = network()
    other.sync_bn(Comm(2))
    other.train_step(*batch(0))
    if calls:  # with none, ranks did not begin
        clear_gradients(other.layers)
    other.train_step(*batch(1))
    assert parameters(net) == parameters(other)


def test_a_rank_that_never_comes_is_told_by_the_layer() -> None:
    comm, net = sync.local(4, timeout=0.05)[1], network()
    net.sync_bn(comm)
    with pytest.raises(dn.SyncError) as caught:
        net.forward(batch(0)[0], train=True)
    assert str(caught.value).startswith("<bytes>:9: layer 0 [convolutional]: rank 1 of 4 waited for the others for 0.05 seconds")
    assert not net.layers[0].rolling_mean.any()
    net.sync_bn(None)
    net.train_step(*batch(0))


def test_a_forward_that_fails_behind_a_layer_leaves_that_ones_rolling_arrays_too() -> None:
    comm, net = Comm(2, fails_at=2, error=lambda: dn.SyncError("the line is dead")), network()
    net.sync_bn(comm)
    with pytest.raises(dn.SyncError, match=r"layer 1 \[convolutional\]: the line is dead"):
        net.forward(batch(0)[0], train=True)
    assert not net.layers[0].rolling_mean.any()
    with pytest.raises(dn.StateError, match="backward needs forward"):
        net.backward(np.ones((8, 3, 1, 1), np.float32))


def test_threads_that_run_their_networks_at_the_same_time_do_not_wait_for_each_others_pool() -> None:
    """Images large enough that every pass asks for the process's pool of threads; one of the ranks dies."""
    x = normal(1, 2, 3, 64, 64)

    def work(comm: Any) -> int:
        net = dn.load(cfg_of(*LAYERS_OF_SIZE, w=64, h=64), profile="textbook", seed=1)
        net.sync_bn(comm)
        for step in range(6):
            if step == 4 and comm.rank == 2:
                raise MemoryError
            net.forward(x, train=True)
        return 0

    with dn.num_threads(2):
        found = in_threads(sync.local(4, timeout=2), work)
    assert [type(each) for each in found] == [dn.SyncError, dn.SyncError, MemoryError, dn.SyncError]


LAYERS_OF_SIZE = ["convolutional batch_normalize=1 filters=8 size=3 pad=1 activation=leaky"] * 3
