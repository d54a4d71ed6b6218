"""Whole networks: each layer equals the fork's, whatever the batch, the threads and what ran before."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import libm
import pydarknetbn as dn
from core import LIBM, RECORDED, assert_same_bits, recorded_files, same_bits
from nets import CFG, FASTEST, TINY, cfg_of, noise, numbered, ramp, recorded_run, tiny_yolo, weights_of
from pydarknetbn._native import Array

# --- recorded -------------------------------------------------------------------------------------------------------------------

LIBM_TYPES = frozenset(
    {"softmax", "yolo", "Gaussian_yolo", "region", "detection", "gru", "lstm", "conv_lstm", "logistic", "normalization"}
)


def uses_libm(cfg: Path) -> list[bool]:
    """For each layer whether exp, log or tanh has had a part in its output."""
    seen, found = False, []
    for section in dn.read_cfg(cfg, dialect="alexeyab" if "pjreddie" not in cfg.parent.name else "pjreddie").layers:
        seen |= section.type in LIBM_TYPES or section.text("activation", "") in LIBM
        found.append(seen)
    return found


def assert_layer(got: Array, want: Array, name: str, behind_libm: bool) -> None:
    """The same bits; behind an exp, log or tanh that is not the recorder's, 1e-6 of the largest value."""
    if "antialiasing" in name and got.size < want.size:
        want = want.ravel()[: got.size]  # the forks keep the sizes from before the blur, and rests of that behind it
    got = np.asarray(got).reshape(want.shape)
    if behind_libm and not libm.is_the_recorders():
        assert np.allclose(got, want, rtol=0, atol=1e-6 * np.nanmax(np.abs(want)), equal_nan=True), name
    else:
        assert_same_bits(got, want, name)


@pytest.mark.parametrize("path", recorded_files("[ln][ae]*s/*-cpu/*.npz"))  # layers and nets
def test_every_layer_equals_the_recorded_one(path, threads, functions):
    net, recorded = recorded_run(path)
    behind = uses_libm(path.with_suffix(".cfg"))
    names = {name: int(name[:3]) for name in recorded if name[:3].isdigit()}
    assert names
    for name, index in names.items():
        assert_layer(net.layers[index].output, recorded[name], f"{path.stem} {name}", behind[index])


@pytest.mark.parametrize("name", FASTEST)
@pytest.mark.parametrize("profile", ["alexeyab-cpu", "hank-ai-cpu"])
def test_every_layer_of_a_real_model_has_the_recorded_hash(golden, models, name, profile, functions):
    folder = golden / "yolo-fastest" / ("hank-ai" if profile == "hank-ai-cpu" else "")
    recorded = json.loads((folder / f"{name}.json").read_text())["variants"]["unfused"]
    with np.load(golden / "yolo-fastest" / "dog_320.npz") as arrays:
        x = arrays["input"]
    net = dn.load(models / f"{name}.cfg", models / f"{name}.weights", profile=profile)
    net.forward(x)
    outputs = [net.layers[entry["index"]].output for entry in recorded]
    assert len(recorded) == len(net.layers)
    other = [
        entry["index"]
        for entry, output in zip(recorded, outputs, strict=True)
        if list(output.shape) != entry["shape"] or hashlib.sha256(output.tobytes()).hexdigest() != entry["sha256"]
    ]
    heads = [] if libm.is_the_recorders() else [layer.index for layer in net.heads]  # whose logistic is libm's
    assert set(other) <= set(heads)
    for index in other:
        got, want = net.layers[index].output.astype(np.float64), recorded[index]
        assert np.allclose([got.mean(), got.min(), got.max()], [want["mean"], want["min"], want["max"]], rtol=1e-6)


# --- the batch ------------------------------------------------------------------------------------------------------------------


def test_batch_is_the_arrays_whatever_the_cfg_says():
    net = dn.load(CFG / "convolutional.cfg")  # batch=64 subdivisions=16
    assert [net.forward(noise(n, 3, 8, 8))[0].shape for n in (1, 3)] == [(1, 2, 8, 8), (3, 2, 8, 8)]
    assert net.layers[0].output.shape == (3, 2, 8, 8)


@pytest.mark.parametrize("profile", RECORDED)
def test_picture_has_the_same_bits_alone_and_among_others(profile, threads):
    net = tiny_yolo(profile=profile)
    pictures = noise(3, 3, 32, 32)
    pictures[0, 0, 0, 0], pictures[2] = np.nan, 1e30
    together = net.forward(pictures)
    outputs = [layer.output.copy() for layer in net.layers]
    for index in (1, 0, 2, 1):
        for head, all_heads in zip(net.forward(pictures[index : index + 1]), together, strict=True):
            assert same_bits(head, all_heads[index : index + 1])
        assert all(same_bits(layer.output, whole[index : index + 1]) for layer, whole in zip(net.layers, outputs, strict=True))


@pytest.mark.parametrize("profile", RECORDED)
def test_threads_never_change_a_bit(profile):
    net, x, seen = tiny_yolo(profile=profile), noise(2, 3, 32, 32), []
    for count in (1, 2, 3, 7):
        with dn.num_threads(count):
            seen.append([head.tobytes() for head in net.forward(x)])
    assert seen == [seen[0]] * 4


