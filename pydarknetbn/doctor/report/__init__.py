"""The comparison as one file of HTML that needs nothing else: no network, no other file, no program but a browser."""

from __future__ import annotations

import os

from ...files import write_atomically
from ..results import Comparison
from .page import html_of

__all__ = ["html_of", "write_html"]


def write_html(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Writes the report, whole or not at all.

    Args:
        comparison: what was found.
        path: the file; an old one is replaced.

    Raises:
        MissingExtraError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    text = html_of(comparison).encode("utf-8", "replace")
    write_atomically(path, lambda stream: stream.write(text))
