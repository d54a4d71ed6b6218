"""The doctor for training: statistics, rolling arrays and gradients of a PyTorch port, layer by layer on its own values."""

from __future__ import annotations

from .comparing import compare_training

__all__ = ["compare_training"]
