"""Trouble with batch normalization and its folding that users of other programs have reported, each as its smallest input."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of, noise, refusal, weights_of
from pydarknetbn import BatchNorm
from pydarknetbn._native import Array
from pydarknetbn.cli import app
from pydarknetbn.convert import batchnorm

BATCHNORM = "batch_normalize=1 activation=linear"
ONE = cfg_of(f"conv filters=1 {BATCHNORM}", w=1, h=1, c=1)
INSIDE, OUTSIDE = ["alexeyab-cpu", "hank-ai-cpu", "textbook"], ["pjreddie-cpu"]


def column(*values: float) -> Array:
    return np.array(values, np.float32).reshape(-1, 1)


def one_channel(variance: float, weight: float = 1, **options: str) -> dn.Network:
    return dn.load(ONE, weights_of(np.array([0, 1, 0, variance, weight], np.float32)), **options)


# --- batch normalization --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profiles", "gain"), [(INSIDE, 223.606798), (OUTSIDE, 316.127793)], ids=["inside", "outside"])
def test_epsilon_is_added_to_the_variance_and_never_the_larger_of_both(profiles, gain):
    for profile in profiles:
        bn = BatchNorm(1, profile=profile)
        bn.rolling_variance[...] = 1e-5  # where max(variance, epsilon) would give 316.227766
        assert bn.forward(column(1), train=False).item() == pytest.approx(gain, rel=3e-7)


@pytest.mark.parametrize(("profile", "gains"), [("keras", (9.534626, 0.9995004)), ("alexeyab-cpu", (9.995004, 0.999995))])
def test_default_epsilon_of_another_framework_is_a_profile_of_its_own(profile, gains):
    for variance, gain in zip((0.01, 1), gains, strict=True):
        bn = BatchNorm(1, profile=profile)
        bn.rolling_variance[...] = variance
        assert bn.forward(column(1), train=False).item() == pytest.approx(gain, rel=1e-7)


@pytest.mark.parametrize(("profile", "mean", "variance"), [("alexeyab-cpu", 0.25, 1.0666667), ("pjreddie-cpu", 0.025, 1.0066667)])
def test_decay_is_the_share_of_the_old_value_that_is_kept(profile, mean, variance):
    bn = BatchNorm(1, profile=profile)
    bn.rolling_variance[...] = 1
    bn.forward(column(1, 2, 3, 4), train=True)
    assert [bn.rolling_mean.item(), bn.rolling_variance.item()] == pytest.approx([mean, variance], rel=3e-7)


def test_statistics_are_those_of_the_images_given_whatever_batch_and_subdivisions_say():
    text = cfg_of(f"conv filters=1 {BATCHNORM}", w=1, h=1, c=1, net="batch=8 subdivisions=4")
    net = dn.load(text, weights_of(np.array([0, 1, 0, 0, 1], np.float32)), dialect="alexeyab")
    for images, mean, variance in ((2, 1.5, 0.5), (4, 2.5, 1.6666667)):
        net.forward(np.arange(1, images + 1, dtype=np.float32).reshape(-1, 1, 1, 1), train=True)
        assert net.layers[0].mean.item() == mean
        assert net.layers[0].variance.item() == pytest.approx(variance, rel=3e-7)


@pytest.mark.parametrize(("dialect", "gain"), [("pjreddie", 1e6), ("alexeyab", 316.227766), ("hank-ai", 316.227766)])
def test_layer_that_no_training_moved_multiplies_in_inference_and_not_in_training(dialect, gain):
    net = one_channel(0, dialect=dialect)
    x = np.array([1, 3], np.float32).reshape(2, 1, 1, 1)
    assert net.forward(x)[0].ravel().tolist() == pytest.approx([gain, 3 * gain], rel=3e-7)
    assert np.abs(net.forward(x, train=True)[0]).max() < 1
    ones = one_channel(1, dialect=dialect)
    assert ones.forward(x)[0].ravel().tolist() == pytest.approx([1, 3], rel=6e-6)


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_stopbackward_lets_the_rolling_arrays_drift_as_the_forks_do(dialect):
    moved = []
    for option in ("", "stopbackward=1"):
        net = dn.load(cfg_of(f"conv filters=2 {BATCHNORM} {option}"), seed=1, dialect=dialect)
        for seed in (1, 2):
            net.forward(noise(2, 3, 8, 8, seed=seed), train=True)
        layer = net.layers[0]
        assert [*layer.scales, *layer.biases] == [1, 1, 0, 0]
        moved.append(layer.rolling_mean.tobytes() + layer.rolling_variance.tobytes())
        assert layer.rolling_variance.all()
    assert moved[0] == moved[1]


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
def test_batchnorm_of_its_own_works_at_every_size(dialect):
    for size in (4, 8):
        net = dn.load(cfg_of("batchnorm", w=size, h=size, c=2), dialect=dialect)
        x = np.zeros((1, 2, size, size), np.float32)
        x[0, :, ::2] = 2
        root = np.sqrt(size * size / (size * size - 1))  # of the variance over n - 1
        want = np.where(x > 1, 1 / root, -1 / root)
        assert np.allclose(net.forward(x, train=True)[0], want, rtol=2e-5)  # epsilon is 1e-5
        assert net.layers[0].mean.tolist() == [1, 1]
        assert np.isfinite(net.forward(x)[0]).all()


# value and place of the epsilon


@pytest.mark.parametrize(
    ("variance", "outside", "inside"),
    [(1e-6, 999.000999, 301.511345), (0, 1e6, 316.227766), (1e-2, 9.9999, 9.995004), (1, 0.999999, 0.999995)],
)
def test_both_places_of_the_epsilon_are_selected_by_name(variance, outside, inside):
    for profiles, gain in ((OUTSIDE, outside), (INSIDE, inside)):
        for profile in profiles:
            bn = BatchNorm(1, profile=profile)
            bn.rolling_variance[...] = variance
            assert bn.forward(column(1), train=False).item() == pytest.approx(gain, rel=3e-7)


def test_comparison_names_channels_of_small_variance_with_each_conventions_gain():
    text = cfg_of(f"conv filters=4 {BATCHNORM}", f"conv filters=1 {BATCHNORM}", w=1, h=1, c=1)
    net = dn.load(text, seed=1, profile="pjreddie-cpu")
    net.layers[0].rolling_variance[...] = [1e-2, 1e-6, 1, 0]
    net.layers[1].rolling_variance[...] = 1e-3
    found = dn.compare(net, dn.load(text, net.to_bytes(), profile="alexeyab-cpu"), np.ones((1, 1, 1, 1), np.float32))
    assert [(each.layer, each.array, each.channel) for each in found.small_variances] == [
        (0, "rolling_variance", 1),
        (0, "rolling_variance", 3),
    ]
    gains = [each.gains for each in found.small_variances]
    assert gains[0]["√v+1e-06"] == pytest.approx(999.000999, rel=3e-7)
    assert gains[0]["√(v+1e-05)"] == pytest.approx(301.511345, rel=3e-7)
    assert gains[0]["√(v+0.001)"] == pytest.approx(31.606977, rel=3e-7)
    assert gains[1]["√v+1e-06"] == pytest.approx(1e6)
    assert gains[1]["√(v+1e-05)"] == pytest.approx(316.227766, rel=3e-7)
    (note,) = found.notes
    assert note.startswith(
        "layer 0 [convolutional] (line 5): 2 channels have a rolling_variance below 0.001, where the epsilon decides: "
        "channel 3, 0: gain 1000000 by √v+1e-06, 316.227766 by √(v+1e-05)"
    )
    assert json.loads(json.dumps(found.to_json()))["small_variances"][0]["channel"] == 1


def test_comparison_tells_three_layers_of_small_variances_and_counts_the_others():
    text = cfg_of(*[f"conv filters=2 {BATCHNORM}"] * 5, w=1, h=1, c=1)
    net = dn.load(text, seed=1)
    for layer, variance in zip(net.layers, (1e-4, 1e-5, 1e-6, 1e-7, 1), strict=True):
        layer.rolling_variance[...] = variance
    notes = dn.compare(net, net.clone(), np.ones((1, 1, 1, 1), np.float32)).notes
    assert [note.split(" (")[0] for note in notes[:3]] == [f"layer {index} [convolutional]" for index in (3, 2, 1)]
    assert notes[3] == "1 more layers have 2 channels with a variance below 0.001; --json lists all"


# which share is kept, and which variance


def test_momentum_of_pytorch_is_the_share_of_the_new_value():
    bn = BatchNorm(1, profile="torch")
    bn.rolling_mean[...], bn.rolling_variance[...] = 0, 1
    bn.forward(column(1, 2, 3, 4), train=True)
    assert [bn.rolling_mean.item(), bn.rolling_variance.item()] == pytest.approx([0.25, 1.0666667], rel=3e-7)


@pytest.mark.parametrize(
    ("profile", "mean", "variance"), [("pjreddie-cpu", 0.025, 0.016666667), ("alexeyab-cpu", 0.25, 0.16666667)]
)
def test_one_step_from_0_keeps_the_forks_share(profile, mean, variance):
    bn = BatchNorm(1, profile=profile)
    bn.forward(column(1, 2, 3, 4), train=True)
    assert [bn.rolling_mean.item(), bn.rolling_variance.item()] == pytest.approx([mean, variance], rel=3e-7)


@pytest.mark.parametrize(
    ("fork", "keep_and_add", "torch", "keras"), [("pjreddie-cpu", (0.99, 0.01), 0.01, 0.99), ("alexeyab-cpu", (0.9, 0.1), 0.1, 0.9)]
)
def test_momentum_is_converted_both_ways(fork, keep_and_add, torch, keras):
    arrays = {"rolling_mean": np.zeros(1, np.float32), "rolling_variance": np.ones(1, np.float32)}
    assert batchnorm(arrays, source=fork, target="torch").momentum == torch
    assert batchnorm(arrays, source=fork, target="keras").momentum == keras
    assert batchnorm(arrays, source="torch", target=fork).momentum == (0.9, 0.1)
    assert batchnorm(arrays, source="keras", target=fork).momentum == (0.99, 0.01)
    rule = next(profile for profile in dn.profiles() if profile.name == fork).rule("convolutional")
    assert (rule.rolling_keep, rule.rolling_add) == keep_and_add


@pytest.mark.parametrize(
    ("profile", "normal", "kept"),
    [
        ("alexeyab-cpu", (-1.1618915, -0.3872972), 1.6666667),
        ("hank-ai-cpu", (-1.1618915, -0.3872972), 1.6666667),
        ("torch", (-1.3416354, -0.4472118), 1.6666667),
        ("keras", (-1.3411044, -0.4470348), 1.25),
        ("flax", (-1.3416354, -0.4472118), 1.25),
    ],
)
def test_variance_that_normalizes_1_to_4_and_the_one_that_is_kept(profile, normal, kept):
    bn = BatchNorm(1, profile=profile)
    bn.rolling_variance[...] = 0
    got = bn.forward(column(1, 2, 3, 4), train=True).ravel().tolist()
    assert got == pytest.approx([*normal, -normal[1], -normal[0]], rel=3e-7)
    rule = next(each for each in dn.profiles() if each.name == profile).rule("batchnorm")
    assert bn.rolling_variance.item() == pytest.approx(rule.rolling_add * kept, rel=3e-7)


# which mode


def test_info_names_layers_whose_rolling_arrays_are_as_they_start(tmp_path):
    text = cfg_of(*[f"conv filters=2 {BATCHNORM}"] * 3, w=1, h=1, c=1)
    net = dn.load(text, seed=1)
    net.layers[1].rolling_mean[...], net.layers[1].rolling_variance[...] = 0.5, 2
    net.layers[2].rolling_variance[...] = 1  # another framework's start
    (tmp_path / "a.cfg").write_bytes(text)
    files = [str(tmp_path / "a.cfg"), str(tmp_path / "a.weights")]
    net.save(files[1])
    runner = CliRunner()
    assert "the rolling arrays of layers 0, 2 are as before any training" in " ".join(
        runner.invoke(app, ["info", *files]).stdout.split()
    )
    assert json.loads(runner.invoke(app, ["info", *files, "--json"]).stdout)["untrained_statistics"] == [0, 2]
    assert json.loads(runner.invoke(app, ["info", files[0], "--json"]).stdout)["untrained_statistics"] == []
    net.layers[0].rolling_mean[0], net.layers[2].rolling_mean[0] = 0.5, 0.5
    net.save(files[1])
    assert "before any training" not in runner.invoke(app, ["info", *files]).stdout
    assert json.loads(runner.invoke(app, ["info", *files, "--json"]).stdout)["untrained_statistics"] == []


def test_mode_has_to_be_named_at_each_call_of_a_layer():
    with pytest.raises(TypeError, match="train"):
        BatchNorm(1).forward(column(1))


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab", "hank-ai"])
def test_inference_changes_no_buffer_of_a_network(dialect):
    sections = [f"conv filters=3 size=3 pad=1 {BATCHNORM}", f"connected output=4 {BATCHNORM}"]
    net = dn.load(cfg_of(*sections), seed=1, dialect=dialect)
    net.forward(noise(2, 3, 8, 8), train=True)
    net.backward(np.ones((2, 4, 1, 1), np.float32))
    before = digest(net)
    for seed in (1, 2):
        net.forward(noise(2, 3, 8, 8, seed=seed))
    assert digest(net) == before
    net.forward(noise(2, 3, 8, 8, seed=1), train=True)
    assert digest(net) != before


BUFFERS = ("weights", "scales", "biases", "rolling_mean", "rolling_variance", "mean", "variance", "x", "x_norm", "delta")


def digest(net: dn.Network) -> str:
    return hashlib.sha256(b"".join(getattr(layer, name).tobytes() for layer in net.layers for name in BUFFERS)).hexdigest()


# what is frozen


@pytest.mark.parametrize("frozen", [("parameters",), ("statistics",), ("parameters", "statistics")])
def test_each_switch_of_freeze_holds_its_own_arrays_to_the_bit(frozen):
    net = dn.load(cfg_of(f"conv filters=2 {BATCHNORM}"), seed=1, dialect="pjreddie")
    net.freeze(parameters="parameters" in frozen, statistics="statistics" in frozen)
    layer, held = net.layers[0], {}
    for name in ("scales", "biases", "weights", "rolling_mean", "rolling_variance"):
        held[name] = getattr(layer, name).tobytes()
    for seed in (1, 2):
        x = noise(2, 3, 8, 8, seed=seed)
        net.forward(x, train=True)
        net.backward(np.ones((2, 2, 8, 8), np.float32))
    for name, data in held.items():
        kept = not name.startswith("rolling") or "statistics" in frozen
        assert (getattr(layer, name).tobytes() == data) == kept, name


# a [batchnorm] of its own


ALIKE = [profile.name for profile in dn.profiles() if profile.rule("batchnorm") == profile.rule("convolutional")]


@pytest.mark.parametrize("profile", ALIKE)
def test_batchnorm_of_its_own_equals_one_behind_an_identity_kernel(profile):
    """Forwards, a backward and the rolling arrays, at 4x4 and then at 8x8; 1 * x + 0 * other is x to the bit."""
    assert {"pjreddie-cpu", "alexeyab-cpu"} <= set(ALIKE)
    for size in (4, 8):
        alone = dn.load(cfg_of("batchnorm", w=size, h=size, c=2), profile=profile)
        behind = dn.load(cfg_of(f"conv filters=2 size=1 {BATCHNORM}", w=size, h=size, c=2), profile=profile)
        behind.layers[0].weights[...] = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
        for net in (alone, behind):
            net.layers[0].scales[...], net.layers[0].biases[...] = [2, -0.5], [1, 3]
        x, delta = noise(3, 2, size, size), noise(3, 2, size, size, seed=1)
        for train in (True, True, False):
            assert_same_bits(alone.forward(x, train=train)[0], behind.forward(x, train=train)[0], f"output, train={train}")
        for net in (alone, behind):
            net.forward(x, train=True)
        assert_same_bits(alone.backward(delta), behind.backward(delta), "delta of the input")
        for name in ("mean", "variance", "rolling_mean", "rolling_variance", "x_norm", "scale_updates", "bias_updates"):
            assert_same_bits(getattr(alone.layers[0], name), getattr(behind.layers[0], name), name)
        assert np.isfinite(alone.layers[0].scale_updates).all()
        assert alone.layers[0].scale_updates.all()


def test_training_step_of_a_batchnorm_of_its_own_moves_what_its_fork_moves():
    """One program trains it, the other has no update of it; the rolling arrays move in both."""
    for dialect, moves in (("alexeyab", True), ("pjreddie", False)):
        net = dn.load(cfg_of("batchnorm", "cost", w=4, h=4, c=2, net="learning_rate=.1 batch=2"), dialect=dialect)
        x = noise(2, 2, 4, 4)
        net.train_step(x, np.zeros((2, 32), np.float32))
        layer = net.layers[0]
        assert bool((layer.scales != 1).all()) == moves
        assert layer.rolling_mean.all()
        assert np.isfinite(layer.output).all()


def test_layer_of_4x4_may_become_one_of_8x8_and_go_on():
    small, large = noise(2, 2, 4, 4), noise(2, 2, 8, 8)
    resized, fresh = BatchNorm(2), BatchNorm(2)
    resized.forward(small, train=True)
    fresh.rolling_mean, fresh.rolling_variance = resized.rolling_mean, resized.rolling_variance
    for bn in (resized, fresh):
        bn.forward(large, train=True)
        bn.backward(large)
    assert_same_bits(resized.output, fresh.output, "output")
    assert_same_bits(resized.delta, fresh.delta, "delta")
    assert_same_bits(resized.rolling_variance, fresh.rolling_variance, "rolling_variance")


# formula and minibatch


@pytest.mark.parametrize(
    ("profile", "root"), [("pjreddie-cpu", "√v+1e-06"), ("alexeyab-cpu", "√(v+1e-05)"), ("keras", "√(v+0.001)")]
)
def test_dump_says_formula_profile_and_minibatch(profile, root):
    told = json.loads(str(dn.dump(one_channel(1, profile=profile), 0)["__metadata__"]))
    assert told["profile"] == profile
    assert f"normal = (sums - rolling_mean) / ({root}) * scales + biases" in told["formula"]
    assert "those of one minibatch alone, batch / subdivisions images of [net]" in told["formula"]


# negative and tiny variances


def test_load_tells_count_layer_and_channel_of_each_bad_variance_and_strict_refuses():
    text = cfg_of(f"conv filters=3 {BATCHNORM}", f"conv filters=3 {BATCHNORM}", w=1, h=1, c=1)
    net = dn.load(text, seed=1)
    net.layers[0].rolling_variance[...] = [1, -7e-44, -1e-5]
    net.layers[1].rolling_variance[...] = [1, 1, 7e-44]
    negative, denormal = dn.load(text, net.to_bytes()).warnings
    assert "layer 0 [convolutional] (line 5): 2 of 3 values of rolling_variance are negative" in negative
    assert "of channel 1 (then 2)" in negative
    assert "layer 1 [convolutional] (line 9): 1 of 3 values of rolling_variance are denormal" in denormal
    assert "of channel 2" in denormal
    assert refusal(dn.WeightsError, text, net.to_bytes(), strict=True) == f"{negative} (and 1 more)"


# --- folding --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profiles", "gain"), [(INSIDE, 301.511345), (OUTSIDE, 999.000999)], ids=["inside", "outside"])
def test_folded_weight_has_the_gain_of_its_profiles_own_inference(profiles, gain):
    for profile in profiles:
        net = one_channel(1e-6, profile=profile)
        folded, _ = dn.fold(net)
        assert folded.layers[0].weights.item() == pytest.approx(gain, rel=3e-7)
        x = np.ones((1, 1, 1, 1), np.float32)
        assert folded.forward(x)[0].item() == pytest.approx(net.forward(x)[0].item(), rel=3e-7)


@pytest.mark.parametrize("profile", [*INSIDE, *OUTSIDE])
def test_fold_of_32_filters_over_224x224_is_rounding_by_a_stated_bound(profile):
    net = dn.load(cfg_of(f"conv filters=32 size=3 pad=1 {BATCHNORM}", w=224, h=224), seed=5, profile=profile)
    layer, generator = net.layers[0], np.random.default_rng(5)
    layer.rolling_variance[...] = generator.uniform(0.5, 2, 32)
    layer.rolling_mean[...] = generator.normal(0, 1, 32)
    _, report = dn.fold(net, check=generator.normal(0, 1, (1, 3, 224, 224)).astype(np.float32))
    assert 0 < report.worst.relative < 1e-6  # 27 products, each rounded to 2^-24 of a range that is wider than they are
    assert (report.worst.index, report.worst.type) == (0, "convolutional")
