"""The charts, as plain values for plotly.js; each in colours for a light and for a dark page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ..numbers import share, used_errors
from ..results import Closeup, Comparison, Row

__all__ = ["figures_of"]

_TICKS, _DENSE = 8, 80
_FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_DECADES_BELOW = 0.5
_LEAST = np.float64(2.0) ** -60


class Theme(NamedTuple):
    """Colours of a page; one of them stands out."""

    paper: str
    ink: str
    muted: str
    line: str
    accent: str


LIGHT = Theme("#ffffff", "#1d2126", "#7c858e", "#e4e2dc", "#c2480c")
DARK = Theme("#1b1e22", "#e8e6e1", "#8b949c", "#33383e", "#ff9a57")


def figures_of(comparison: Comparison) -> dict[str, Any]:
    """Id of an element of the page -> data and layout of its chart, and a template for each theme."""
    made = {}
    if any(used_errors(row) for row in comparison.rows):
        made["curves"] = _figure(*_curves(comparison.rows), _curve_colours)
    if comparison.closeup is not None:
        made["heatmap"] = _figure(*_heat_map(comparison.closeup), _heat_colours)
        made["scatter"] = _figure(*_scatter(comparison.closeup), _scatter_colours)
    return made


def _figure(data: Sequence[Any], layout: dict[str, Any], colours: Any) -> dict[str, Any]:
    graph = _graph()
    margin = {"l": 62, "r": 12, "t": 8, "b": 44}
    figure = graph.Figure(list(data), graph.Layout(margin=margin, autosize=True, template="none", **layout))
    made = json.loads(figure.to_json())
    del made["layout"]["template"]
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        template = graph.layout.Template(data=colours(theme), layout=_page_colours(theme))
        made[name] = json.loads(graph.Figure(layout={"template": template}).to_json())["layout"]["template"]
    return {"data": made["data"], "layout": made["layout"], "light": made["light"], "dark": made["dark"]}


def _graph() -> Any:
    return import_extra("plotly.graph_objects", "report")


def _page_colours(theme: Theme) -> dict[str, Any]:
    axis = {"gridcolor": theme.line, "linecolor": theme.line, "zeroline": False, "tickcolor": theme.line, "title": {"standoff": 10}}
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 12, "color": theme.muted},
        "hoverlabel": {"bgcolor": theme.paper, "bordercolor": theme.line, "font": {"color": theme.ink, "family": _FONT}},
        "xaxis": axis | {"showgrid": False, "showline": True, "ticks": "outside"},
        "yaxis": axis,
    }


# --- both errors over the layers ------------------------------------------------------------------------------------------------


def _curves(rows: Sequence[Row]) -> tuple[list[Any], dict[str, Any]]:
    free = [math.nan if row.free is None else row.free.largest for row in rows]
    alone = [math.nan if (errors := used_errors(row)) is None else errors.largest for row in rows]
    budget = [row.budget or math.nan for row in rows]
    low, high = _limits([*free, *alone, *budget])
    told = [[_place(row), share(one), share(other)] for row, one, other in zip(rows, free, alone, strict=True)]
    dense = len(rows) > _DENSE
    lines = [
        _line("free", [_drawn(value, low, high) for value in free], "<b>%{customdata[0]}</b><br>%{customdata[1]}", told),
        _line("alone", [_drawn(value or math.nan, low, high) for value in alone], "%{customdata[2]}", told, dots=3 if dense else 5),
        _line("budget", budget, "%{y:.1e}", told),
    ]
    bad = [_drawn(value, low, high) if row.bad else math.nan for row, value in zip(rows, alone, strict=True)]
    equal = [low if value == 0 else math.nan for value in alone]
    marks = [_marks("over budget", bad, 8 if dense else 11), _marks("equal", equal, 4, showlegend=False)]
    return [*lines, *marks], _curve_layout(rows, low, high)


def _line(name: str, values: Sequence[float], told: str, texts: Any, *, dots: int = 0) -> Any:
    marker = {"mode": "lines+markers", "marker": {"size": dots}} if dots else {"mode": "lines"}
    return _graph().Scatter(
        name=name, x=list(range(len(values))), y=values, customdata=texts, hovertemplate=told, cliponaxis=False, **marker
    )


def _marks(name: str, values: Sequence[float], size: int, **options: Any) -> Any:
    drawn = {at: value for at, value in enumerate(values) if not math.isnan(value)}
    marker = {"mode": "markers", "marker": {"size": size}, "hoverinfo": "skip", "cliponaxis": False}
    return _graph().Scatter(name=name, x=list(drawn), y=list(drawn.values()), **marker, **options)


def _curve_layout(rows: Sequence[Row], low: float, high: float) -> dict[str, Any]:
    ticks = _layer_ticks(rows)
    return {
        "xaxis": {
            "title": {"text": "layer"},
            "tickangle": 0,
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
            "range": [-0.6, len(rows) - 0.4],
        },
        "yaxis": {
            "title": {"text": "difference / range"},
            "type": "log",
            "range": [math.log10(low), math.log10(high)],
            "exponentformat": "power",
            "dtick": _decades(low, high),
        },
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    }


def _drawn(value: float, low: float, high: float) -> float:
    """Where a value stands that a logarithmic axis has no place for."""
    return value if math.isnan(value) else min(max(value, low), high)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: half a decade around all that has a place on it."""
    known = [value for value in values if math.isfinite(value) and value > 0]
    low, high = (min(known), max(known)) if known else (float(_LEAST), 1.0)
    return float(low * 10**-_DECADES_BELOW), float(high * 10**_DECADES_BELOW)


