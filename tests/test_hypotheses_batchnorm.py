"""Each fault of a batch normalization is found by its own hypothesis, at the noise, with its number recovered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of
from pydarknetbn._native import Array
from pydarknetbn.doctor.hypotheses import GENERATORS
from pydarknetbn.doctor.running import Runner
from pydarknetbn.doctor.situation import Hypothesis, Place, Trial

CONV = "conv batch_normalize=1 filters={} size=3 stride=1 pad=1 activation=leaky"
CFG = cfg_of(CONV.format(24), CONV.format(24), "conv filters=5 size=1 activation=linear")
ALONE = cfg_of("conv filters=24 size=3 pad=1 activation=linear", "batchnorm", "conv filters=5 size=1 activation=linear")
EXPLAINS = 3.0
"""Multiples of the rounding noise."""


# --- a place, and what a port gives there, in double ----------------------------------------------------------------------------


class Patient:
    """The batchnorm of layer 1, its values in double, and a port's value to explain."""

    def __init__(
        self, cfg: bytes = CFG, *, dialect: str = "alexeyab", profile: str = "alexeyab-cpu", batch: int = 2, seed: int = 5
    ):
        self.net = dn.load(cfg, None, seed=seed, dialect=dialect, profile=profile)
        rng = np.random.default_rng(seed)
        for layer in self.net.layers:
            if "rolling_mean" in layer.shapes:
                layer.scales[...] = rng.uniform(0.5, 2, layer.scales.shape)
                layer.rolling_mean[...] = rng.normal(0, 0.3, layer.scales.shape)
                layer.rolling_variance[...] = 10 ** rng.uniform(-3.5, 0.5, layer.scales.shape)
            if "biases" in layer.shapes:
                layer.biases[...] = rng.uniform(0.1, 1, layer.biases.shape)
        self.runner = Runner(self.net)
        x = rng.random((batch, 3, 8, 8), np.float32)
        values = {-1: x}
        self.step = next(step for step in self.runner.steps if step.layer == 1 and step.kind == "batchnorm")
        for step, value in self.runner.forward(x):
            if step.number >= self.step.number:
                break
            values[step.number] = value
        self.values = values
        self.place = Place(self.runner, self.step, [values[self.step.inputs[0]]], values)
        layer = self.net.layers[1]
        self.x = self.place.inputs[0].astype(np.float64)
        self.arrays = {name: array.astype(np.float64) for name, array in layer.params.items()}
        self.arrays.setdefault("biases", np.zeros(24))

    def port(self, x: Array | None = None, root: Callable[[Any], Any] = lambda v: np.sqrt(v + 1e-5), **other: Any) -> Array:
        """(x - mean) / root(variance) * scale + bias in double, with other arrays where given."""
        a = {name: np.broadcast_to(value, 24) for name, value in {**self.arrays, **other}.items() if name != "weights"}
        x = self.x if x is None else x
        with np.errstate(invalid="ignore"):
            gain = a["scales"] / root(a["rolling_variance"])
        return (x - a["rolling_mean"][:, None, None]) * gain[:, None, None] + a["biases"][:, None, None]

    def moments(self, sample: bool) -> tuple[Array, Array]:
        return self.x.mean((0, 2, 3)), self.x.var((0, 2, 3), ddof=int(sample))

    def trial(self, theirs: Array, other: Array | None = None) -> Trial:
        """Noise is that of one rounding of each value, or how far the same port is from `other`, computed in float32."""
        off = theirs * 2.0**-24 if other is None else other - theirs
        noise = float(np.sqrt(np.nanmean(np.square(off))))

        def residual(hypothesis: Hypothesis) -> float:
            got = self.follow(hypothesis)
            if got is None or got.shape != theirs.shape or not np.array_equal(np.isnan(got), np.isnan(theirs)):
                return math.inf
            return float(np.sqrt(np.nanmean(np.square(got - theirs)))) / noise

        return residual

    def follow(self, hypothesis: Hypothesis) -> Array | None:
        """Layer 1 up to its batchnorm, with the hypothesis's runs."""
        x = self.place.inputs[0]
        if "convolution" in hypothesis.runs:
            sums = self.runner.steps[self.step.inputs[0]]
            made = hypothesis.runs["convolution"](Place(self.runner, sums, [self.values[sums.inputs[0]]], self.values))
            if made is None:
                return None
            x = made
        return hypothesis.runs["batchnorm"](Place(self.runner, self.step, [x], self.values))

    def explained(self, theirs: Array, other: Array | None = None) -> list[Hypothesis]:
        """What explains the port's value, best first; of two equal ones the one with fewer fitted numbers."""
        trial = self.trial(theirs.astype(np.float32).astype(np.float64), other)
        scored = [(trial(h), h.parameters, h) for h in GENERATORS["batchnorm"](self.place, trial)]
        fit = sorted((entry for entry in scored if entry[0] < EXPLAINS), key=lambda entry: (entry[1], entry[0]))
        return [hypothesis for _, _, hypothesis in fit]