def test_one_net_in_four_threads_gives_what_it_gives_in_one():
    net, inputs = tiny_yolo(), [noise(1, 3, 32, 32, seed=seed) for seed in range(4)]
    want = [[head.tobytes() for head in net.forward(x)] for x in inputs]
    start = threading.Barrier(4)

    def work(index: int) -> int:
        start.wait()
        runs = [[head.tobytes() for head in net.forward(inputs[index])] for _ in range(50)]
        return sum(run != want[index] for run in runs)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0] * 4


# --- results and arrays ---------------------------------------------------------------------------------------------------------


def test_result_is_new_each_time_and_heads_come_in_order():
    net = tiny_yolo()
    first = net.forward(noise(1, 3, 32, 32))
    kept = [head.copy() for head in first]
    net.forward(noise(1, 3, 32, 32, seed=1))
    assert [head.shape for head in first] == [(1, 16, 4, 4), (1, 16, 8, 8)]
    assert all(map(same_bits, first, kept))
    assert all(head.flags.writeable and head.flags.owndata for head in first)


def test_input_is_not_changed():
    x = noise(2, 3, 32, 32)
    before = x.copy()
    tiny_yolo().forward(x)
    tiny_yolo().forward(x, train=True)
    assert same_bits(x, before)


def test_inference_changes_no_parameter_and_training_moves_the_rolling_arrays_alone():
    net = tiny_yolo()
    before = net.to_bytes()
    net.forward(noise(2, 3, 32, 32))
    assert net.to_bytes() == before
    held = {(layer.index, name): array.copy() for layer in net.layers for name, array in layer.params.items()}
    net.forward(noise(2, 3, 32, 32), train=True)
    moved = {key for key, array in held.items() if not same_bits(net.layers[key[0]].params[key[1]], array)}
    assert moved == {(index, name) for index in (0, 2, 3) for name in ("rolling_mean", "rolling_variance")}


def test_training_step_keeps_the_batchs_statistics():
    net = dn.load(CFG / "batchnorm.cfg", dialect="pjreddie")
    net.forward(ramp(2, 4, 4))
    net.forward(np.array([1, 2, 3, 4], np.float32).repeat(8).reshape(1, 2, 4, 4), train=True)
    layer = net.layers[0]
    assert np.allclose(layer.mean, [1.5, 3.5])
    assert np.allclose(layer.rolling_mean, [0.015, 0.035])
    assert layer.x.shape == layer.x_norm.shape == (1, 2, 4, 4)
    conv = dn.load(CFG / "convolutional.cfg", seed=1)
    conv.forward(noise(3, 3, 8, 8), train=True)
    conv.forward(noise(1, 3, 8, 8))
    assert (conv.layers[0].x.shape, conv.layers[0].output.shape) == ((3, 2, 8, 8), (1, 2, 8, 8))
    assert conv.layers[0].mean.shape == conv.layers[0].variance.shape == (2,)


@pytest.mark.parametrize("profile", RECORDED[:2])
def test_batchnorm_of_its_own_equals_one_behind_an_identity_kernel(profile):
    dialect, arrays = profile.removesuffix("-cpu"), np.array([0.5, -1, 2, 3, 0.1, 0.2, 4, 1e-3], np.float32)
    own = dn.load(CFG / "batchnorm.cfg", dialect=dialect)
    identity = np.concatenate([arrays, np.eye(2, dtype=np.float32).ravel()])
    conv = dn.load(
        cfg_of("conv filters=2 batch_normalize=1 activation=linear", w=4, h=4, c=2), weights_of(identity), dialect=dialect
    )
    for name in conv.layers[0].params:
        if name != "weights" and name in own.layers[0].params:
            own.layers[0].params[name][...] = conv.layers[0].params[name]
    if dialect == "pjreddie":  # its file has no biases there, and they start at 0
        conv.layers[0].biases[...] = 0
    for train in (False, True, False):
        assert same_bits(own.forward(noise(3, 2, 4, 4), train=train)[0], conv.forward(noise(3, 2, 4, 4), train=train)[0])


def test_params_are_writable_views_in_file_order():
    net = dn.load(CFG / "two-convolutions.cfg", weights_of(numbered(116)))
    names = [list(layer.params) for layer in net.layers]
    assert names == [["biases", "scales", "rolling_mean", "rolling_variance", "weights"], ["biases", "weights"]]
    before = net.forward(ramp(3, 8, 8))[0]
    net.layers[1].biases[...] += 64  # exact: the outputs are integers
    assert np.array_equal(net.forward(ramp(3, 8, 8))[0], before + 64)
    with pytest.raises(AttributeError, match=r"layer 1 \[convolutional\] has no scales"):
        _ = net.layers[1].scales