def _decades(low: float, high: float) -> int:
    return max(1, math.ceil((math.log10(high) - math.log10(low)) / 7))


def _place(row: Row) -> str:
    return "input" if row.layer < 0 else f"layer {row.layer} [{row.type}] {row.stage}"


def _layer_ticks(rows: Sequence[Row]) -> dict[int, str]:
    """Position -> number of a layer, for some of those that begin there."""
    starts = [at for at, row in enumerate(rows) if at == 0 or rows[at - 1].layer != row.layer]
    step = math.ceil(len(starts) / _TICKS) or 1
    return {at: "input" if rows[at].layer < 0 else str(rows[at].layer) for at in starts[::step]}


def _curve_colours(theme: Theme) -> dict[str, Any]:
    return {
        "scatter": [
            {"line": {"color": theme.muted, "width": 1.5, "dash": "dot"}},
            {"line": {"color": theme.ink, "width": 1.75}, "marker": {"color": theme.ink}},
            {"line": {"color": theme.muted, "width": 1, "dash": "dash", "shape": "hvh"}},
            {"marker": {"color": theme.accent, "symbol": "diamond", "line": {"color": theme.paper, "width": 1}}},
            {"marker": {"color": theme.muted}},
        ]
    }


# --- the first bad value --------------------------------------------------------------------------------------------------------


def _heat_map(closeup: Closeup) -> tuple[list[Any], dict[str, Any]]:
    error = np.asarray(closeup.error, np.float32)
    known = error[np.isfinite(error)]
    top = float(known.max()) if known.size else 1.0
    drawn = np.where(np.isfinite(error), error, top).astype(np.float32)
    graph = _graph()
    data = graph.Heatmap(
        z=drawn,
        x=np.arange(error.shape[1]) * closeup.pixel_step,
        y=np.arange(error.shape[0]) * closeup.channel_step,
        zmin=0,
        zmax=top or 1.0,
        colorbar={"thickness": 10, "outlinewidth": 0, "exponentformat": "power", "nticks": 5, "x": 1.01, "xpad": 4},
        hovertemplate="channel %{y}, pixel %{x}<br>%{z:.1e} of the range<extra></extra>",
    )
    layout = {
        "xaxis": {"title": {"text": "pixel, row by row"}, "nticks": 5, "tickformat": ",d"},
        "yaxis": {"title": {"text": "channel"}, "autorange": "reversed", "nticks": 8, "tickformat": "d"},
    }
    return [data], layout


def _heat_colours(theme: Theme) -> dict[str, Any]:
    end = "#5a1a00" if theme == LIGHT else "#fff1e6"
    scale = [[0, theme.line], [0.55, theme.accent], [1, end]]
    return {"heatmap": [{"colorscale": scale, "colorbar": {"tickfont": {"color": theme.muted}}}]}


def _scatter(closeup: Closeup) -> tuple[list[Any], dict[str, Any]]:
    graph = _graph()
    ours, theirs = (np.asarray(values, np.float32).ravel() for values in (closeup.ours, closeup.theirs))
    both = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[both], theirs[both]
    ends = [float(ours.min()), float(ours.max())] if ours.size else [0.0, 1.0]
    told = "ours %{x:.6g}<br>theirs %{y:.6g}<extra></extra>"
    data = [
        graph.Scatter(name="values", x=ours, y=theirs, mode="markers", hovertemplate=told),
        graph.Scatter(name="equal", x=ends, y=ends, mode="lines", hoverinfo="skip"),
    ]
    axis = {"nticks": 6, "exponentformat": "power"}
    layout = {"xaxis": axis | {"title": {"text": "ours"}}, "yaxis": axis | {"title": {"text": "theirs"}}, "showlegend": False}
    return data, layout


def _scatter_colours(theme: Theme) -> dict[str, Any]:
    return {
        "scatter": [
            {"marker": {"color": theme.accent, "size": 4, "opacity": 0.45}},
            {"line": {"color": theme.ink, "width": 1, "dash": "dash"}},
        ]
    }