def only(found: list[Hypothesis], kind: str) -> Hypothesis:
    assert found, "nothing explains it"
    assert {hypothesis.kind for hypothesis in found} == {kind}
    return found[0]


@pytest.fixture(scope="module")
def patient() -> Patient:
    return Patient()


# --- epsilon --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e-3, 1e-4, 1e-6, 3.3e-4, 2e-2])
def test_epsilon_inside_the_root_is_recovered(patient: Patient, value: float) -> None:
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v + value))), "batchnorm.epsilon")
    assert found.values["epsilon"] == pytest.approx(value, rel=0.01)
    assert found.values["side"] == "inside"
    assert found.fix["torch"] == "BatchNorm2d(eps=1e-5)"


@pytest.mark.parametrize("value", [1e-3, 1e-4, 1e-6])
def test_common_epsilon_is_given_as_it_is_written(patient: Patient, value: float) -> None:
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v + value))), "batchnorm.epsilon")
    assert found.values["epsilon"] == value
    assert found.parameters == 0


def test_epsilon_is_told_with_its_owner(patient: Patient) -> None:
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v + 1e-3))), "batchnorm.epsilon")
    assert found.words == (
        "batchnorm normalizes with epsilon 0.001 inside the root (the default of Keras and TensorFlow), Darknet with 1e-5"
    )


@pytest.mark.parametrize("value", [1e-3, 5e-5, 1e-6])
def test_epsilon_beside_the_root_is_recovered(patient: Patient, value: float) -> None:
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v) + value)), "batchnorm.epsilon")
    assert found.values["epsilon"] == pytest.approx(value, rel=0.01)
    assert found.values["side"] == "outside"


def test_side_that_cannot_be_told_is_said_to_be() -> None:
    patient = Patient()
    patient.net.layers[1].rolling_variance[...] = 1.0
    patient.arrays["rolling_variance"][...] = 1.0
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v + 1e-3))), "batchnorm.epsilon")
    assert found.values["epsilon"] == 1e-3
    assert found.values["side"] == "inside or outside"
    assert "do not tell the side of the root" in found.words


def test_right_epsilon_is_no_hypothesis(patient: Patient) -> None:
    assert not [h for h in patient.explained(patient.port()) if h.kind == "batchnorm.epsilon"]


def test_epsilon_of_a_profile_that_has_it_beside_the_root() -> None:
    patient = Patient(dialect="pjreddie", profile="pjreddie-cpu")
    assert not [h for h in patient.explained(patient.port(root=lambda v: np.sqrt(v) + 1e-6)) if h.kind == "batchnorm.epsilon"]
    found = only(patient.explained(patient.port()), "batchnorm.epsilon")
    assert (found.values["epsilon"], found.values["side"]) == (1e-5, "inside")
    assert found.words.endswith("Darknet with 1e-6 outside it")
    assert found.fix["torch"] == "BatchNorm2d(eps=0) with running_var = (sqrt(rolling_variance) + 1e-6)**2"


# --- statistics -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [False, True])
def test_batch_statistics_and_their_count(patient: Patient, sample: bool) -> None:
    mean, variance = patient.moments(sample)
    found = only(patient.explained(patient.port(rolling_mean=mean, rolling_variance=variance)), "batchnorm.batch_statistics")
    assert found.values == {"denominator": "n-1" if sample else "n", "n": 128}


