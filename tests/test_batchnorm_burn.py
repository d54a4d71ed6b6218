"""Numbers of a published comparison of burn's batchnorm with PyTorch's, under the profiles of both.

burn keeps the variance over n that it normalises with, PyTorch the one over n-1; and a clone of burn's module shares its running
statistics with the original. Batch k has the values 2 sin(3r + c + 1 + k) + c of row r and channel c, in double, rounded once.
"""

from __future__ import annotations

import numpy as np
import pytest

from pydarknetbn import BatchNorm, convert
from pydarknetbn._native import Array

ARRAYS = ("scales", "biases", "rolling_mean", "rolling_variance")
# Half of the last printed digit; and twenty moves of two roundings each, of which a quarter may add up: four times 2^-23.
SEVEN = {"rel": 0, "abs": 5e-7 + 4 * 2.0**-23}


def batch(k: int, rows: int) -> Array:
    r, c = np.ogrid[:rows, :3]
    return (2 * np.sin(3 * r + c + 1 + k) + c).astype(np.float32)


def trained(profile: str, rows: int, batches: range) -> BatchNorm:
    bn = BatchNorm(3, profile=profile)
    for k in batches:
        bn.forward(batch(k, rows), train=True)
    return bn


@pytest.mark.parametrize(
    ("profile", "rows", "want"),
    [
        ("torch", 4, [2.427054, 2.618560, 2.339880]),
        ("burn", 4, [1.850685, 1.994315, 1.785304]),
        ("torch", 64, [1.902050, 1.903964, 1.911320]),
    ],
)
def test_running_variance_after_twenty_batches(profile: str, rows: int, want: list[float]) -> None:
    assert trained(profile, rows, range(20)).rolling_variance.tolist() == pytest.approx(want, **SEVEN)


@pytest.mark.parametrize(("rows", "want", "digits"), [(4, 0.1897, 5e-5), (64, 0.01130, 5e-6)])
def test_inference_differs_by_the_variance_that_is_kept(rows: int, want: float, digits: float) -> None:
    """And by 4e-7 once the one variance is n/(n-1) times as large; the first batches count less for their start of 1."""
    theirs, ours = (trained(profile, rows, range(20)) for profile in ("torch", "burn"))
    x = batch(100, rows)[:4]
    expected = theirs.forward(x, train=False)
    assert np.abs(expected - ours.forward(x, train=False)).max() == pytest.approx(want, abs=digits)
    arrays = {name: getattr(ours, name) for name in ARRAYS}
    made = convert.batchnorm(arrays, source="burn", target="torch", n=rows, steps=20)
    corrected = BatchNorm(3, profile="torch")
    for name in ARRAYS:
        setattr(corrected, name, getattr(made, name))
    assert np.abs(expected - corrected.forward(x, train=False)).max() <= 4e-7


def test_a_snapshot_does_not_share_its_statistics() -> None:
    """One that shares them would have the rolling mean of all twenty batches: off by 0.4535."""
    bn = trained("burn", 4, range(10))
    snapshot, alone = bn.snapshot(), trained("burn", 4, range(10))
    for k in range(10, 20):
        bn.forward(batch(k, 4), train=True)
    assert np.abs(bn.rolling_mean - snapshot.rolling_mean).max() == pytest.approx(0.4535, abs=5e-5)
    for name in ("rolling_mean", "rolling_variance"):
        assert getattr(snapshot, name).tolist() == getattr(alone, name).tolist()
    assert (snapshot.num_batches_tracked, bn.num_batches_tracked) == (10, 20)


UNTOUCHED = [1.682934, 2.818581, 2.282229]
MEAN_ALONE = [1.673052, 2.721594, 2.095367]
BIASED = [1.595291, 2.412724, 2.145460]
UNBIASED = [1.549066, 2.302995, 2.125554]


def test_inference_after_one_step_tells_which_statistics_were_merged() -> None:
    """Of the first row of batch 0, n = 4: with none, the mean alone, both as burn keeps them, and as PyTorch does."""
    row = batch(0, 4)[:1]
    both = trained("burn", 4, range(1))
    untouched, mean_alone = BatchNorm(3, profile="burn"), BatchNorm(3, profile="burn")
    mean_alone.rolling_mean = both.rolling_mean
    torchs = trained("torch", 4, range(1))
    for bn, want in ((untouched, UNTOUCHED), (mean_alone, MEAN_ALONE), (both, BIASED), (torchs, UNBIASED)):
        assert bn.forward(row, train=False)[0].tolist() == pytest.approx(want, **SEVEN)
