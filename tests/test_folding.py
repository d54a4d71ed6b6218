"""Folding: the fork's own to the bit, the profile's own within rounding, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import CFG, cfg_of, noise, numbered, tiny_yolo, weights_of

ONE = cfg_of("conv filters=1 size=1 activation=linear batch_normalize=1", w=1, h=1, c=1)


def one_channel(bias: float, scale: float, mean: float, variance: float, weight: float, **options: str) -> dn.Network:
    return dn.load(ONE, weights_of(np.array([bias, scale, mean, variance, weight], np.float32)), **options)


def test_bias_and_weight_by_hand():
    """w = 1.5, scale 6, bias .5, mean 3, variance 4: the gain is 6/sqrt(4.00001) = 2.99999625."""
    folded, report = dn.fold(one_channel(0.5, 6, 3, 4, 1.5, profile="alexeyab-cpu"))
    assert folded.layers[0].weights.item() == pytest.approx(4.499994375, rel=1e-7)
    assert folded.layers[0].biases.item() == pytest.approx(0.5 - 2.99999625 * 3, rel=1e-7)
    assert [layer.index for layer in report.folded] == [0]
    assert report.folded[0].largest_factor == pytest.approx(2.99999625, rel=1e-7)
    assert report.folded[0].smallest_variance == 4


# The two conventions that one fork mixes: sqrt(v) + 1e-6 in its inference, sqrt(v + 1e-5) in its fold.
TINY = [("forward", 999.000999), ("fork", 301.511345)]


@pytest.mark.parametrize(("epsilon", "gain"), TINY)
def test_epsilon_is_the_inferences_or_the_forks(epsilon, gain):
    folded, _ = dn.fold(one_channel(0, 1, 0, 1e-6, 1, profile="pjreddie-cpu"), epsilon=epsilon)
    assert folded.layers[0].weights.item() == pytest.approx(gain, rel=1e-6)


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu", "textbook"])
def test_outputs_stay_within_rounding(profile):
    """Thirty products are summed in float at most here, so 2^-24 * 30 of the range, with a reserve for the layers before."""
    net = tiny_yolo(profile=profile)
    _, report = dn.fold(net, check=noise(2, 3, 32, 32))
    assert len(report.differences) == len(net.layers)
    assert report.worst.relative < 1e-5
    assert report.worst.largest > 0, "two networks of other weights cannot agree to the bit"


def test_folded_network_has_its_own_cfg_and_no_batchnorm():
    net = tiny_yolo()
    folded, report = dn.fold(net)
    assert folded.origin.cfg.text.count("batch_normalize=0") == len(report.folded) > 0
    assert "batch_normalize=1" not in folded.origin.cfg.text
    assert all("scales" not in layer.params for layer in folded.layers)
    again = dn.load(folded.origin.cfg.text.encode(), folded.to_bytes())
    x = noise(1, 3, 32, 32)
    for ours, theirs in zip(folded.forward(x), again.forward(x), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_the_network_itself_stays_as_it_is():
    net = tiny_yolo()
    before = net.to_bytes()
    folded, _ = dn.fold(net)
    folded.layers[0].weights[...] = 0
    assert net.to_bytes() == before


def test_second_fold_is_a_reported_no_op():
    folded, _ = dn.fold(tiny_yolo())
    again, report = dn.fold(folded)
    assert report.folded == ()
    assert again.to_bytes() == folded.to_bytes()


def test_only_the_chosen_layers():
    net = tiny_yolo()
    chosen = [layer.index for layer in net.layers if "scales" in layer.params][:1]
    folded, report = dn.fold(net, layers=chosen, check=noise(1, 3, 32, 32))
    assert [layer.index for layer in report.folded] == chosen
    assert [layer.index for layer in folded.layers if "scales" in layer.params] == [
        layer.index for layer in net.layers if "scales" in layer.params and layer.index not in chosen
    ]
    assert report.worst.relative < 1e-5


def test_connected_layer_folds_too():
    net = dn.load(CFG / "connected.cfg", seed=3)
    layer = next(layer for layer in net.layers if "rolling_variance" in layer.params)
    layer.rolling_variance[...] = np.linspace(0.5, 2, layer.rolling_variance.size, dtype=np.float32)
    layer.rolling_mean[...] = 0.25
    _, report = dn.fold(net, check=noise(4, net.c))
    assert [folded.type for folded in report.folded] == ["connected"]
    assert report.worst.relative < 1e-5


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu"])
@pytest.mark.parametrize("variance", [-1.0, float("nan")])
def test_variance_without_a_root_is_named(profile, variance):
    with pytest.raises(dn.NumericsError, match=r"layer 0 \[convolutional\], channel 0, has rolling_variance (-1|nan)"):
        dn.fold(one_channel(0, 1, 0, variance, 1, profile=profile))


def test_folded_network_refuses_training_and_the_old_weights():
    net = tiny_yolo()
    folded, _ = dn.fold(net)
    with pytest.raises(dn.StateError, match="is folded and has no batchnorm to train"):
        folded.forward(noise(2, 3, 32, 32), train=True)
    with pytest.raises(dn.WeightsError, match="left over"):
        dn.load(folded.origin.cfg.text.encode(), net.to_bytes())


def test_wrong_arguments_are_told():
    net = tiny_yolo()
    with pytest.raises(ValueError, match="'forward' or 'fork', got 'torch'"):
        dn.fold(net, epsilon="torch")
    with pytest.raises(ValueError, match=r"expected layers with a batchnorm .*, got 99"):
        dn.fold(net, layers=[99])


def test_shared_kernel_is_folded_once():
    cfg = cfg_of(
        "conv filters=3 size=1 activation=leaky batch_normalize=1",
        "conv share_index=-1 filters=3 size=1 activation=leaky batch_normalize=1",
    )
    net = dn.load(cfg, weights_of(numbered(21)))
    folded, report = dn.fold(net, check=noise(1, 3, 8, 8))
    assert report.worst.relative < 1e-5
    assert [layer.index for layer in report.folded] == [0]
    assert "scales" not in folded.layers[1].params


FUSED = ["fuse_resnet", "fuse_share", "fuse_tinyvar", "fuse_yolo"]


@pytest.mark.parametrize("profile", ["alexeyab-cpu", "hank-ai-cpu"])
@pytest.mark.parametrize("name", FUSED)
def test_forks_own_fold_to_the_bit(golden, profile, name):
    folder = golden / "fuse" / profile
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"{name} is not recorded for {profile}")
    recorded = np.load(folder / f"{name}.npz")
    net = dn.load(folder / f"{name}.cfg", dialect=profile.removesuffix("-cpu"), profile=profile)
    for layer in net.layers:
        for array in layer.params if layer.stored else ():
            setattr(layer, array, recorded[f"before.{layer.index:03d}_{layer.type}.{array}"].reshape(layer.params[array].shape))
    folded, report = dn.fold(net, epsilon="fork")
    assert report.folded
    for layer in folded.layers:
        for array, values in layer.params.items() if layer.stored else ():
            want = recorded[f"after.{layer.index:03d}_{layer.type}.{array}"]
            assert values.tobytes() == want.tobytes(), f"layer {layer.index} {array}"
