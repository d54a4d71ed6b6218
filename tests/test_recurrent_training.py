"""Recurrent layers in training: derivatives, and what goes from one batch to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pydarknetbn as dn
from core import same_bits
from nets import cfg_of
from oracle import Doubles, doubles
from pydarknetbn import _native
from pydarknetbn._native import Array, ffi, lib
from pydarknetbn.dialect import PROFILES
from pydarknetbn.recurrence import fresh_state, read_state
from recurrent_oracle import Definition, slopes

STEPS, SEQUENCES = 3, 3
TEXTBOOK = PROFILES["textbook"].batchnorm["connected"]

LAYERS = {
    "rnn": ("rnn output=2 hidden=3 activation=tanh", Definition("rnn", TEXTBOOK, "tanh")),
    "rnn with shortcut": ("rnn output=2 hidden=3 activation=tanh shortcut=1", Definition("rnn", TEXTBOOK, "tanh", shortcut=True)),
    "crnn": (
        "crnn output=2 hidden=3 pad=1 activation=leaky shortcut=1",
        Definition("rnn", TEXTBOOK, "leaky", shortcut=True),
    ),
    "gru": ("gru output=3", Definition("gru", TEXTBOOK)),
    "lstm": ("lstm output=3", Definition("lstm", TEXTBOOK)),
    "conv_lstm": ("conv_lstm output=2 pad=1 activation=leaky", Definition("lstm", TEXTBOOK, "leaky", limit=96)),
    "conv_lstm with peephole": ("conv_lstm output=2 pad=1 peephole=1", Definition("lstm", TEXTBOOK, limit=96)),
    "conv_lstm in its limit": (
        "conv_lstm output=2 pad=1 peephole=1 state_constrain=1",
        Definition("lstm", TEXTBOOK, limit=1),
    ),
    "history": ("history history_size=3", Definition("history", TEXTBOOK, held=3)),
}
WITH_BATCHNORM = [name for name in LAYERS if name != "history"]


def net_of(section: str, profile: str = "textbook", *, steps: int = STEPS) -> dn.Network:
    text = cfg_of(section, net=f"time_steps={steps}", w=3, h=2, c=2)
    net = dn.load(text, dialect="alexeyab", profile=profile, seed=3)
    rng = np.random.default_rng(4)
    for name, array in net.layers[0].params.items():
        array[...] = rng.normal(1 if name.endswith(("scales", "variance")) else 0, 0.7, array.shape)
    return net


def batch(net: dn.Network, seed: int, steps: int = STEPS) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    rows = steps * SEQUENCES
    x = rng.normal(size=(rows, net.c, net.h, net.w)).astype(np.float32)
    return x, rng.normal(size=(rows, *net.layers[-1].out_shape)).astype(np.float32)


def trained(net: dn.Network, seed: int, steps: int = STEPS) -> Array:
    """A training forward and backward; the delta of its input."""
    x, delta = batch(net, seed, steps)
    net.forward(x, train=True)
    return net.backward(delta)


def gradients(net: dn.Network) -> dict[str, Array]:
    """Copies of what the backwards gave, by the name of the parameter; 0 where they gave nothing."""
    found: dict[str, Array] = {}
    for inside, layer in net.layers[0].inner.items():
        for name in layer.shapes:
            if not name.startswith("rolling"):
                updates = {"weights": "weight_updates", "biases": "bias_updates", "scales": "scale_updates"}[name]
                there = getattr(layer.owner(updates), updates) != ffi.NULL
                found[f"{inside}.{name}"] = getattr(layer, updates).copy() if there else np.zeros_like(getattr(layer, name))
    return found


# --- derivatives ----------------------------------------------------------------------------------------------------------------


def derivatives(net: dn.Network, definition: Definition, x: Array, delta: Array, start: dict[str, Doubles]) -> dict[str, Doubles]:
    """Slopes of the sum of delta * output, by each parameter and by the input."""
    values = {name: doubles(array).copy() for name, array in net.layers[0].params.items()}
    walked = doubles(x).reshape(STEPS, SEQUENCES, *x.shape[1:]).copy()
    weight = doubles(delta).reshape(STEPS, SEQUENCES, *delta.shape[1:])

    def loss() -> float:
        return float((weight * definition.outputs(values, walked, start)).sum())

    wanted = {name: array for name, array in values.items() if not name.rpartition(".")[2].startswith("rolling")}
    return {name: slopes(loss, array, some_of(array)) for name, array in (wanted | {"x": walked}).items()}


def some_of(array: Doubles) -> NDArray[np.bool_]:
    """Where a slope is measured: everywhere in a small array, else at a dozen places."""
    asked = np.zeros(array.size, bool)
    asked[np.random.default_rng(5).permutation(array.size)[:12]] = True
    return asked.reshape(array.shape)


def check_derivatives(section: str, definition: Definition) -> None:
    """The second of two batches, whose state the first one left, after which no gradient is forgotten."""
    net = net_of(section)
    net.forward(batch(net, 1)[0], train=True)
    start = {name: doubles(array).copy() for name, array in net.state[0].items()}
    x, delta = batch(net, 2)
    output = net.forward(x, train=True)[0]
    parameters = {name: doubles(array) for name, array in net.layers[0].params.items()}
    want = definition.outputs(parameters, doubles(x).reshape(STEPS, SEQUENCES, 2, 2, 3), start)
    assert np.abs(output - want.reshape(output.shape)).max() <= 2e-5 * np.abs(want).max()
    got = {"x": net.backward(delta)} | gradients(net)
    wanted = derivatives(net, definition, x, delta, start)
    assert got.keys() == wanted.keys()
    for name, slope in wanted.items():
        found = got[name].reshape(slope.shape)
        off, largest = np.nanmax(np.abs(found - slope)), np.abs(found).max()
        assert off <= 2e-5 * largest, f"{name}: off by {off} of {largest}"


@pytest.mark.parametrize("name", LAYERS)
def test_backward_is_the_derivative(name):
    check_derivatives(*LAYERS[name])


@pytest.mark.parametrize("name", WITH_BATCHNORM)
def test_backward_through_the_batchnorms_of_each_step_is_the_derivative(name):
    section, definition = LAYERS[name]
    check_derivatives(f"{section} batch_normalize=1", definition)


# --- from one batch to the next -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rnn", "rnn with shortcut", "crnn"])
def test_training_of_an_rnn_begins_and_ends_with_a_state_of_zeros(name):
    net = net_of(LAYERS[name][0], "alexeyab-cpu")
    first = net.forward(batch(net, 1)[0], train=True)[0]
    assert not net.state[0]["state"].any()
    net.state[0]["state"][...] = 5
    assert same_bits(net.forward(batch(net, 1)[0], train=True)[0], first)
    one = batch(net, 1)[0][::SEQUENCES].copy()
    net.forward(one, train=True)  # of fewer sequences
    assert len(net.state[0]["state"]) == 1


@pytest.mark.parametrize("section", ["lstm output=3", "conv_lstm output=2 pad=1"])
def test_state_after_a_backward_is_the_last_step_or_in_the_forks_the_first(section):
    kept = {}
    for profile in ("textbook", "alexeyab-cpu"):
        net = net_of(section, profile)
        trained(net, 1)
        steps = net.layers[0].output.reshape(STEPS, SEQUENCES, *net.layers[0].out_shape)
        kept[profile] = [same_bits(net.state[0]["state"], steps[step]) for step in range(STEPS)]
    assert kept == {"textbook": [False, False, True], "alexeyab-cpu": [True, False, False]}


def test_delta_of_the_cell_goes_into_the_next_batch_until_the_state_is_reset():
    section = "lstm output=3"
    alone, after, reset = (net_of(section, "alexeyab-cpu") for _ in range(3))
    want = trained(alone, 2)
    for net in (after, reset):
        trained(net, 1)
    for net in (after, reset):
        for array in net.state[0].values():
            array[...] = 0
    reset.reset_state(SEQUENCES)
    assert not same_bits(trained(after, 2), want)
    assert same_bits(trained(reset, 2), want)


def test_what_training_goes_on_from_can_be_read_and_given_to_another_network():
    first, second = (net_of("lstm output=3", "alexeyab-cpu") for _ in range(2))
    trained(first, 1)
    with fresh_state(first.layers):
        trained(first, 3)
    second.reset_state(SEQUENCES)
    for name, array in read_state(second.layers, training=True)[0].items():
        array[...] = read_state(first.layers, training=True)[0][name]
    assert same_bits(trained(second, 2), trained(first, 2))


@pytest.mark.parametrize("name", LAYERS)
def test_a_second_backward_of_one_forward_gives_the_same(name):
    net = net_of(LAYERS[name][0])
    x, delta = batch(net, 1)
    net.forward(x, train=True)
    first, once = net.backward(delta), gradients(net)
    assert same_bits(net.backward(delta), first)
    for parameter, twice in gradients(net).items():
        assert np.allclose(twice, 2 * once[parameter], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_backward_of_a_cached_inference_is_that_of_training_where_no_batchnorm_is_inside(name):
    net, other = (net_of(LAYERS[name][0]) for _ in range(2))
    x, delta = batch(net, 1)
    net.forward(x, cache=True)
    other.forward(x, train=True)
    assert same_bits(net.backward(delta), other.backward(delta))
    assert all(same_bits(array, gradients(other)[parameter]) for parameter, array in gradients(net).items())


@pytest.mark.parametrize("name", LAYERS)
def test_training_leaves_inference_as_it_is(name):
    net, other = (net_of(LAYERS[name][0]) for _ in range(2))
    x = batch(net, 2)[0]
    trained(net, 1)
    net.reset_state()
    assert same_bits(net.forward(x)[0], other.forward(x)[0])


def test_layers_inside_move_by_their_gradients():
    net = net_of("rnn output=2 hidden=3 activation=tanh")
    before = {name: array.copy() for name, array in net.layers[0].params.items()}
    trained(net, 1)
    given = gradients(net)
    _native.check(lib.update_layer(net.layers[0].native, ffi.new("update_options *", (10, 0.5, 0.9, 0.0))))
    for name, array in net.layers[0].params.items():
        assert np.allclose(array - before[name], 0.05 * given[name], rtol=1e-4, atol=1e-6), name
        assert given[name].any()


def test_convolutions_inside_learn_nothing_where_the_fork_gives_them_no_rate():
    moved = {}
    for profile, section in {
        "pjreddie-cpu": "crnn output_filters=2 hidden_filters=2",
        "alexeyab-cpu": "crnn output=2 hidden=2 pad=1",
    }.items():
        net = dn.load(cfg_of(section, w=3, h=3, c=2), dialect=profile.removesuffix("-cpu"), profile=profile, seed=1)
        before = {name: array.copy() for name, array in net.layers[0].params.items()}
        trained(net, 1, steps=1)
        _native.check(lib.update_layer(net.layers[0].native, ffi.new("update_options *", (SEQUENCES, 0.1, 0.9, 0.0005))))
        moved[profile] = any(not same_bits(array, before[name]) for name, array in net.layers[0].params.items())
    assert moved == {"pjreddie-cpu": False, "alexeyab-cpu": True}


def test_learning_rate_of_a_section_is_that_of_its_layers_in_no_fork():
    scales = {}
    for profile in ("textbook", "pjreddie-cpu", "alexeyab-cpu"):
        net = net_of("rnn output=2 learning_rate=.5", profile)
        scales[profile] = net.layers[0].native.learning_rate_scale
    assert scales == {"textbook": 0.5, "pjreddie-cpu": 1, "alexeyab-cpu": 1}


# --- refused --------------------------------------------------------------------------------------------------------------------


def test_one_value_in_each_channel_is_refused_before_anything_moves():
    net = net_of("lstm output=3 batch_normalize=1", "alexeyab-cpu")
    before = {name: array.copy() for name, array in net.layers[0].params.items()}
    x = batch(net, 1)[0][:STEPS]
    with pytest.raises(dn.NumericsError, match=r"layer 0 \[lstm\]: one value in each channel has no variance"):
        net.forward(x, train=True)
    assert all(same_bits(array, before[name]) for name, array in net.layers[0].params.items())
    assert len(net.state[0]["state"]) == 0


def test_other_sequences_in_the_training_of_an_lstm_are_refused():
    net = net_of("lstm output=3")
    x, delta = batch(net, 1)
    net.forward(x, train=True)
    with pytest.raises(dn.StateError, match="expected 3 sequences, as many as the state is of, got 1"):
        net.forward(x[:STEPS], train=True)
    net.reset_state()
    net.forward(x[:STEPS], train=True)
    assert net.backward(delta[:STEPS]).any()


@pytest.mark.parametrize("name", LAYERS)
def test_backward_of_a_forward_that_kept_nothing_is_refused(name):
    net = net_of(LAYERS[name][0])
    x, _ = batch(net, 1)
    native: Any = net.layers[0].native
    net.forward(x, train=True)
    net.forward(x)
    _native.check(lib.prepare_delta(native, len(x), lib.DELTA_START_CLEARED))
    state = ffi.new("network_state *")
    state.input, state.batch, state.steps, state.train = ffi.cast("float *", x.ctypes.data), len(x), STEPS, 1
    with pytest.raises(dn.StateError, match="backward needs a training forward before it"):
        _native.check(lib.backward_layer(native, state))


@pytest.mark.parametrize("name", LAYERS)
def test_training_without_memory_is_an_error_and_the_layer_stays_usable(name):
    net, other = (net_of(LAYERS[name][0]) for _ in range(2))
    failures = 0
    for floats in [0, *(2**power for power in range(4, 14))]:
        net.reset_state()
        lib.limit_arrays(floats)
        try:
            trained(net, 1)
        except MemoryError:
            failures += 1
        finally:
            lib.limit_arrays(2**64 - 1)
    assert failures
    net.reset_state()
    assert np.allclose(trained(net, 1), trained(other, 1))
