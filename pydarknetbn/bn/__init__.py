"""Batch normalization of its own, over arrays: the layer."""

from __future__ import annotations

from .layer import BatchNorm

__all__ = ["BatchNorm"]