@pytest.mark.parametrize(
    "given",
    [
        {"rolling_mean": 0, "rolling_variance": 1},
        {"rolling_mean": 0, "rolling_variance": 0},
        {"rolling_mean": 0},
        {"rolling_variance": 1},
        {"rolling_variance": 0},
    ],
    ids=str,
)
def test_rolling_arrays_that_were_not_loaded(patient: Patient, given: dict[str, int]) -> None:
    found = only(patient.explained(patient.port(**given)), "batchnorm.rolling_not_loaded")
    assert found.values == given


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.37])
@pytest.mark.parametrize("sample", [False, True])
def test_arrays_one_update_ahead(patient: Patient, share: float, sample: bool) -> None:
    mean, variance = patient.moments(sample)
    a = patient.arrays
    moved = {
        "rolling_mean": (1 - share) * a["rolling_mean"] + share * mean,
        "rolling_variance": (1 - share) * a["rolling_variance"] + share * variance,
    }
    found = only(patient.explained(patient.port(**moved)), "batchnorm.stale")
    assert found.values["share"] == pytest.approx(share, rel=0.01)
    assert found.values["updates"] == 1
    assert (f"over {'n-1' if sample else 'n'}") in found.words


def test_arrays_one_update_behind() -> None:
    patient = Patient()
    mean, variance = patient.moments(True)
    a, layer = patient.arrays, patient.net.layers[1]
    before = {"rolling_mean": a["rolling_mean"].copy(), "rolling_variance": a["rolling_variance"].copy()}
    layer.rolling_mean[...] = 0.95 * before["rolling_mean"] + 0.05 * mean
    layer.rolling_variance[...] = 0.95 * before["rolling_variance"] + 0.05 * variance
    back = {  # what float32 keeps of them
        "rolling_mean": (layer.rolling_mean.astype(np.float64) - 0.05 * mean) / 0.95,
        "rolling_variance": (layer.rolling_variance.astype(np.float64) - 0.05 * variance) / 0.95,
    }
    found = only(patient.explained(patient.port(**before), patient.port(**back)), "batchnorm.stale")
    assert found.values == {"share": 0.05, "updates": -1}


@pytest.mark.parametrize("count", [7, 64, 128, 1000])
def test_bessel_factor_and_its_count(patient: Patient, count: int) -> None:
    for factor in (count / (count - 1), (count - 1) / count):
        found = only(
            patient.explained(patient.port(rolling_variance=patient.arrays["rolling_variance"] * factor)), "batchnorm.bessel"
        )
        assert found.values["n"] == pytest.approx(count, rel=0.01)
        assert found.values["factor"] == pytest.approx(factor, rel=1e-5)


def test_factor_of_no_count_is_no_bessel_factor(patient: Patient) -> None:
    assert patient.explained(patient.port(rolling_variance=patient.arrays["rolling_variance"] * 1.37)) == []


# --- arrays ---------------------------------------------------------------------------------------------------------------------


def test_scales_and_biases_that_are_missing(patient: Patient) -> None:
    only(patient.explained(patient.port(scales=1)), "batchnorm.scales_missing")
    only(patient.explained(patient.port(biases=0)), "batchnorm.biases_missing")
    assert "neither" in only(patient.explained(patient.port(scales=1, biases=0)), "batchnorm.scales_missing").words


NAMES = ("biases", "scales", "rolling_mean", "rolling_variance")


@pytest.mark.parametrize(
    "order",
    [
        ("scales", "biases", "rolling_mean", "rolling_variance"),
        ("biases", "scales", "rolling_variance", "rolling_mean"),
        ("rolling_variance", "biases", "scales", "rolling_mean"),
        ("rolling_mean", "rolling_variance", "biases", "scales"),
    ],
    ids=" ".join,
)
def test_arrays_in_another_order(patient: Patient, order: tuple[str, ...]) -> None:
    taken = {name: patient.arrays[other] for name, other in zip(NAMES, order, strict=True)}
    found = only(patient.explained(patient.port(**taken)), "batchnorm.permuted")
    assert found.values == {"order": " ".join(order)}