def test_array_before_the_forward_that_makes_it_is_an_error_with_the_name():
    with pytest.raises(dn.StateError, match=r"layer 0 \[convolutional\] has no output yet"):
        _ = dn.load(CFG / "convolutional.cfg").layers[0].output


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_initial_values_follow_the_seed(dialect):
    first, same, other = (dn.load(TINY, dialect=dialect, seed=seed).to_bytes() for seed in (0, None, 1))
    assert first == same != other
    layer = dn.load(TINY, dialect=dialect).layers[2]
    assert np.array_equal([*layer.scales, *layer.biases, *layer.rolling_mean], [1] * 8 + [0] * 16)
    drawn = np.abs(layer.weights / np.sqrt(2 / 36))  # normal in the first fork, uniform from -1 to 1 in the later ones
    assert 2 < drawn.max() < 5 if dialect == "pjreddie" else 0.9 < drawn.max() <= 1


# --- passing on -----------------------------------------------------------------------------------------------------------------


def test_dropout_counts_as_a_layer_and_passes_on():
    net = dn.load(CFG / "dropout.cfg", weights_of(numbered(7)))
    joined = net.forward(ramp(1, 4, 4))[0]
    assert np.array_equal(joined[:, :2], joined[:, 2:])
    assert np.array_equal(joined[:, :2], net.layers[1].output)


def test_a_crop_in_training_is_refused_by_name():
    net = dn.load(cfg_of("crop crop_width=4 crop_height=4"))
    with pytest.raises(dn.UnsupportedError, match=r"\[crop\] in training is not computed; use train=False"):
        net.forward(ramp(3, 8, 8), train=True)


@pytest.mark.parametrize("sections", [["dropout"], ["cost type=sse"], ["dropout", "dropout", "cost"], ["dropout", "max size=1"]])
def test_layers_that_pass_on_give_the_input_as_a_new_array(sections):
    x = ramp(3, 8, 8)
    result = dn.load(cfg_of(*sections)).forward(x)[0]
    assert same_bits(result, x)
    assert not np.shares_memory(result, x)


def test_cost_at_the_end_leaves_the_output_before_it():
    net = dn.load(cfg_of("conv filters=1 activation=linear", "cost type=sse"), weights_of(numbered(4)))
    assert net.forward(ramp(3, 8, 8))[0].shape == (1, 1, 8, 8)
    assert same_bits(net.forward(ramp(3, 8, 8))[0], net.layers[0].output)


def test_net_without_height_takes_flat_arrays():
    net = dn.load(CFG / "connected.cfg")
    assert (net.c, net.h, net.w) == (3, 1, 1)
    assert same_bits(net.forward(noise(4, 3))[0], net.forward(noise(4, 3).reshape(4, 3, 1, 1))[0])


# --- end and misuse -------------------------------------------------------------------------------------------------------------


def test_views_outlive_the_network():
    net = tiny_yolo()
    net.forward(noise(1, 3, 32, 32))
    output, weights = net.layers[4].output, net.layers[2].weights
    kept = output.copy(), weights.copy()
    net.close()
    net.close()
    del net
    gc.collect()
    assert same_bits(output, kept[0])
    assert same_bits(weights, kept[1])


AFTER = {
    "forward": lambda net: net.forward(noise(1, 3, 32, 32)),
    "detect": lambda net: net.detect(noise(3, 32, 32)),
    "to_bytes": lambda net: net.to_bytes(),
    "save": lambda net: net.save(io.BytesIO()),
}


@pytest.mark.parametrize("call", AFTER)
def test_call_after_with_or_close_says_so(call):
    with tiny_yolo() as net:
        AFTER[call](net)
    with pytest.raises(dn.StateError, match="the network is closed; load it again"):
        AFTER[call](net)


def test_parameter_takes_an_augmented_assignment():
    layer = dn.load(CFG / "convolutional.cfg", weights_of(numbered(62))).layers[0]
    layer.biases += 1
    assert layer.biases.tolist() == [2, 3]


WRONG = {
    "a list": ([[0.0]], dn.DtypeError, "got list"),
    "float64": (np.zeros((1, 3, 32, 32)), dn.DtypeError, "float32, got float64"),
    "uint8": (np.zeros((1, 3, 32, 32), np.uint8), dn.DtypeError, "float32, got uint8"),
    "big-endian": (np.zeros((1, 3, 32, 32), ">f4"), dn.DtypeError, "float32, got >f4"),
    "no batch": (noise(3, 32, 32), dn.ShapeError, r"\(batch, 3, 32, 32\), got \(3, 32, 32\)"),
    "empty batch": (noise(0, 3, 32, 32), dn.ShapeError, r"got \(0, 3, 32, 32\)"),
    "channels last": (noise(1, 32, 32, 3), dn.ShapeError, r"got \(1, 32, 32, 3\)"),
    "another size": (noise(1, 3, 32, 33), dn.ShapeError, r"got \(1, 3, 32, 33\)"),
    "a transposed view": (noise(1, 32, 32, 3).transpose(0, 3, 1, 2), dn.ShapeError, "C-contiguous"),
}


@pytest.mark.parametrize(("x", "kind", "words"), WRONG.values(), ids=WRONG)
def test_wrong_array_is_refused_with_expected_and_got(x, kind, words):
    with pytest.raises(kind, match=words):
        tiny_yolo().forward(x)
