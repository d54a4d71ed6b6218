"""The comparison as one file of HTML."""

from __future__ import annotations

import os

from .results import Comparison

__all__ = ["write_html"]


def write_html(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Writes the report, whole or not at all."""
    raise NotImplementedError
