"""Folding around a layer: [batchnorm] of its own, shared and transposed kernels, weighted shortcuts, real networks, the verb."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import pydarknetbn as dn
from nets import FASTEST, cfg_of, load_recorded, noise, numbered, tiny_files, tiny_yolo, weights_of
from pydarknetbn.cli import app
from pydarknetbn.dialect import profile_named
from pydarknetbn.folding.arithmetic import root_of

# --- a batchnorm of its own -----------------------------------------------------------------------------------------------------

BIASED = cfg_of("conv filters=1 size=1 activation=linear", "batchnorm", w=1, h=1, c=1)


def with_bias(bias: float, weight: float, beta: float, gamma: float, mean: float, variance: float) -> dn.Network:
    return dn.load(BIASED, weights_of(np.array([bias, weight, beta, gamma, mean, variance], np.float32)), dialect="alexeyab")


def test_bias_of_the_layer_before_is_scaled_too():
    """w = 1.5, bias .25, gamma 6, beta .5, mean 3, variance 4: unscaled it would be -8.2499887, dropped -8.4999887."""
    folded, report = dn.fold(with_bias(0.25, 1.5, 0.5, 6, 3, 4), check=np.full((1, 1, 1, 1), 2, np.float32))
    assert folded.layers[0].biases.item() == pytest.approx(-7.7499897, rel=1e-7)
    assert folded.layers[0].weights.item() == pytest.approx(4.499994375, rel=1e-7)
    assert report.folded[0].absorbed == (1,)
    assert not report.over_budget


def test_folded_batchnorm_becomes_a_route_and_layers_keep_their_numbers():
    cfg = cfg_of(
        "conv filters=4 size=3 pad=1 activation=leaky batch_normalize=1",
        "conv filters=4 size=1 activation=linear batch_normalize=1",
        "batchnorm",
        "route layers=-1,0",
        "shortcut from=-3 activation=linear",
    )
    net = dn.load(cfg.replace(b"from=-3", b"from=3"), None, seed=1)
    rng = np.random.default_rng(4)
    for layer in net.layers[:3]:
        layer.rolling_variance[...], layer.rolling_mean[...] = rng.uniform(0.5, 2, 4), rng.normal(0, 1, 4)
    folded, report = dn.fold(net, check=noise(2, 3, 8, 8))
    assert [layer.type for layer in folded.layers] == ["convolutional", "convolutional", "route", "route", "shortcut"]
    assert [(layer.index, layer.absorbed) for layer in report.folded] == [(0, ()), (1, (2,))]
    assert report.worst.relative < 1e-5
    again = dn.load(folded.origin.cfg.text.encode(), folded.to_bytes())
    assert again.forward(noise(1, 3, 8, 8))[0].tobytes() == folded.forward(noise(1, 3, 8, 8))[0].tobytes()


LEFT = [
    (("conv filters=2 size=1 activation=leaky", "batchnorm"), "layer 0 has an activation between"),
    (("maxpool size=2 stride=2", "batchnorm"), "it does not follow"),
    (("conv filters=2 size=1 activation=linear", "batchnorm", "route layers=0"), "layer 2 reads layer 0 without"),
]


@pytest.mark.parametrize(("sections", "reason"), LEFT)
def test_batchnorm_that_cannot_go_stays_with_its_reason(sections, reason):
    folded, report = dn.fold(dn.load(cfg_of(*sections), None))
    assert report.folded == ()
    assert reason in report.left[0].reason
    assert folded.layers[1].type == "batchnorm"
    with pytest.raises(ValueError, match="expected layers with a batchnorm"):
        dn.fold(dn.load(cfg_of(*sections), None), layers=[1])


def test_batchnorm_of_its_own_needs_that_of_the_layer_before():
    net = dn.load(cfg_of("conv filters=2 size=1 activation=linear batch_normalize=1", "batchnorm"), None)
    for layer in net.layers:
        layer.rolling_variance[...] = 1
    with pytest.raises(ValueError, match=r"layer 1 .* goes into layer 0, whose own batchnorm is to be folded too"):
        dn.fold(net, layers=[1])


# --- kernels of other layouts ---------------------------------------------------------------------------------------------------


def test_transposed_kernel_is_scaled_along_its_outputs():
    """2 inputs, 3 outputs, weights 1 to 6, scales 1, 10, 100, variance 1 less its epsilon's share."""
    cfg = cfg_of("deconv filters=3 size=1 stride=1 activation=linear batch_normalize=1", w=2, h=2, c=2)
    floats = np.array([0, 0, 0, 1, 10, 100, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6], np.float32)
    folded, report = dn.fold(dn.load(cfg, weights_of(floats), dialect="pjreddie"), check=noise(1, 2, 2, 2))
    want = np.array([1, 20, 300, 4, 50, 600]) / 1.000001
    assert folded.layers[0].weights.reshape(-1) == pytest.approx(want, rel=1e-7)
    assert report.worst.relative < 1e-6


