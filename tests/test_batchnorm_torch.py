"""A module of PyTorch as a layer and back: the same numbers over training steps, and what is said where they cannot be."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from core import assert_same_bits
from pydarknetbn import BatchNorm, DarknetWarning
from pydarknetbn.dialect import PROFILES

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

SHAPES = [(8, 3), (4, 3, 7), (4, 3, 26, 26), (2, 3, 3, 4, 5)]
NAMES = {"scales": "weight", "biases": "bias", "rolling_mean": "running_mean", "rolling_variance": "running_var"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These arrays are small, and other tests may run beside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def module(shape: tuple[int, ...], **options: Any) -> Any:
    return getattr(torch.nn, f"BatchNorm{max(len(shape) - 2, 1)}d")(shape[1], **options)


def randomised(theirs: Any, rng: np.random.Generator) -> Any:
    for name in NAMES.values():
        tensor = getattr(theirs, name)
        if tensor is not None:
            tensor.data.copy_(torch.from_numpy(rng.uniform(0.5, 2, tensor.shape).astype(np.float32)))
    return theirs


class Steps:
    """Both sides, and the largest difference of each array, relative to its largest element."""

    rate = 0.05

    def __init__(self, theirs: Any, ours: BatchNorm) -> None:
        self.theirs, self.ours = theirs, ours
        self.worst: dict[str, float] = {}
        self.optimizer = torch.optim.SGD(theirs.parameters(), lr=self.rate) if theirs.affine else None

    def compare(self, name: str, got: Any, want: Any) -> None:
        want = want.detach().numpy()
        off = float(np.abs(got - want).max() / np.abs(want).max())
        self.worst[name] = max(self.worst.get(name, 0.0), off)

    def train(self, x: Any, gradient: Any) -> None:
        tensor = torch.from_numpy(x).requires_grad_()
        self.theirs.zero_grad()
        out = self.theirs(tensor)
        out.backward(torch.from_numpy(gradient))
        self.compare("output", self.ours.forward(x, train=True), out)
        self.compare("gradient of x", -self.ours.backward(-gradient), tensor.grad)
        if self.optimizer:
            self.compare("gradient of weight", -self.ours.scale_updates, self.theirs.weight.grad)
            self.compare("gradient of bias", -self.ours.bias_updates, self.theirs.bias.grad)
            self.optimizer.step()
            self.ours.update(learning_rate=self.rate, momentum=0.0, decay=0.0, batch=1)
        for name, theirs in NAMES.items():
            if getattr(self.theirs, theirs) is not None:
                self.compare(name, getattr(self.ours, name), getattr(self.theirs, theirs))

    def infer(self, x: Any) -> None:
        self.theirs.eval()
        self.compare("inference", self.ours.forward(x, train=False), self.theirs(torch.from_numpy(x)))
        self.theirs.train()


@pytest.mark.parametrize("back", [False, True], ids=["from_torch", "to_torch"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"affine": False},
        {"momentum": 0.3, "eps": 1e-3},
        {"momentum": None},
        {"track_running_stats": False},
        {"affine": False, "momentum": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_twenty_steps_agree_with_the_module(shape: tuple[int, ...], options: dict[str, Any], back: bool) -> None:
    """To 1e-6 of each array's largest element."""
    rng = np.random.default_rng(20)
    theirs = randomised(module(shape, **options), rng)
    ours = BatchNorm.from_torch(theirs)
    steps = Steps(ours.to_torch(dims=max(len(shape) - 2, 1)) if back else theirs, ours)
    assert type(steps.theirs) is type(theirs)
    for _ in range(20):
        steps.train(rng.normal(1, 2, shape).astype(np.float32), rng.normal(size=shape).astype(np.float32))
        steps.infer(rng.normal(size=shape).astype(np.float32))
    assert max(steps.worst.values()) <= 1e-6, steps.worst
    assert {"output", "gradient of x", "inference"} <= steps.worst.keys()
    if theirs.track_running_stats:
        assert ours.num_batches_tracked == int(steps.theirs.num_batches_tracked) == 20
        assert "rolling_variance" in steps.worst
    if theirs.affine:
        assert "gradient of weight" in steps.worst


