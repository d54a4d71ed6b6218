"""Batch normalization of its own, over arrays: the layer, and functions without a state.

dn.BatchNorm(64, profile="torch")                   parameters, rolling arrays, what a backward needs
dn.bn.forward(x, scales=…, profile="torch")         output, mean, variance and the variance to keep
dn.bn.backward(delta, x, scales=…)                  deltas of the input, the scales and the biases
dn.bn.merge([dn.bn.local_stats(x) for x in parts])  moments of a batch that is held in parts
dn.bn.forward_half(x)                               of float16 and bfloat16, and what they lose
"""

from __future__ import annotations

from ..sync.moments import Moments, local_stats, merge
from .arrays import Backward, Forward, backward, forward
from .half import HalfRecord, backward_half, forward_half
from .layer import BatchNorm

__all__ = [
    "Backward",
    "BatchNorm",
    "Forward",
    "HalfRecord",
    "Moments",
    "backward",
    "backward_half",
    "forward",
    "forward_half",
    "local_stats",
    "merge",
]
