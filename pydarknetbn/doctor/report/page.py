"""What stands on the page, put into its template."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from ...dialect import EVIDENCE
from ...extras import import_extra
from ..numbers import ranges
from ..results import Cause, Comparison
from .figures import figures_of
from .table import COLUMNS, cells_of

__all__ = ["html_of"]

_UNMATCHED_AT_MOST = 500


def html_of(comparison: Comparison) -> str:
    """The page.

    Every text of the comparison is escaped, and the page forbids all scripts but its own two by their hashes, and all requests.

    Raises:
        MissingExtraError: plotly or jinja2 is not installed.
    """
    jinja: Any = import_extra("jinja2", "report")
    import_extra("plotly", "report")
    offline: Any = import_extra("plotly.offline", "report")
    safe: Any = import_extra("markupsafe", "report").Markup
    figures = figures_of(comparison)
    library = offline.get_plotlyjs().replace("\r\n", "\n") if figures else ""
    script = _text("page.js")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made: str = environment.from_string(_text("page.html")).render(
        found=comparison,
        state=_state(comparison),
        evidence=EVIDENCE.get(comparison.evidence_of_profile, ""),
        causes=[_cause(cause, comparison.verdict) for cause in comparison.causes],
        columns=COLUMNS,
        rows=[(row, cells_of(row)) for row in comparison.rows],
        zip=zip,
        over=sum(row.bad for row in comparison.rows),
        closeup=_closeup(comparison),
        unmatched=comparison.unmatched[:_UNMATCHED_AT_MOST],
        unmatched_more=max(0, len(comparison.unmatched) - _UNMATCHED_AT_MOST),
        figures=safe(_json(figures)),
        style=safe(_text("page.css")),
        library=safe(library),
        script=safe(script),
        hashes=" ".join(_hash(text) for text in (library, script)),
        version=version("pydarknetbn"),
    )
    return made


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a content security policy names a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: Any) -> str:
    """For a script element: no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _state(comparison: Comparison) -> tuple[str, str]:
    """A class of the style, and words."""
    if comparison.clean:
        return "clean", "No difference beyond rounding"
    if not comparison.causes:
        return "differs", "Different, cause unknown"
    return "differs", "Different, cause found" if len(
        comparison.causes
    ) == 1 else f"Different, {len(comparison.causes)} causes found"


def _cause(cause: Cause, verdict: str) -> dict[str, Any]:
    """What is told of it; its evidence once."""
    numbers = [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else value) for name, value in cause.values.items()
    ]
    return {
        "words": cause.words,
        "fix": cause.fix,
        "evidence": cause.evidence if cause.evidence not in verdict else "",
        "layers": "" if cause.layers == (-1,) else ranges(cause.layers),
        "count": len(set(cause.layers)),
        "numbers": numbers,
        "alternatives": cause.alternatives,
    }


def _closeup(comparison: Comparison) -> dict[str, Any] | None:
    closeup = comparison.closeup
    if closeup is None:
        return None
    row = comparison.rows[closeup.row]
    c, h, w = closeup.shape
    return {
        "where": "the input" if row.layer < 0 else f"layer {row.layer} [{row.type}]",
        "stage": row.stage,
        "shape": f"{c} channels of {w} x {h} pixels",
        "lost": not np.isfinite(closeup.error).all(),
        "groups": closeup.channel_step > 1 or closeup.pixel_step > 1,
        "channel_step": closeup.channel_step,
        "pixel_step": closeup.pixel_step,
    }
