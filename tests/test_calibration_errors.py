"""Calibration that cannot be: one sentence, nothing changed, on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from calibrating import LINEAR, batches, mixed, on_ranks
from nets import cfg_of, noise


def refusal(kind: type[Exception], net: dn.Network, given: Any, **options: Any) -> str:
    """What it says, with the network as it was."""
    before = net.to_bytes()
    with pytest.raises(kind) as caught:
        net.calibrate(given, **options)
    assert net.to_bytes() == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("sequential", [False, True], ids=["one-pass", "sequential"])
def test_a_batch_that_is_not_finite_is_named_with_layer_and_channel(sequential: bool) -> None:
    given = batches()
    given[2][1, 2, 3, 4] = np.nan
    told = refusal(dn.NumericsError, mixed(), given, sequential=sequential)
    assert told == "<bytes>: batch 2: layer 0 [batchnorm] (line 5), channel 2: mean nan, sum of squares nan; nothing was changed"


def test_a_variance_that_no_float_holds_is_named() -> None:
    net, x = dn.load(cfg_of("batchnorm"), None), noise(2, 3, 8, 8)
    x[:, 1] *= 3e30
    told = refusal(dn.NumericsError, net, [x])
    assert "layer 0 [batchnorm] (line 5), channel 1: mean" in told
    assert told.endswith("and variance inf; nothing was changed")


def test_an_interrupt_changes_nothing() -> None:
    def read(number: int) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return batches()[number]

    for sequential in (False, True):
        refusal_of_interrupt = mixed(LINEAR)
        before = refusal_of_interrupt.to_bytes()
        with pytest.raises(KeyboardInterrupt):
            refusal_of_interrupt.calibrate(read, sequential=sequential)
        assert refusal_of_interrupt.to_bytes() == before


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ([], dn.ShapeError, "expected batches to calibrate with, got none"),
        (noise(2, 3, 8, 8), dn.ShapeError, "expected batches, such as [x], got one array of shape (2, 3, 8, 8)"),
        ([noise(2, 3, 8, 8), noise(2, 3, 8, 9)], dn.ShapeError, "batch 1: expected x of shape (batch, 3, 8, 8), got (2, 3, 8, 9)"),
        ([noise(2, 3, 8, 8).astype(np.float64)], dn.DtypeError, "batch 0: expected x of float32, got float64"),
        ([(noise(2, 3, 8, 8), 1)], dn.DtypeError, "batch 0: expected x to be a NumPy array of float32, got tuple"),
    ],
    ids=["none", "one-array", "shape", "dtype", "tuple"],
)
def test_batches_that_are_none(given: Any, kind: type[Exception], words: str) -> None:
    assert words in refusal(kind, mixed(), given)


def test_one_value_has_no_statistics_to_normalise_with() -> None:
    told = refusal(dn.NumericsError, mixed(), batches((4, 1)))
    assert "batch 1 is one row, and layer 4 [connected] has one pixel: one value has no statistics to normalise with" in told
    mixed().calibrate(batches((4, 1)), sequential=True)  # there the rolling arrays normalise


@pytest.mark.parametrize(
    ("sections", "options", "kind", "words"),
    [
        (("maxpool",), {}, dn.StateError, "<bytes>: has no batchnorm"),
        (("crnn output=2 hidden=2 pad=1 batch_normalize=1",), {}, dn.UnsupportedError, "[crnn] has a batchnorm in its input_layer"),
        (
            ("conv filters=3 size=1 batch_normalize=1", "conv filters=3 size=1 batch_normalize=1 share_index=0"),
            {"sequential": True},
            dn.UnsupportedError,
            "layer 1 shares the batchnorm of layer 0, which would be set before both are measured; calibrate without sequential",
        ),
    ],
    ids=["none", "recurrent", "shared"],
)
def test_networks_that_are_not_calibrated(sections: Any, options: Any, kind: type[Exception], words: str) -> None:
    assert words in refusal(kind, dn.load(cfg_of(*sections), None), batches(), **options)


def test_a_folded_network_has_none_any_more() -> None:
    folded, _ = dn.fold(mixed(LINEAR))
    assert "is folded: its batchnorms are in the weights" in refusal(dn.StateError, folded, batches())


def test_an_iterator_cannot_be_walked_through_for_each_layer() -> None:
    told = refusal(dn.ShapeError, mixed(LINEAR), iter(batches()), sequential=True)
    assert told == "sequential walks through the batches once for each batchnorm; give a sequence or a function"


# --- ranks ----------------------------------------------------------------------------------------------------------------------


def test_where_one_rank_fails_each_says_why() -> None:
    net = mixed()

    def read(number: int) -> Any:
        if number == 3:
            raise dn.ImageError("dog.jpg: cannot be read")
        return batches()[number] if number < 5 else None

    found = on_ranks(3, lambda comm: net.clone().calibrate(read, comm=comm))
    assert [type(each) for each in found] == [dn.ImageError, dn.SyncError, dn.SyncError]
    assert [str(each) for each in found] == ["dog.jpg: cannot be read", *["rank 0 of 3: dog.jpg: cannot be read"] * 2]


def test_ranks_with_other_weights_are_told() -> None:
    def work(comm: Any) -> Any:
        net = mixed()
        net.layers[1].biases[0] += comm.rank == 1
        return net.calibrate(batches(), comm=comm)

    assert str(on_ranks(2, work)[0]) == "rank 1 of 2 calibrates with another weights than rank 0"


def test_ranks_with_unequal_batches_are_told() -> None:
    found = on_ranks(2, lambda comm: mixed().calibrate(batches()[: 2 + 2 * comm.rank], comm=comm))
    assert {str(each) for each in found} == {"rank 0 of 2 has fewer batches than those behind it; give all the same"}
