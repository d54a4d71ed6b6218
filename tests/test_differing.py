"""`diff`: two files of one network, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, numbered, weights_of

TWO = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1", "conv filters=18")


def test_equal_files_are_the_same():
    found = dn.diff(TWO, weights_of(numbered(116)), weights_of(numbered(116)))
    assert (found.same, found.exit_code, found.arrays, found.count) == (True, 0, (), 7)
    assert found.verdict == "<bytes> and <bytes>: header and all 7 arrays have the same bits"


def test_each_array_tells_how_many_values_differ_and_where_the_most():
    other = numbered(116)
    other[7] += 1  # rolling_variance of channel 1
    other[[62, 70]] -= 0.25, 2  # biases of layer 1, values 0 and 8
    found = dn.diff(TWO, weights_of(numbered(116)), weights_of(other))
    rows = [(each.layer, each.name, each.differ, each.size, each.largest, each.at) for each in found.arrays]
    assert rows == [(0, "rolling_variance", 1, 2, 1.0, 1), (1, "biases", 2, 18, 2.0, 8)]
    assert "3 values in 2 of 7 arrays, 2 layers" in found.verdict
    assert found.exit_code == 1


def test_headers_are_compared_field_by_field():
    found = dn.diff(TWO, weights_of(numbered(116), (0, 2, 0), 5), weights_of(numbered(116), (0, 1, 0), 7, 4))
    assert found.header == {"minor": (2, 1), "seen": (5, 7), "seen_bytes": (8, 4)}
    assert "all arrays have the same bits" in found.verdict


@pytest.mark.parametrize(("a", "b", "largest"), [(0.0, -0.0, 0.0), (1.0, np.inf, np.inf)])
def test_bits_count_not_values(a, b, largest):
    first, second = numbered(116), numbered(116)
    first[8], second[8] = a, b
    (found,) = dn.diff(TWO, weights_of(first), weights_of(second)).arrays
    assert (found.differ, found.largest) == (1, largest)


def test_one_nan_is_the_largest_and_the_same_nan_is_none():
    first, second = numbered(116), numbered(116)
    first[8] = second[8] = np.nan
    assert dn.diff(TWO, weights_of(first), weights_of(second)).same
    second[9], second[10] = np.nan, 1e6
    (found,) = dn.diff(TWO, weights_of(first), weights_of(second)).arrays
    assert (found.differ, found.at, np.isnan(found.largest)) == (2, 1, True)


def test_file_of_another_network_is_refused():
    with pytest.raises(dn.WeightsError, match="takes 116"):
        dn.diff(TWO, weights_of(numbered(116)), weights_of(numbered(117)))
