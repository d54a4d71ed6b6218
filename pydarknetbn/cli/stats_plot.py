"""The picture of `pydarknetbn stats`: for each batchnorm the span of its channels, and those with a fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..calibration.findings import LayerFindings, Statistics
from ..extras import import_extra
from ..files import write_atomically
from .stats_png import png_of

__all__ = ["Column", "Panel", "draw"]

_INK, _BAR, _LINE, _ACCENT = "#1d2126", "#9aa3ab", "#e4e2dc", "#c2480c"
_NO_DRIFT = 1e-3  # deviations
_FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Column:
    """One batchnorm in a panel, values as logarithms to the base of 10.

    Args:
        layer: its number.
        span: least, 5 %, median, 95 %, largest; () where no channel has a place on the axis.
        faults: channel, value and findings of those with a fault.
    """

    layer: int
    span: tuple[float, ...]
    faults: tuple[tuple[int, float, str], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity over all batchnorms.

    Args:
        title: what it is.
        columns: in the order of layers.
        low, high: ends of the axis, whole logarithms.
    """

    title: str
    columns: tuple[Column, ...]
    low: int
    high: int


def draw(found: Statistics, path: Path, *, title: str) -> None:
    """Writes the picture, whole or not at all.

    Args:
        found: what to draw.
        path: .html, one page that needs no other file, or .png.
        title: of the picture.

    Raises:
        MissingExtraError: .html without plotly.
        OSError: the file cannot be written.
    """
    panels = tuple(_panels(found))
    data = _html_of(panels, title).encode() if path.suffix.lower() == ".html" else png_of(panels, title)
    write_atomically(path, lambda stream: stream.write(data))


def _panels(found: Statistics) -> Iterator[Panel]:
    if found.images:
        yield _panel("rolling mean off by, in measured deviations", found.layers, _drift, least=_NO_DRIFT)
        yield _panel("rolling / measured variance", found.layers, _ratio)
    else:
        yield _panel("rolling variance", found.layers, lambda layer: layer.rolling_variance)
        yield _panel("|scale|", found.layers, lambda layer: np.abs(layer.scales))


def _drift(layer: LayerFindings) -> NDArray[Any]:
    return layer.measured.mean_drift if layer.measured else np.empty(0)


def _ratio(layer: LayerFindings) -> NDArray[Any]:
    return layer.measured.variance_ratio if layer.measured else np.empty(0)


def _panel(title: str, layers: Sequence[LayerFindings], values: Any, *, least: float = 0.0) -> Panel:
    """values: of a layer; what is below `least` is drawn there."""
    logarithms = [_logarithms(np.maximum(values(layer), least)) for layer in layers]
    known = np.concatenate([each[np.isfinite(each)] for each in logarithms])
    low, high = (float(known.min()), float(known.max())) if known.size else (-1.0, 1.0)
    ends = int(np.floor(low)), int(np.ceil(high)) if np.ceil(high) > np.floor(low) else int(np.floor(low)) + 1
    columns = tuple(_column(layer, each, ends) for layer, each in zip(layers, logarithms, strict=True))
    return Panel(title, columns, *ends)


def _logarithms(values: NDArray[Any]) -> NDArray[np.float64]:
    """What has none is -inf or inf, and stands at the end of the axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        made = np.log10(values.astype(np.float64))
    return np.where(np.isnan(made), -np.inf, made)


def _column(layer: LayerFindings, values: NDArray[np.float64], ends: tuple[int, int]) -> Column:
    known = values[np.isfinite(values)]
    span = tuple(float(value) for value in np.quantile(known, [0, 0.05, 0.5, 0.95, 1])) if known.size else ()
    told: dict[int, list[str]] = {}
    for name, channels in layer.faults.items():
        for channel in channels:
            told.setdefault(channel, []).append(name)
    faults = [(channel, float(np.clip(values[channel], *ends)), ", ".join(names)) for channel, names in sorted(told.items())]
    return Column(layer.layer, span, tuple(faults))


# --- with plotly ----------------------------------------------------------------------------------------------------------------


def _html_of(panels: Sequence[Panel], title: str) -> str:
    graph = import_extra("plotly.graph_objects", "report")
    made = import_extra("plotly.subplots", "report").make_subplots(
        rows=len(panels), shared_xaxes=True, vertical_spacing=0.08, subplot_titles=[panel.title for panel in panels]
    )
    for row, panel in enumerate(panels, 1):
        for trace in _traces(graph, panel):
            made.add_trace(trace, row=row, col=1)
        made.update_yaxes(type="log", range=[panel.low, panel.high], dtick=1, exponentformat="power", row=row, col=1)
    ticks = [str(column.layer) for column in panels[0].columns]
    step = max(1, len(ticks) // 24)
    made.update_xaxes(
        tickvals=list(range(0, len(ticks), step)), ticktext=ticks[::step], showgrid=False, linecolor=_LINE, zeroline=False
    )
    made.update_yaxes(gridcolor=_LINE, zeroline=False)
    made.update_xaxes(title="layer", row=len(panels), col=1)
    font = {"family": _FONT, "size": 13, "color": _INK}
    made.update_layout(title=title, template="none", showlegend=False, height=720, font=font, hovermode="closest")
    write = import_extra("plotly.io", "report").to_html
    text: str = write(made, include_plotlyjs=True, full_html=True, config={"displaylogo": False})
    return text


def _traces(graph: Any, panel: Panel) -> Iterator[Any]:
    """Whole spans, nine tenths of them, medians, and faults."""
    for first, last, width in ((0, 4, 1), (1, 3, 5)):
        x, y = [], []
        for at, column in enumerate(panel.columns):
            if column.span:
                x += [at, at, None]
                y += [10 ** column.span[first], 10 ** column.span[last], None]
        yield graph.Scatter(x=x, y=y, mode="lines", line={"width": width, "color": _BAR}, hoverinfo="skip")
    medians = [(at, column) for at, column in enumerate(panel.columns) if column.span]
    yield graph.Scatter(
        x=[at for at, _ in medians],
        y=[10 ** column.span[2] for _, column in medians],
        mode="markers",
        marker={"color": _INK, "size": 5},
        text=[f"layer {column.layer}" for _, column in medians],
        hovertemplate="%{text}<br>median %{y:.3g}<extra></extra>",
    )
    faults = [(at, column.layer, *fault) for at, column in enumerate(panel.columns) for fault in column.faults]
    yield graph.Scatter(
        x=[at for at, *_ in faults],
        y=[10**value for *_, value, _ in faults],
        mode="markers",
        marker={"color": _ACCENT, "size": 7, "symbol": "diamond"},
        text=[f"layer {layer}, channel {channel}: {told}" for _, layer, channel, _, told in faults],
        hovertemplate="%{text}<br>%{y:.3g}<extra></extra>",
    )