def test_square_transposed_kernel_is_not_scaled_along_its_inputs():
    cfg = cfg_of("deconv filters=2 size=1 stride=1 activation=linear batch_normalize=1", w=2, h=2, c=2)
    floats = np.array([0, 0, 1, 10, 0, 0, 1, 1, 1, 2, 3, 4], np.float32)
    folded, _ = dn.fold(dn.load(cfg, weights_of(floats), dialect="pjreddie"))
    assert folded.layers[0].weights.reshape(-1) == pytest.approx([1, 20, 3, 40], rel=1e-5)


def test_groups_are_folded_each_by_its_own_scales():
    net = dn.load(cfg_of("conv filters=6 size=3 pad=1 groups=3 activation=mish batch_normalize=1"), None, seed=1)
    layer = net.layers[0]
    layer.rolling_variance[...], layer.scales[...] = 0.25, numbered(6)
    _, report = dn.fold(net, check=noise(1, 3, 8, 8))
    assert report.worst.relative < 1e-5
    assert report.folded[0].largest_factor == pytest.approx(12, rel=1e-4)


def test_kernel_shared_with_a_layer_without_batchnorm_is_refused():
    cfg = cfg_of(
        "conv filters=3 size=1 activation=leaky batch_normalize=1",
        "conv share_index=-1 filters=3 size=1 activation=leaky",
    )
    net = dn.load(cfg, weights_of(np.abs(numbered(21))))
    net.forward(noise(1, 3, 8, 8))
    with pytest.raises(dn.UnsupportedError, match=r"layer 1 .* shares the weights of layer 0 and has no batchnorm"):
        dn.fold(net)


def test_kernel_shared_without_its_batchnorm_adds_the_biases():
    """Weight 3 and bias 5 of the first layer, whose mean 2 and variance 4 the second does not see."""
    cfg = cfg_of(
        "conv filters=1 size=1 activation=linear batch_normalize=1",
        "conv share_index=-1 filters=1 size=1 activation=linear",
        w=1, h=1, c=1,
    )  # fmt: skip
    net = dn.load(cfg, weights_of(np.array([5, 0, 2, 4, 3], np.float32)), dialect="alexeyab")
    assert net.forward(np.full((1, 1, 1, 1), 7, np.float32))[0].item() == 5 * 3 + 5  # scale 0: the first gives its bias


# --- weighted shortcuts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "want"), [("relu", [0, 3 / 5.0001, 2 / 5.0001]), ("softmax", None)])
def test_weights_of_a_shortcut_are_normalised_once(kind, want):
    cfg = cfg_of(
        "conv filters=3 size=1 activation=linear",
        "conv filters=3 size=1 activation=linear",
        "conv filters=3 size=1 activation=linear",
        f"shortcut from=-2,-3 activation=mish weights_type=per_layer weights_normalization={kind}",
    )
    net = dn.load(cfg, None, seed=3)
    net.layers[3].weights[...] = (-1, 3, 2)
    folded, report = dn.fold(net, check=noise(1, 3, 8, 8))
    if want is None:
        exponentials = np.exp([-4.0, 0, -1])
        want = exponentials / (exponentials.sum() + 0.0001)
    assert folded.layers[3].weights == pytest.approx(want, rel=1e-6)
    assert report.normalized == (3,)
    assert report.worst.largest == 0
    assert "weights_normalization=none" in folded.origin.cfg.text
    assert "itself ends at a [shortcut] with weights and no normalization, which layers 3 are now" in report.notes[0]
    assert dn.fold(folded)[1].normalized == ()


# --- states and files -----------------------------------------------------------------------------------------------------------


def test_network_in_training_is_refused():
    net = tiny_yolo()
    net.forward(noise(2, 3, net.h, net.w), train=True)
    with pytest.raises(dn.StateError, match=r"layer 0 .* is in training; run a forward with train=False"):
        dn.fold(net)
    net.forward(noise(1, 3, net.h, net.w))
    assert dn.fold(net)[1].folded


def test_folded_weights_are_not_saved_beside_the_old_cfg(tmp_path):
    cfg, weights, _ = tiny_files(tmp_path)
    before = weights.read_bytes()
    folded, _ = dn.fold(dn.load(cfg, weights))
    with pytest.raises(dn.StateError, match=r"tiny-yolo\.cfg: has batchnorms that these weights are folded into"):
        folded.save(weights)
    assert weights.read_bytes() == before
    folded.save(tmp_path / "folded.weights")
    (tmp_path / "folded.cfg").write_text(folded.origin.cfg.text)
    folded.save(tmp_path / "folded.weights")


# --- recorded -------------------------------------------------------------------------------------------------------------------

