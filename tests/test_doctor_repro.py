"""The smallest files that show a difference, and that they do."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from pydarknetbn.errors import StateError, UnsupportedError

CFG = b"""[net]
width=12
height=12
channels=3
[convolutional]
filters=8
size=3
pad=1
batch_normalize=1
activation=leaky
[convolutional]
filters=6
size=3
pad=1
activation=linear
[shortcut]
from=-1
activation=leaky
"""


@pytest.fixture
def net():
    made = dn.load(CFG, seed=1)
    generator = np.random.default_rng(2)
    layer = made.layers[0]
    layer.rolling_mean[...] = generator.normal(0, 0.5, 8)
    layer.rolling_variance[...] = 10.0 ** generator.uniform(-4, 0, 8)
    layer.biases[...] = generator.normal(0, 1, 8)
    return made


@pytest.fixture
def x():
    return np.random.default_rng(3).random((2, 3, 12, 12), np.float32)


def theirs(net, x):
    net.forward(x)
    return {f"{layer.index}": layer.output.copy() for layer in net.layers}


def test_a_wrong_epsilon_is_shown_by_one_filter(net, x, tmp_path, monkeypatch, capsys):
    keras = dn.load(CFG, profile="keras")
    for ours, other in zip(net.layers, keras.layers, strict=True):
        for name, array in ours.params.items():
            other.params[name][...] = array
    found = dn.compare(net, theirs(keras, x), x)
    assert found.cause.kind == "batchnorm.epsilon"
    folder = found.write_repro(tmp_path / "repro")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.txt", "expected.npz", "input.npz", "names.txt", "repro.cfg", "repro.weights",
    ]  # fmt: skip
    again = dn.load(folder / "repro.cfg", folder / "repro.weights")
    assert [layer.out_shape for layer in again.layers] == [(1, 12, 12)]
    from pydarknetbn.cli import main

    monkeypatch.chdir(folder)
    names = ["expected.npz", "--input", "input.npz", "--names", "names.txt", "--profile", "alexeyab-cpu", "-q"]
    monkeypatch.setattr("sys.argv", ["pydarknetbn", "compare", "repro.cfg", "repro.weights", *names])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "epsilon 0.001" in " ".join(capsys.readouterr().out.split())


def test_a_fault_behind_a_value_that_is_right_keeps_the_whole_layer(net, x, tmp_path):
    values = dn.dump(net, x, stages=("sums", "normal", "post"))
    wrong = {name: np.array(values[name]) for name in ("0.sums", "0.normal", "0.post")}
    wrong["0.post"] = np.maximum(wrong["0.normal"], 0)
    found = dn.compare(net, wrong, x)
    assert found.cause.kind == "activation.kind"
    again = dn.load(found.write_repro(tmp_path / "repro") / "repro.cfg")
    assert (again.c, again.layers[0].out_shape.c) == (3, 2)  # of 8 filters; one alone would pass for another activation


def test_an_unknown_fault_in_three_filters_leaves_the_worst_one(net, x, tmp_path):
    values = theirs(net, x)
    for channel, by in ((1, 0.5), (4, 3.0), (5, 1.0)):
        values["0"][:, channel] += by * np.random.default_rng(channel).random((2, 12, 12), np.float32)
    found = dn.compare(net, values, x)
    assert found.cause is None
    assert not found.clean
    folder = found.write_repro(tmp_path / "repro")
    with np.load(folder / "expected.npz") as expected:
        assert np.array_equal(expected["theirs"][0, 0], values["0"][0, 4])


def test_what_is_right_or_there_or_of_several_layers_is_refused_in_one_sentence(net, x, tmp_path):
    values = theirs(net, x)
    with pytest.raises(StateError, match="there is no difference to reproduce"):
        dn.compare(net, values, x).write_repro(tmp_path / "repro")
    values["2"][0, 0] += 1
    wrong = dn.compare(net, values, x)
    with pytest.raises(UnsupportedError, match=r"layer 2 \[shortcut\] \(line 16\), is of no single layer"):
        wrong.write_repro(tmp_path / "repro")
    with pytest.raises(StateError, match="is there already; name a folder that is not"):
        wrong.write_repro(tmp_path)
    assert not (tmp_path / "repro").exists()