# --- from a module ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"])
def test_settings_and_arrays_of_each_kind_are_carried_over(kind: str) -> None:
    theirs = randomised(getattr(torch.nn, kind)(5, eps=1e-3, momentum=0.25), np.random.default_rng(1))
    theirs.num_batches_tracked.fill_(7)
    ours = BatchNorm.from_torch(theirs)
    assert repr(ours) == "BatchNorm(5, profile='torch', epsilon=0.001, rolling=(0.75, 0.25))"
    assert ours.num_batches_tracked == 7
    for name, their_name in NAMES.items():
        assert_same_bits(getattr(ours, name), getattr(theirs, their_name).detach().numpy(), name)
        before = getattr(ours, name).copy()
        with torch.no_grad():
            getattr(theirs, their_name).add_(1)
        assert_same_bits(getattr(ours, name), before, f"{name} is a copy")


def test_a_plain_module_is_a_plain_layer() -> None:
    assert repr(BatchNorm.from_torch(torch.nn.BatchNorm2d(5))) == "BatchNorm(5, profile='torch')"


def test_frozen_modules_are_frozen_layers_and_back() -> None:
    theirs = torch.nn.BatchNorm1d(3)
    theirs.requires_grad_(False)
    theirs.track_running_stats = False  # with its buffers: they stay, and its inference reads them
    ours = BatchNorm.from_torch(theirs)
    for layer in (ours, BatchNorm.from_torch(ours.to_torch(dims=1))):
        x = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
        layer.forward(x, train=True)
        layer.backward(x)
        layer.update(learning_rate=1.0, momentum=0.0, decay=0.0, batch=1)
        assert layer.scales.tolist() == [1, 1, 1]
        assert (layer.rolling_mean.tolist(), layer.num_batches_tracked) == ([0, 0, 0], 0)
        theirs.eval()
        assert np.abs(layer.forward(x, train=False) - theirs(torch.from_numpy(x)).numpy()).max() < 1e-6


@pytest.mark.parametrize("wrong", [None, 3, torch.nn.Linear(3, 3), torch.nn.LazyBatchNorm1d(), torch.nn.InstanceNorm2d(3)])
def test_other_modules_are_refused(wrong: Any) -> None:
    said = (
        f"expected a module of one of torch.nn's BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm, got {type(wrong).__name__}"
    )
    with pytest.raises(TypeError, match=re.escape(said)):
        BatchNorm.from_torch(wrong)


def test_double_is_rounded_and_said_and_half_is_widened() -> None:
    theirs = torch.nn.BatchNorm1d(1).double()
    theirs.weight.data.fill_(1 / 3)
    with pytest.warns(DarknetWarning, match="the module's weight of float64 is rounded to float32; the module's bias of float64"):
        assert BatchNorm.from_torch(theirs).scales[0] == np.float32(1 / 3)
    assert BatchNorm.from_torch(theirs.half()).scales[0] == np.float16(1 / 3)


def test_a_module_without_bias_or_with_one_trained_array_is_said() -> None:
    theirs = torch.nn.BatchNorm1d(2)
    theirs.bias = None
    with pytest.warns(DarknetWarning, match="the module has no bias, while update moves biases, which start at 0"):
        assert BatchNorm.from_torch(theirs).biases.tolist() == [0, 0]
    theirs = torch.nn.BatchNorm1d(2)
    theirs.bias.requires_grad_(False)
    with pytest.warns(DarknetWarning, match="of which only one asks for gradients"):
        BatchNorm.from_torch(theirs)


# --- other profiles ---------------------------------------------------------------------------------------------------------

