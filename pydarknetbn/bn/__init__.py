"""Batch normalization of its own, over arrays: the layer, and what half precision does to it."""

from __future__ import annotations

from .half import HalfRecord, backward_half, forward_half
from .layer import BatchNorm

__all__ = ["BatchNorm", "HalfRecord", "backward_half", "forward_half"]
