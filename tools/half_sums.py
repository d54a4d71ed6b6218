"""What the type of the sums costs a batchnorm of half precision: `python tools/half_sums.py`."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from pydarknetbn.bn import HalfRecord, forward_half
from pydarknetbn.bn.half_sums import SumType
from pydarknetbn.extras import import_extra

__all__ = ["PROFILE", "SHAPE", "SUMS", "TYPES", "record"]

SHAPE = (64, 4, 16, 16)
"""16,384 values in a channel, of mean 3 and deviation 2."""
PROFILE = "alexeyab-cpu"
TYPES = ("float16", "bfloat16")
SUMS: tuple[SumType, ...] = get_args(SumType)


def _type(name: str) -> Any:
    return np.float16 if name == "float16" else import_extra("ml_dtypes", "half").bfloat16


def record(dtype: str, statistics: SumType) -> HalfRecord:
    """Of one batch, the same for all."""
    x = np.random.default_rng(0).normal(3, 2, SHAPE).astype(_type(dtype))
    return forward_half(x, profile=PROFILE, statistics=statistics)[1]


if __name__ == "__main__":
    for each in TYPES:
        for sums in SUMS:
            print(record(each, sums))
