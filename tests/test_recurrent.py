"""Recurrent layers: each recorded array of two forwards, values by hand, and a state that is kept, read, written and reset."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import libm
import pydarknetbn as dn
from core import LIBM, assert_same_bits, recorded_files, same_bits
from nets import cfg_of, noise, numbered, recorded_run, refusal, weights_of
from pydarknetbn._native import Array

KINDS = {
    "rnn": "rnn output=3 hidden=4 activation=leaky",
    "rnn with shortcut": "rnn output=3 hidden=4 activation=leaky shortcut=1 batch_normalize=1",
    "crnn": "crnn output=2 hidden=3 pad=1 activation=leaky batch_normalize=1",
    "gru": "gru output=3",
    "lstm": "lstm output=3 batch_normalize=1",
    "conv_lstm": "conv_lstm output=2 pad=1",
    "conv_lstm with peephole": "conv_lstm output=2 pad=1 peephole=1 batch_normalize=1 activation=leaky",
}


def net_of(*sections: str, steps: int = 1, dialect: str = "alexeyab", floats: list[float] | None = None, **size: int) -> dn.Network:
    text = cfg_of(*sections, net=f"time_steps={steps}", **({"w": 2, "h": 3, "c": 2} | size))
    return dn.load(text, None if floats is None else weights_of(np.array(floats, np.float32)), dialect=dialect, seed=5)


def column(*values: float) -> Array:
    """One value a row."""
    return np.array(values, np.float32).reshape(-1, 1, 1, 1)


def scalars(net: dn.Network, *rows: float) -> list[float]:
    return net.forward(column(*rows))[0].ravel().tolist()


# --- recorded -------------------------------------------------------------------------------------------------------------------

RECURRENT = re.compile("rnn|crnn|gru|lstm|conv_lstm|history")
PATHS = [case for case in recorded_files("layers/*-cpu/*.npz") if not case.values[0] or RECURRENT.match(case.values[0].stem)]


@pytest.mark.parametrize("path", PATHS)
def test_both_forwards_equal_the_recorded_ones(path, threads, functions):
    net, recorded = recorded_run(path)
    uses_libm = (
        "gru" in path.stem or "lstm" in path.stem or any(f"activation={a}" in path.with_suffix(".cfg").read_text() for a in LIBM)
    )
    layers = {name[:3]: net.layers[int(name[:3])] for name in recorded if name[:3].isdigit()}
    firsts = {index: layer.output.copy() for index, layer in layers.items()}
    x = recorded["input2"]
    net.forward(np.ascontiguousarray(x.reshape(len(x), net.c, net.h, net.w)))
    for index, layer in layers.items():
        for prefix, got in (("", firsts[index]), ("fwd2.", layer.output)):
            (want,) = (array for name, array in recorded.items() if name.startswith(prefix + index))
            if uses_libm and not libm.is_the_recorders():
                assert np.allclose(got.reshape(want.shape), want, rtol=0, atol=1e-6 * np.abs(want).max()), prefix + index
            else:
                assert_same_bits(got, want, f"{path.stem} {prefix}{index}")


# --- values by hand -------------------------------------------------------------------------------------------------------------

# biases and weights of the input, the self and the output layer
RNN = [0, 1, 0, 0.5, 0, 10]


@pytest.mark.parametrize(("shortcut", "want"), [(0, [10, 25, 52.5]), (1, [10, 35, 92.5])])
def test_rnn_adds_its_input_and_half_its_state(shortcut, want):
    section = f"rnn output=1 hidden=1 activation=linear shortcut={shortcut}"
    net = net_of(section, steps=3, w=1, h=1, c=1, floats=RNN)
    # 1; 2 + 0.5 * 1 [+ 1]; 4 + half of that [+ that]; times 10
    assert scalars(net, 1, 2, 4) == want
    assert net.state[0]["state"].ravel().tolist() == [want[-1] / 10]


def test_logistic_changes_the_activation_of_the_self_layer_alone():
    net = net_of("rnn output=1 hidden=1 activation=linear logistic=1", w=1, h=1, c=1, floats=[0, 1, 0, 0, 0, 1])
    assert scalars(net, 3) == [3.5]


def test_rnn_of_the_first_fork_has_as_many_hidden_values_as_outputs():
    section = "rnn output=3 hidden=5"
    hidden = {
        dialect: net_of(section, dialect=dialect).state[0]["state"].shape[1] for dialect in ("pjreddie", "alexeyab", "hank-ai")
    }
    assert hidden == {"pjreddie": 3, "alexeyab": 5, "hank-ai": 5}


@pytest.mark.parametrize(("dialect", "tanh", "want"), [("pjreddie", 0, 0.25), ("pjreddie", 1, 0), ("alexeyab", 1, 0.25)])
def test_gru_without_weights_is_half_its_candidate_of_0(dialect, tanh, want):
    net = net_of(f"gru output=1 tanh={tanh}", dialect=dialect, w=1, h=1, c=1, floats=[0] * 12)
    assert scalars(net, 1) == [want]  # z = logistic(0): half of the state 0 and half of logistic(0) or tanh(0)


def test_gru_keeps_what_its_update_gate_says():
    # uz ur uh wz wr wh, bias and weight each: z is logistic(100 x), the candidate logistic(0)
    net = net_of("gru output=1", steps=3, w=1, h=1, c=1, floats=[0, 100, *[0] * 10])
    assert scalars(net, -100, 100, 0) == [0.5, 0.5, 0.5]
    assert scalars(net, -100, 100, 100) == [0.5, 0.5, 0.5]
    net.state[0]["state"][...] = 7
    assert scalars(net, 100, 0, -100) == [7, 3.75, 0.5]


def test_lstm_that_forgets_nothing_counts():
    # wf wi wg wo uf ui ug uo: biases of 100 open every gate and make the candidate 1
    net = net_of("lstm output=1", steps=3, w=1, h=1, c=1, floats=[*[100, 0] * 4, *[0] * 8])
    scalars(net, 0, 0, 0)
    assert net.state[0]["cell"].ravel().tolist() == [3]
    assert net.state[0]["state"].ravel() == pytest.approx(np.tanh(3), abs=1e-6)


@pytest.mark.parametrize(
    ("option", "steps", "want"), [("", 1, 32), ("", 2, 64), ("state_constrain=5", 1, 5), ("state_constrain=0", 1, 100)]
)
def test_cell_of_a_conv_lstm_has_a_limit(option, steps, want):
    net = net_of(f"conv_lstm output=1 size=1 {option}", steps=steps, w=1, h=1, c=1, floats=[*[100, 0] * 4, *[0] * 8])
    for _ in range(100 // steps):
        net.forward(column(*[0] * steps))
    assert net.state[0]["cell"].ravel().tolist() == [want]


def test_values_of_a_conv_lstm_that_are_not_finite_become_1_over_their_place():
    net = net_of("conv_lstm output=1 size=1 state_constrain=0", w=3, h=1, c=1, floats=[*[0] * 10, 0, 1, 0, 1, 0, 1])
    x = np.array([[[[0, np.nan, np.nan]]]], np.float32)
    assert net.forward(x)[0].ravel().tolist() == [0, 1, 0.5]
    assert net.state[0]["cell"].ravel().tolist() == [0, 1, 0.5]


def test_history_holds_the_newest_first():
    net = net_of("history history_size=3", steps=2, w=1, h=1, c=1)
    rows = column(1, 10, 2, 20)  # two sequences
    assert net.forward(rows)[0].reshape(4, 3).tolist() == [[1, 0, 0], [10, 0, 0], [2, 1, 0], [20, 10, 0]]
    assert net.forward(rows)[0].reshape(4, 3).tolist() == [[1, 2, 1], [10, 20, 10], [2, 1, 2], [20, 10, 20]]


def test_history_of_one_time_step_holds_that_alone():
    net = net_of("history history_size=2", w=1, h=1, c=1)
    for _ in range(2):
        assert net.forward(column(1, 10))[0].reshape(2, 2).tolist() == [[1, 0], [10, 0]]


def test_crnn_of_the_first_fork_takes_height_for_width():
    crnn = {"pjreddie": "crnn output_filters=1 hidden_filters=1", "alexeyab": "crnn output=1 hidden=1 pad=1"}
    shapes = {dialect: net_of(section, dialect=dialect, w=6, h=5).layers[0].out_shape for dialect, section in crnn.items()}
    assert shapes == {"pjreddie": (1, 6, 5), "alexeyab": (1, 5, 6)}


# --- time steps and sequences ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", KINDS.values(), ids=KINDS)
def test_step_by_step_gives_what_a_batch_of_steps_gives(section):
    net, x = net_of(section, steps=4), noise(8, 2, 3, 2)
    together = net.forward(x)[0]
    state = {name: array.copy() for name, array in net.state[0].items()}
    net.reset_state()
    net.time_steps = 1
    apart = [net.forward(x[row : row + 2])[0] for row in range(0, 8, 2)]
    assert same_bits(np.concatenate(apart), together)
    assert all(same_bits(net.state[0][name], array) for name, array in state.items())
    assert not same_bits(apart[0], apart[1])


@pytest.mark.parametrize("section", [*KINDS.values(), "history"], ids=[*KINDS, "history"])
def test_sequences_do_not_see_each_other(section):
    net, x = net_of(section, steps=3), noise(6, 2, 3, 2)
    together = [net.forward(x)[0], net.forward(x)[0]]
    for sequence in (1, 0):
        net.reset_state()
        for whole in together:
            assert same_bits(net.forward(x[sequence::2].copy())[0], whole[sequence::2].copy())


def test_detection_is_one_step_whatever_the_cfg_says():
    head = "yolo mask=0 num=1 classes=1 anchors=2,2"
    net = net_of("crnn output=6 hidden=2 pad=1 activation=linear", head, steps=5, w=8, h=8, c=3)
    net.detect(noise(3, 8, 8))
    assert len(net.state[0]["state"]) == 1


# --- the state ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", KINDS.values(), ids=KINDS)
def test_state_is_kept_written_and_reset(section):
    net, x = net_of(section, steps=2), noise(4, 2, 3, 2)
    first = net.forward(x)[0]
    kept = {name: array.copy() for name, array in net.state[0].items()}
    second = net.forward(x)[0]
    assert not same_bits(first, second)
    for name, array in kept.items():
        net.state[0][name][...] = array
    assert same_bits(net.forward(x)[0], second)
    net.reset_state()
    assert same_bits(net.forward(x)[0], first)
    net.reset_state(2)
    assert all(not array.any() and len(array) == 2 for array in net.state[0].values())


def test_state_can_be_written_before_the_first_forward():
    net = net_of("rnn output=1 hidden=1 activation=linear", w=1, h=1, c=1, floats=RNN)
    net.reset_state(2)
    net.state[0]["state"][...] = column(2, 4)
    assert scalars(net, 0, 1) == [10, 30]


def test_state_is_of_each_recurrent_layer_by_its_number():
    net = net_of("upsample stride=1", "lstm output=4", "connected output=2", "gru output=3")
    shapes = {index: {name: array.shape for name, array in arrays.items()} for index, arrays in net.state.items()}
    assert shapes == {1: {"state": (0, 4, 1, 1), "cell": (0, 4, 1, 1)}, 3: {"state": (0, 3, 1, 1)}}
    net.forward(noise(2, 2, 3, 2))
    assert net.state[1]["cell"].shape == (2, 4, 1, 1)
    assert dn.load(cfg_of("max")).state == {}


def test_views_of_state_and_inner_layers_outlive_the_network():
    net = net_of("lstm output=2")
    net.forward(noise(1, 2, 3, 2))
    inner, cell = net.layers[0].inner["wf"], net.state[0]["cell"]
    want = inner.weights.copy(), cell.copy()
    net.close()
    del net
    gc.collect()
    assert same_bits(inner.weights, want[0])
    assert same_bits(cell, want[1])


def test_comparing_two_networks_leaves_their_state():
    net = net_of("conv filters=2 size=1 batch_normalize=1", "crnn output=2 hidden=2 pad=1 activation=leaky")
    net.layers[0].rolling_variance[...] = 1
    x = noise(1, 2, 3, 2)
    net.forward(x)
    before = net.state[1]["state"].copy()
    folded, report = dn.fold(net, check=noise(3, 2, 3, 2))
    assert same_bits(net.state[1]["state"], before)
    assert len(folded.state[1]["state"]) == 0
    assert max(difference.relative for difference in report.differences) < 1e-5


# --- files ----------------------------------------------------------------------------------------------------------------------

ORDER = {
    ("lstm", "pjreddie"): "wi wf wo wg ui uf uo ug",
    ("lstm", "alexeyab"): "wf wi wg wo uf ui ug uo",
    ("lstm", "hank-ai"): "wf wi wg wo uf ui ug uo",
    ("gru", "pjreddie"): "wz wr wh uz ur uh",
    ("gru", "alexeyab"): "uz ur uh wz wr wh",
    ("rnn", "pjreddie"): "input_layer self_layer output_layer",
    ("rnn", "alexeyab"): "input_layer self_layer output_layer",
}


@pytest.mark.parametrize(("kind", "dialect"), ORDER)
def test_layers_inside_are_in_the_forks_order(kind, dialect):
    net = net_of(
        f"{kind} output=1 hidden=1", dialect=dialect, w=1, h=1, c=1, floats=list(numbered(2 * len(ORDER[kind, dialect].split())))
    )
    names = [f"{inside}.{array}" for inside in ORDER[kind, dialect].split() for array in ("biases", "weights")]
    assert {name: array.item() for name, array in net.layers[0].params.items()} == dict(
        zip(names, numbered(len(names)), strict=True)
    )


def test_peephole_comes_first_in_the_file_and_only_where_asked_for():
    order = {p: list(net_of(f"conv_lstm output=1 size=1 peephole={p}").layers[0].inner) for p in (0, 1)}
    assert order == {0: "wf wi wg wo uf ui ug uo".split(), 1: "vf vi vo wf wi wg wo uf ui ug uo".split()}


def test_transposed_file_turns_the_matrices_inside():
    cfg = cfg_of("rnn output=2 hidden=2 activation=linear", w=1, h=1, c=3)
    body = numbered(2 + 6 + 2 + 4 + 2 + 4)
    plain, turned = (dn.load(cfg, weights_of(body, version), dialect="alexeyab") for version in ((0, 2, 5), (1001, 0, 0)))
    assert turned.layers[0].inner["input_layer"].weights.tolist() == [[3, 5, 7], [4, 6, 8]]
    assert plain.layers[0].inner["input_layer"].weights.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert turned.to_bytes() == weights_of(body, (1001, 0, 0))


def test_parameters_are_writable_by_either_name():
    net = net_of("crnn output=1 hidden=1 pad=1 batch_normalize=1")
    net.layers[0].params["self_layer.scales"][...] = 7
    assert net.layers[0].inner["self_layer"].scales.tolist() == [7]
    net.layers[0].inner["self_layer"].biases = np.array([3], np.float32)
    assert net.layers[0].params["self_layer.biases"].tolist() == [3]


def test_initial_weights_come_from_the_seed():
    first, same, other = (dn.load(cfg_of("gru output=2"), seed=seed).layers[0].params["wz.weights"] for seed in (1, 1, 2))
    assert same_bits(first, same)
    assert not np.array_equal(first, other)


# --- refused --------------------------------------------------------------------------------------------------------------------

WRONG = {
    "a crnn that shrinks": (["crnn output=1"], 5, "its convolutions have to keep the size, but make 6 x 6 of 8 x 8; set stride=1"),
    "a conv_lstm with a stride": (["conv_lstm output=1 pad=1 stride=2"], 5, "but make 4 x 4 of 8 x 8"),
    "groups that do not divide": (["conv_lstm output=2 pad=1 groups=2"], 5, "3 channels and 2 filters do not both divide into 2"),
    "a negative limit": (["conv_lstm output=1 pad=1 state_constrain=-1"], 8, "state_constrain='-1', expected 0 or more"),
    "no output": (["lstm output=0"], 6, "output='0', expected 1 or more"),
    "no hidden value": (["rnn hidden=0"], 6, "hidden='0', expected 1 or more"),
    "no history": (["history history_size=0"], 6, "history_size='0', expected 1 or more"),
    "a history too long": (["max", "history history_size=2147483647", "history history_size=2147483647"], 8, "too large"),
}


@pytest.mark.parametrize(("sections", "line", "words"), WRONG.values(), ids=WRONG)
def test_options_that_make_no_layer_are_refused_with_their_line(sections, line, words):
    message = refusal(dn.CfgError, cfg_of(*sections))
    assert message.startswith(f"<bytes>:{line}: ")
    assert words in message


def test_batch_that_is_no_multiple_of_the_time_steps_is_refused():
    net = net_of("lstm output=2", steps=3)
    with pytest.raises(dn.ShapeError, match=r"layer 0 \[lstm\]: expected a batch that divides into 3 time steps .*, got 4 rows"):
        net.forward(noise(4, 2, 3, 2))
    assert net.forward(noise(6, 2, 3, 2))[0].shape == (6, 2, 1, 1)


def test_other_sequences_than_those_of_the_state_are_refused_and_change_nothing():
    net, x = net_of("gru output=2"), noise(3, 2, 3, 2)
    net.forward(x[:2])
    before = net.state[0]["state"].copy()
    with pytest.raises(dn.StateError, match="expected 2 sequences, as many as the state is of, got 3; reset the state"):
        net.forward(x)
    assert same_bits(net.state[0]["state"], before)
    net.reset_state()
    assert net.forward(x)[0].shape == (3, 2, 1, 1)


@pytest.mark.parametrize("steps", [0, -1])
def test_time_steps_below_one_are_refused(steps):
    net = net_of("gru output=2")
    net.time_steps = steps
    with pytest.raises(ValueError, match=f"expected time_steps to be 1 or more, got {steps}"):
        net.forward(noise(2, 2, 3, 2))
    with pytest.raises(ValueError, match="expected sequences to be 1 or more"):
        net.reset_state(steps)


def test_state_too_large_is_an_error_and_the_layer_stays_usable():
    net = net_of("lstm output=2")
    with pytest.raises(MemoryError):
        net.reset_state(2**62)
    assert net.forward(noise(1, 2, 3, 2))[0].shape == (1, 2, 1, 1)


def test_option_that_only_the_gpu_reads_is_told():
    (warning,) = net_of("conv_lstm output=1 pad=1 lstm_activation=leaky shortcut=1 time_normalizer=.5").warnings
    assert "lstm_activation=leaky, but on the CPU it is always tanh" in warning
