"""Population statistics: rolling arrays recomputed over a data set, shared among ranks, and what is wrong with those of a file."""

from __future__ import annotations

from .method import calibrate

__all__ = ["calibrate"]
