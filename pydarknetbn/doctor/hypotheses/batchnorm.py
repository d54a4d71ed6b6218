"""What a port may do otherwise in a batch normalization, the likeliest first."""

from __future__ import annotations

from ..situation import Generator, several
from .batchnorm_arrays import missing, permuted
from .batchnorm_epsilon import epsilon
from .batchnorm_place import bias_kept, forgotten, twice, wrong_input
from .batchnorm_shift import shifted
from .batchnorm_statistics import batch_statistics, bessel, rolling_not_loaded, stale

__all__ = ["batchnorm", "shifted"]

batchnorm: Generator = several(
    epsilon,
    forgotten,
    rolling_not_loaded,
    missing,
    batch_statistics,
    bias_kept,
    twice,
    wrong_input,
    permuted,
    shifted,
    bessel,
    stale,
)
"""For steps of kind "batchnorm", behind a convolution or as a layer."""