DENORM = [
    ("pjreddie-cpu", "denorm_conv"),
    ("pjreddie-cpu", "denorm_conv_dw"),
    ("pjreddie-cpu", "denorm_connected"),
    ("alexeyab-cpu", "denorm_connected"),
    ("hank-ai-cpu", "denorm_connected"),
]


@pytest.mark.parametrize(("profile", "name"), DENORM)
def test_forks_own_functions_to_the_bit(golden, profile, name):
    recorded = np.load(golden / "fuse" / profile / f"{name}.npz")
    weights = recorded["before.weights"]
    if weights.ndim == 2:
        cfg = (
            f"[net]\ninputs={weights.shape[1]}\n[connected]\noutput={len(weights)}\nbatch_normalize=1\nactivation=linear\n".encode()
        )
    else:
        groups = 6 // weights.shape[1] if weights.shape[1] == 1 else 1
        section = f"conv filters=6 size=3 pad=1 groups={groups} batch_normalize=1 activation=linear"
        cfg = cfg_of(section, c=weights.shape[1] * groups)
    net = dn.load(cfg, None, dialect=profile.removesuffix("-cpu"), profile=profile)
    for array in net.layers[0].params:
        setattr(net.layers[0], array, recorded[f"before.{array}"])
    folded, _ = dn.fold(net, epsilon="fork")
    for array in ("weights", "biases"):
        assert getattr(folded.layers[0], array).tobytes() == recorded[f"after.{array}"].tobytes(), array


@pytest.mark.parametrize("profile", ["alexeyab-cpu", "hank-ai-cpu"])
@pytest.mark.parametrize("name", ["fuse_small", "fuse_batchnorm_layer"])
@pytest.mark.usefixtures("system_functions")
def test_forks_own_fold_of_shortcuts_to_the_bit(golden, profile, name):
    folder = golden / "fuse" / profile
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"{name} is not recorded for {profile}")
    recorded = np.load(folder / f"{name}.npz")
    net = dn.load(folder / f"{name}.cfg", None, dialect=profile.removesuffix("-cpu"), profile=profile)
    for layer in net.layers:
        for array, values in layer.params.items():
            values[...] = recorded[f"before.{layer.index:03d}_{layer.type}.{array}"].reshape(values.shape)
    x = recorded["input"].reshape(-1, net.c, net.h, net.w)
    folded, _ = dn.fold(net, epsilon="fork", check=x)
    folded.forward(x)
    for layer in folded.layers:
        for array, values in layer.params.items():
            assert values.tobytes() == recorded[f"after.{layer.index:03d}_{layer.type}.{array}"].tobytes(), layer
    last = folded.layers[-1]
    assert last.output.tobytes() == recorded[f"out_after.{last.index:03d}_{last.type}"].tobytes()


def test_report_names_the_channel_where_the_forks_fold_leaves_its_inference():
    """Variance 1e-6: sqrt(v) + 1e-6 of the inference is .001001, sqrt(v + 1e-5) of the fold .0033166248: a share of .698."""
    net = dn.load(cfg_of("conv filters=2 size=1 activation=linear batch_normalize=1"), None, profile="pjreddie-cpu")
    net.layers[0].rolling_variance[...] = (1, 1e-6)
    _, report = dn.fold(net, epsilon="fork")
    layer = report.folded[0]
    assert (layer.deviating_channel, layer.its_variance) == (1, np.float32(1e-6))
    assert layer.deviation == pytest.approx(1 - 0.001001 / 0.0033166248, rel=1e-6)
    assert dn.fold(net)[1].folded[0].deviation == 0


# --- real networks --------------------------------------------------------------------------------------------------------------


def recorded_input(golden, net: dn.Network, name: str) -> np.ndarray:
    file = "person_320_body.npz" if name.endswith("body") else "dog_320.npz"
    with np.load(golden / "yolo-fastest" / file) as arrays:
        return arrays["input"].reshape(1, net.c, net.h, net.w)


@pytest.mark.parametrize("name", FASTEST)
def test_real_networks_stay_within_the_budget_layer_by_layer(golden, models, name):
    """Each layer on the original's own input: what the fold itself changes is a tenth of the budget."""
    net = dn.load(models / f"{name}.cfg", models / f"{name}.weights")
    _, report = dn.fold(net, check=recorded_input(golden, net, name))
    assert not report.over_budget
    assert max(difference.alone_relative for difference in report.differences) < 2e-6


def exact(net: dn.Network, x: np.ndarray, upto: int) -> np.ndarray:
    """The output of layer `upto` in double, of convolutions that follow each other, shortcuts and dropouts, from the definition."""
    outputs: list[np.ndarray] = []
    current = x.astype(np.float64)
    for layer in net.layers[: upto + 1]:
        if layer.type == "convolutional":
            current = exact_convolution(net, layer, current)
        elif layer.type == "shortcut":
            current = current + outputs[layer.sources[0]]
        outputs.append(current)
    return current


