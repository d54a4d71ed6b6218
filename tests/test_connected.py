"""The connected layer against recorded numbers, the sum in its order, a float64 definition and values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core import CoreLayer, assert_same_bits, connected, recorded, recorded_files
from hosts import check_backward, check_forwards
from pydarknetbn._native import Array
from pydarknetbn.errors import NumericsError, ShapeError

CASES = recorded_files("connected/*-cpu/*.npz")


def layer_of(path: Path, params: Array, activation: str) -> CoreLayer:
    _, inputs, outputs, batch_normalize = (int(value) for value in params)
    return connected(path.parent.name, activation, inputs, outputs, bool(batch_normalize))


def activation_of(path: Path) -> str:
    return path.stem.split("_")[3]


@pytest.mark.parametrize("path", CASES)
def test_forward_is_the_recorded_one(path: Path, threads: int, functions: str) -> None:
    inputs, want, _ = recorded(path)
    check_forwards(lambda activation: layer_of(path, inputs["params"], activation), activation_of(path), inputs, want)


@pytest.mark.parametrize("path", CASES)
def test_backward_and_update_are_the_recorded_ones(path: Path, threads: int, functions: str) -> None:
    inputs, want, _ = recorded(path)
    activation = activation_of(path)
    check_backward(layer_of(path, inputs["params"], activation), activation, inputs, want)


def filled(inputs: int, outputs: int, profile: str = "pjreddie-cpu") -> CoreLayer:
    rng = np.random.default_rng(inputs * 1000 + outputs)
    layer = connected(profile, "linear", inputs, outputs, batch_normalize=False)
    for name in ("weights", "biases"):
        layer.array(name)[...] = rng.normal(size=layer.array(name).shape)
    return layer


SIZES = [(1, 1), (1, 9), (7, 1), (10, 7), (33, 8), (64, 17), (700, 65)]


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_each_sum_runs_from_the_first_input_to_the_last(inputs: int, outputs: int, threads: int) -> None:
    """float32 products, accumulated one after the other from 0: NumPy's accumulate rounds each step as the core must."""
    layer = filled(inputs, outputs)
    x = np.random.default_rng(5).normal(size=(3, inputs)).astype(np.float32)
    products = x[:, None, :] * layer.array("weights").reshape(outputs, inputs)
    started = np.concatenate([np.zeros((3, outputs, 1), np.float32), products], axis=2)
    want = np.add.accumulate(started, axis=2)[..., -1] + layer.array("biases")
    assert_same_bits(layer.forward(x), want, "output")


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_forward_is_the_definition(inputs: int, outputs: int) -> None:
    """Bound: a sum of k float products in any order is within k * 2^-24 of the sum of their magnitudes; one more for the bias."""
    layer = filled(inputs, outputs)
    x = np.random.default_rng(6).normal(size=(2, inputs)).astype(np.float32)
    weights = layer.array("weights").reshape(outputs, inputs).astype(np.float64)
    biases = layer.array("biases").astype(np.float64)
    want = x.astype(np.float64) @ weights.T + biases
    size = np.abs(x.astype(np.float64)) @ np.abs(weights.T) + np.abs(biases)
    assert np.all(np.abs(layer.forward(x).reshape(want.shape) - want) <= (inputs + 1) * 2.0**-24 * size)


def test_by_hand() -> None:
    layer = connected("pjreddie-cpu", "leaky", 3, 2, batch_normalize=False)
    layer.array("weights")[...] = [1, 2, 3, -1, 0, -1]
    layer.array("biases")[...] = [0.5, 0]
    assert layer.forward(np.array([[1, 1, 1], [0, 2, 4]], np.float32)).reshape(2, 2).tolist() == [
        [6.5, float(np.float32(-0.2))],
        [16.5, float(np.float32(-0.4))],
    ]


def test_special_values_reach_only_the_sums_that_hold_them() -> None:
    layer = connected("pjreddie-cpu", "linear", 2, 3, batch_normalize=False)
    layer.array("weights")[...] = [1, 0, 0, 1, 1, 1]
    got = layer.forward(np.array([[np.inf, -1], [np.nan, 1]], np.float32)).reshape(2, 3)
    assert np.isnan(got[0, 1]), "0 * inf"
    assert got[0, [0, 2]].tolist() == [np.inf, np.inf]
    assert np.isnan(got[1]).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 1), (1, 0), (2**40, 2**40), (2**62, 1), (2**25, 2**25)])
@pytest.mark.parametrize("batch_normalize", [False, True])
def test_sizes_that_make_no_layer_are_errors(inputs: int, outputs: int, batch_normalize: bool) -> None:
    with pytest.raises((ShapeError, MemoryError)):
        connected("pjreddie-cpu", "linear", inputs, outputs, batch_normalize)


def test_one_row_cannot_be_normalised_in_training_but_in_inference() -> None:
    layer = connected("pjreddie-cpu", "linear", 2, 2, batch_normalize=True)
    x = np.ones((1, 2), np.float32)
    with pytest.raises(NumericsError, match="one value in each channel"):
        layer.forward(x, train=True)
    assert layer.forward(x).ravel().tolist() == [0, 0]
