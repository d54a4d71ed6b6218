"""Trouble with batch normalization and its folding that users of other programs have reported, each as its smallest input."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, noise, weights_of
from pydarknetbn import BatchNorm
from pydarknetbn._native import Array

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
