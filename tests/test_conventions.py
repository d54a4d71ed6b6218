"""Batchnorm between conventions: epsilons, variances, momentum; and the frameworks' records."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from pydarknetbn.convert import batchnorm
from pydarknetbn.dialect import CONVENTIONS_OF_STATISTICS, PROFILES

FRAMEWORKS = sorted(CONVENTIONS_OF_STATISTICS)


def one(variance: float, scale: float = 1, mean: float = 0, bias: float = 0) -> dict[str, np.ndarray]:
    values = {"scales": scale, "biases": bias, "rolling_mean": mean, "rolling_variance": variance}
    return {name: np.array([value], np.float32) for name, value in values.items()}


def gain(arrays, epsilon: float, side: str) -> float:
    variance = float(arrays.rolling_variance[0])
    root = np.sqrt(variance + epsilon) if side == "inside" else np.sqrt(variance) + epsilon
    return float(arrays.scales[0]) / root


# Gain of scale 1 at each variance under the source, by hand: 1/(sqrt(v) + 1e-6), 1/sqrt(v + 1e-5), 1/sqrt(v + 1e-3).
GAINS = [
    ("pjreddie-cpu", 1e-6, 999.000999),
    ("pjreddie-cpu", 0.0, 1e6),
    ("pjreddie-cpu", 1e-2, 9.9999),
    ("alexeyab-cpu", 1e-6, 301.511345),
    ("alexeyab-cpu", 0.0, 316.227766),
    ("keras", 0.01, 9.534626),
    ("torch", 0.01, 9.995004),
]


@pytest.mark.parametrize("target", ["pjreddie-cpu", "alexeyab-cpu", "torch", "keras", "caffe"])
@pytest.mark.parametrize(("source", "variance", "want"), GAINS)
def test_inference_is_unchanged_whatever_the_epsilons(source, variance, want, target):
    made = batchnorm(one(variance), source=source, target=target)
    assert gain(made, made.epsilon.value, made.epsilon.side) == pytest.approx(want, rel=1e-6)
    assert made.error[0] < 2e-7


def test_variance_takes_up_the_epsilon_where_it_can_and_the_scale_elsewhere():
    arrays = {name: np.repeat(values, 2) for name, values in one(0.01).items()}
    arrays["rolling_variance"][1] = 1e-6
    made = batchnorm(arrays, source="torch", target="keras")
    assert made.scales[0] == 1
    assert made.rolling_variance[0] == pytest.approx(0.01 + 1e-5 - 1e-3, rel=1e-6)
    assert made.rolling_variance[1] == np.float32(1e-6)
    assert made.scales[1] == pytest.approx(np.sqrt((1e-6 + 1e-3) / (1e-6 + 1e-5)), rel=1e-6)
    assert "1 channels in their variance, 1 in their scale" in made.notes[-1]


def test_same_convention_changes_no_bit():
    arrays = one(0.3, 1.1, 0.2, 0.4)
    made = batchnorm(arrays, source="torch", target="burn", n=None)
    for name, values in arrays.items():
        assert getattr(made, name).tobytes() == values.tobytes()


# --- which variance -------------------------------------------------------------------------------------------------------------


def rolled(values: np.ndarray, start: float, keep: float, over: int) -> float:
    """A rolling variance over batches, from the definition."""
    rolling = start
    for batch in values:
        rolling = keep * rolling + (1 - keep) * ((batch - batch.mean()) ** 2).sum() / (len(batch) - over)
    return rolling


@pytest.mark.parametrize(("source", "target", "keep", "start"), [("keras", "torch", 0.99, 1.0), ("torch", "keras", 0.9, 1.0)])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_rolling_variance_is_what_the_target_would_have_kept(source, target, keep, start, steps):
    """(v - c) * n/(n - 1) + c is exact: c is what is left of the initial value."""
    batches = np.random.default_rng(1).normal(0, 2, (steps, 4))
    over = {"keras": 0, "torch": 1}
    arrays = one(rolled(batches, start, keep, over[source]))
    made = batchnorm(arrays, source=source, target=target, n=4, steps=steps)
    difference = PROFILES[source].rule("convolutional").forward.value - PROFILES[target].rule("convolutional").forward.value
    want = rolled(batches, start, keep, over[target]) + difference
    assert made.rolling_variance[0] == pytest.approx(want, rel=1e-6)


def test_values_1_to_4():
    """Over n - 1 1.6666667, over n 1.25: PyTorch keeps the first as Darknet does, Keras the second."""
    made = batchnorm(one(1.25), source="keras", target="alexeyab-cpu", n=4)
    assert made.rolling_variance[0] == pytest.approx(5 / 3 + 1e-3 - 1e-5, rel=1e-6)
    made = batchnorm(one(5 / 3), source="torch", target="alexeyab-cpu", n=4)
    assert made.rolling_variance[0] == np.float32(5 / 3)
    assert made.notes[0] == "both keep the variance over n-1: it needs no correction"


def test_smaller_last_batch_is_told_with_its_bound():
    made = batchnorm(one(1.25), source="keras", target="torch", n=(8, 4))
    assert "not exact: a batch of 4 values was corrected as one of 8, which is off by at most 16.67%" in made.notes[1]


def test_without_n_the_inference_counts():
    made = batchnorm(one(1.25), source="flax", target="torch")
    assert made.rolling_variance[0] == 1.25
    assert "pass n to correct it for training" in made.notes[0]


# --- momentum -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ("pjreddie-cpu", "torch", 0.01),
        ("pjreddie-cpu", "keras", 0.99),
        ("alexeyab-cpu", "torch", 0.1),
        ("torch", "pjreddie-cpu", (0.9, 0.1)),
        ("keras", "burn", 0.01),
        ("caffe", "torch", None),
        ("torch", "caffe", (0.9, 0.1)),
    ],
)
def test_momentum_is_said_as_the_target_says_it(source, target, want):
    assert batchnorm(one(1), source=source, target=target).momentum == want


def test_wrong_arguments_are_told():
    with pytest.raises(dn.NumericsError, match=r"channel 0 has rolling_variance -1"):
        batchnorm(one(-1), source="torch", target="keras")
    with pytest.raises(ValueError, match="expected n to be 2 or more"):
        batchnorm(one(1), source="keras", target="torch", n=1)
    with pytest.raises(ValueError, match="expected steps to be 0 or more"):
        batchnorm(one(1), source="keras", target="torch", n=4, steps=-1)
    with pytest.raises(dn.ShapeError, match="got no rolling_mean"):
        batchnorm({"rolling_variance": np.ones(1, np.float32)}, source="keras", target="torch")
    with pytest.raises(dn.ShapeError, match="scales"):
        batchnorm(one(1) | {"scales": np.ones(2, np.float32)}, source="keras", target="torch")
    with pytest.raises(ValueError, match="expected a profile"):
        batchnorm(one(1), source="mxnet", target="torch")


# --- the records ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_profile_runs_and_says_no_more_than_was_done(name):
    profile = PROFILES[name]
    assert profile.evidence in ("run", "source")
    assert profile.sources["forward"]
    layer = dn.BatchNorm(1, profile=name)
    x = np.array([1, 2, 3, 4], np.float32).reshape(4, 1)
    y = layer.forward(x, train=True)
    epsilon = profile.rule("batchnorm").forward.value
    assert y[0, 0] == pytest.approx(-1.5 / np.sqrt(1.25 + epsilon), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "mean", "variance"),
    [
        ("torch", 0.25, 1.0666667),
        ("keras", 0.025, 1.0025),
        ("flax", 0.025, 1.0025),
        ("burn", 0.25, 1.025),
        ("caffe", 2.5, 1.6666667),
    ],
)
def test_rolling_arrays_after_one_step_on_1_to_4(name, mean, variance):
    layer = dn.BatchNorm(1, profile=name)
    layer.forward(np.array([1, 2, 3, 4], np.float32).reshape(4, 1), train=True)
    assert layer.rolling_mean[0] == pytest.approx(mean, rel=1e-6)
    assert layer.rolling_variance[0] == pytest.approx(variance, rel=1e-6)


def test_torch_itself_agrees():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(2)
    x, delta = rng.normal(1, 2, (2, 4, 3, 5, 5)).astype(np.float32)
    theirs, ours = torch.nn.BatchNorm2d(3), dn.BatchNorm(3, profile="torch")
    values = torch.from_numpy(x).requires_grad_()
    out = theirs(values)
    out.backward(torch.from_numpy(delta))
    # Sums of 100 values in another order: 100 * 2^-24 of values below 10.
    assert np.abs(ours.forward(x, train=True) - out.detach().numpy()).max() < 1e-5
    assert np.abs(ours.backward(delta) - values.grad.numpy()).max() < 1e-5
    assert np.abs(ours.rolling_mean - theirs.running_mean.numpy()).max() < 1e-6
    assert np.abs(ours.rolling_variance - theirs.running_var.numpy()).max() < 1e-5
    theirs.eval()
    assert np.abs(ours.forward(x, train=False) - theirs(values).detach().numpy()).max() < 1e-5