def exact_convolution(net: dn.Network, layer: dn.Layer, x: np.ndarray) -> np.ndarray:
    native, (h, w) = layer.native, layer.out_shape[1:]
    padded = np.pad(x[0], ((0, 0), (native.pad,) * 2, (native.pad,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (native.size, native.size), (1, 2))
    windows = windows[:, :: native.stride_y, :: native.stride_x][:, :h, :w]
    groups, weights = native.groups, layer.weights.astype(np.float64)
    parts = np.split(windows, groups), np.split(weights, groups)
    y = np.concatenate([np.einsum("chwij,ncij->nhw", a, b) for a, b in zip(*parts, strict=True)])
    scales, mean = (layer.params[name].astype(np.float64)[:, None, None] for name in ("scales", "rolling_mean"))
    root = root_of(layer.rolling_variance, profile_named(net.profile).rule("convolutional").forward, "double")[:, None, None]
    y = (y - mean) / root * scales + layer.biases.astype(np.float64)[:, None, None]
    return (np.where(y > 0, y, 0.1 * y) if "leaky" in layer.detail else y)[np.newaxis]


def test_where_a_whole_run_is_over_the_budget_the_original_is_further_from_exact(golden, models):
    """Layer 62 of yolo-fastest: depthwise, a factor of 8 on the rounding of the layers before. The fold is the nearer one."""
    net = dn.load(models / "yolo-fastest.cfg", models / "yolo-fastest.weights")
    x = recorded_input(golden, net, "yolo-fastest")
    folded, report = dn.fold(net, check=x)
    over = [difference.index for difference in report.differences if difference.relative > 1e-5]
    assert over in ([], [62])
    want = exact(net, x, 62)
    folded.forward(x)
    theirs, ours = (np.abs(each.layers[62].output - want).max() / np.ptp(want) for each in (net, folded))
    assert ours < 5e-6 < theirs


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"])
def test_recorded_networks_stay_within_the_budget(golden, profile):
    for weights in sorted((golden / "nets" / profile).glob("*.weights")):
        net = load_recorded(weights)
        with np.load(weights.with_suffix(".npz")) as arrays:
            x = np.ascontiguousarray(arrays["input"]).reshape(-1, net.c, net.h, net.w)
        _, report = dn.fold(net, check=x)
        assert report.folded, weights
        assert report.worst.relative < 1e-5, (weights, report.worst)


# --- the verb -------------------------------------------------------------------------------------------------------------------


def test_verb_writes_a_cfg_and_weights_that_run(tmp_path):
    cfg, weights, picture = tiny_files(tmp_path)
    done = CliRunner().invoke(app, ["fold", str(cfg), str(weights), "-o", str(tmp_path / "out"), "--input", str(picture), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["within_budget"]
    assert len(document["differences"]) == len(dn.load(cfg).layers)
    folded = dn.load(*document["files"])
    assert all("scales" not in layer.params for layer in folded.layers)


def test_verb_prints_budget_and_differences(tmp_path):
    cfg, weights, _ = tiny_files(tmp_path)
    done = CliRunner().invoke(app, ["fold", str(cfg), str(weights), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "rounding may change 1e-05 of a layer's range: every layer is within it" in " ".join(done.stdout.split())


def test_verb_finds_the_forks_own_fold_over_the_budget(tmp_path):
    """The fork's own epsilon under tiny variances: a finding, exit code 1."""
    cfg, weights, _ = tiny_files(tmp_path)
    net = dn.load(cfg, weights, profile="pjreddie-cpu")
    net.layers[0].rolling_variance[...] = 1e-6
    net.save(tmp_path / "small.weights")
    shutil.copy(cfg, tmp_path / "small.cfg")
    command = ["fold", str(tmp_path / "small.cfg"), str(tmp_path / "small.weights"), "-o", str(tmp_path), "--epsilon", "fork"]
    done = CliRunner().invoke(app, [*command, "--profile", "pjreddie-cpu"])
    assert done.exit_code == 1
    assert "of variance 1e-06 is 7.0e-01 from the inference" in " ".join(done.stdout.split())


def test_verb_tells_what_an_npz_lacks(tmp_path):
    cfg, weights, _ = tiny_files(tmp_path)
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    np.savez(tmp_path / "small.npz", input=np.zeros(5, np.float32))
    for name, told in (("two.npz", "expected an array named input"), ("small.npz", r"takes \(batch, 3,")):
        done = CliRunner().invoke(app, ["fold", str(cfg), str(weights), "-o", str(tmp_path), "--input", str(tmp_path / name)])
        assert done.exit_code != 0
        with pytest.raises(dn.ShapeError, match=told):
            raise done.exception