def test_order_is_told_by_what_is_wrong(patient: Patient) -> None:
    swapped = patient.port(biases=patient.arrays["scales"], scales=patient.arrays["biases"])
    assert patient.explained(swapped)[0].words == "batchnorm takes the file's scales as biases and biases as scales"


@pytest.mark.parametrize("by", [1, -1, 2, -3, 8, -8, 24, -24])
@pytest.mark.parametrize("kernel", [False, True])
def test_arrays_from_another_place_of_the_file(patient: Patient, by: int, kernel: bool) -> None:
    floats = np.frombuffer(patient.net.to_bytes()[20:], np.float32).astype(np.float64)
    start = 4 * 24 + 24 * 3 * 9 + by  # layer 0: four arrays and its kernel
    taken = dict(zip(NAMES, floats[start : start + 96].reshape(4, 24), strict=True))
    x = other = None
    if kernel:
        shifted = floats[start + 96 : start + 96 + 24 * 24 * 9].reshape(24, 24, 3, 3)
        before = patient.values[patient.runner.steps[patient.step.inputs[0]].inputs[0]]
        x = convolved(before.astype(np.float64), shifted)
        other = patient.port(convolved(before, shifted.astype(np.float32)).astype(np.float64), **taken)
    found = only(patient.explained(patient.port(x, **taken), other), "batchnorm.shifted")
    assert found.values == {"shift": by, "kernel": "and the kernel" if kernel else "not the kernel"}


def convolved(x: Array, kernel: Array) -> Array:
    """3 x 3, padded by one."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    h, w = x.shape[2:]
    taps = [np.einsum("bchw,nc->bnhw", wide[:, :, i : i + h, j : j + w], kernel[:, :, i, j]) for i in range(3) for j in range(3)]
    return np.sum(taps, 0)


# --- place ----------------------------------------------------------------------------------------------------------------------


def test_batchnorm_that_is_not_there(patient: Patient) -> None:
    only(patient.explained(patient.x), "batchnorm.forgotten")
    only(patient.explained(patient.x + patient.arrays["biases"][:, None, None]), "batchnorm.forgotten")


def test_batchnorm_twice(patient: Patient) -> None:
    only(patient.explained(patient.port(patient.port())), "batchnorm.twice")


def test_batchnorm_of_the_convolutions_input(patient: Patient) -> None:
    before = patient.values[patient.runner.steps[patient.step.inputs[0]].inputs[0]]
    only(patient.explained(patient.port(before.astype(np.float64))), "batchnorm.wrong_input")


def test_biases_a_second_time(patient: Patient) -> None:
    biases = patient.arrays["biases"][:, None, None]
    assert only(patient.explained(patient.port(patient.x + biases)), "batchnorm.bias_kept").values == {"where": "before"}
    assert only(patient.explained(patient.port() + biases), "batchnorm.bias_kept").values == {"where": "after"}


# --- a layer of its own ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["alexeyab-cpu", "pjreddie-cpu"])
def test_standalone_batchnorm(profile: str) -> None:
    patient = Patient(ALONE, dialect=profile.removesuffix("-cpu"), profile=profile)
    found = only(patient.explained(patient.port(root=lambda v: np.sqrt(v + 1e-3))), "batchnorm.epsilon")
    assert found.values["epsilon"] == 1e-3
    swapped = {"rolling_mean": patient.arrays["scales"], "scales": patient.arrays["rolling_mean"]}
    only(patient.explained(patient.port(root=root_of(profile), **swapped)), "batchnorm.permuted")
    only(patient.explained(patient.x), "batchnorm.forgotten")


def root_of(profile: str) -> Callable[[Any], Any]:
    return (lambda v: np.sqrt(v) + 1e-6) if profile.startswith("pj") else (lambda v: np.sqrt(v + 1e-5))


def test_standalone_batchnorm_from_another_place_of_the_file() -> None:
    patient = Patient(ALONE)
    floats = np.frombuffer(patient.net.to_bytes()[20:], np.float32).astype(np.float64)
    start = 24 + 24 * 3 * 9 - 1
    taken = dict(zip(NAMES, floats[start : start + 96].reshape(4, 24), strict=True))
    assert only(patient.explained(patient.port(**taken)), "batchnorm.shifted").values["shift"] == -1