NORMALIZED = "a training batch is normalized by its variance over {}, not {}"
KEPT = "the rolling variance takes up that over {}, not {}"


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("pjreddie-cpu", [NORMALIZED.format("n", "n-1"), "the forward divides by √(v+1e-12), not √v+1e-06"]),
        ("alexeyab-cpu", [NORMALIZED.format("n", "n-1"), "not √v+1e-05 and √(v+1e-05); the backward gives the biases a gradient"]),
        ("burn", [KEPT.format("n-1", "n")]),
        ("caffe", ["the rolling factors are 0.999 and 0.001, not 0.999 and 1"]),
    ],
)
def test_the_nearest_module_of_a_profile_says_what_it_does_otherwise(profile: str, said: list[str]) -> None:
    with pytest.warns(DarknetWarning) as caught:
        BatchNorm(3, profile=profile).to_torch()
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"BatchNorm2d is not all that BatchNorm(3, profile={profile!r}) is: ")
    assert caught[0].filename == __file__
    for each in said:
        assert each in str(caught[0].message)


def test_in_its_own_profile_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BatchNorm.from_torch(BatchNorm(3, profile="torch", epsilon=0.1).to_torch())


@pytest.mark.filterwarnings("ignore::pydarknetbn.DarknetWarning")
@pytest.mark.parametrize("profile", list(PROFILES))
def test_the_nearest_module_infers_the_same_and_comes_back_with_the_same_arrays(profile: str) -> None:
    """Also of variances that are tiny beside every epsilon: 2e-6, as a root, a quotient and sums of three floats may be off."""
    rng = np.random.default_rng(4)
    bn = BatchNorm(6, profile=profile)
    for name in NAMES:
        setattr(bn, name, rng.uniform(0.5, 2, 6).astype(np.float32))
    bn.rolling_variance[...] = [0, 1e-12, 1e-8, 1e-4, 1, 1e4]
    theirs = bn.to_torch(dims=1)
    theirs.eval()
    x = rng.normal(size=(5, 6)).astype(np.float32)
    want, got = bn.forward(x, train=False), theirs(torch.from_numpy(x)).detach().numpy()
    assert (np.abs(got - want).max(0) <= 2e-6 * np.abs(want).max(0)).all()
    back = BatchNorm.from_torch(theirs, profile=profile)
    assert np.abs(back.forward(x, train=False) - want).max() <= 2e-6 * np.abs(want).max()
    assert np.abs(back.rolling_variance / np.maximum(bn.rolling_variance, 1e-30) - 1)[2:].max() < 1e-5
    assert_same_bits(back.scales, bn.scales, "scales")


def test_a_module_under_a_forks_profile_is_that_fork_with_its_arrays() -> None:
    theirs = randomised(torch.nn.BatchNorm1d(3, eps=1e-3), np.random.default_rng(5))
    with pytest.warns(DarknetWarning, match=re.escape("is not all that BatchNorm1d is: " + NORMALIZED.format("n-1", "n"))):
        ours = BatchNorm.from_torch(theirs, profile="pjreddie-cpu")
    assert repr(ours) == "BatchNorm(3, profile='pjreddie-cpu', rolling=(0.9, 0.1))"
    x = np.random.default_rng(6).normal(size=(4, 3)).astype(np.float32)
    theirs.eval()
    assert np.abs(ours.forward(x, train=False) - theirs(torch.from_numpy(x)).detach().numpy()).max() < 1e-6


# --- the module's kind ------------------------------------------------------------------------------------------------------


def test_the_last_x_or_dims_decide_the_kind() -> None:
    bn = BatchNorm(3, profile="torch")
    kinds = [type(bn.to_torch()).__name__]
    for shape in SHAPES:
        bn.forward(np.random.default_rng(7).normal(size=shape).astype(np.float32), train=len(shape) != 4)
        kinds.append(type(bn.to_torch()).__name__)
    assert kinds == ["BatchNorm2d", "BatchNorm1d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]
    assert type(bn.to_torch(dims=1)).__name__ == "BatchNorm1d"
    with pytest.raises(ValueError, match="expected dims to be 1, 2 or 3"):
        bn.to_torch(dims=4)


def test_scales_that_were_set_without_affine_are_not_lost() -> None:
    bn = BatchNorm(2, profile="torch", affine=False)
    bn.scales[...] = [2, 3]
    theirs = bn.to_torch()
    assert theirs.weight.tolist() == [2, 3]
    assert not theirs.weight.requires_grad
