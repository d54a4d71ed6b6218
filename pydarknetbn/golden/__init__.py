"""Golden bundles: a network's values, sampled, in a file of less than 1 MB that needs neither Darknet nor the weights."""

from __future__ import annotations

from .bundle import Golden, GoldenStep
from .comparing import compare_golden
from .filing import read_golden

__all__ = ["Golden", "GoldenStep", "compare_golden", "read_golden"]
