"""The same picture as a PNG, drawn with Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from .stats_plot import Column, Panel

__all__ = ["png_of"]

_PAPER, _INK, _MUTED, _BAR, _LINE, _ACCENT = "#ffffff", "#1d2126", "#7c858e", "#9aa3ab", "#e4e2dc", "#c2480c"
_SCALE = 2  # pixels of the picture for each of the layout
_WIDTH, _HEIGHT = 1100, 300
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEAD = 76, 24, 34, 40, 44


def png_of(panels: Sequence[Panel], title: str) -> bytes:
    """The panels one below the other."""
    size = (_WIDTH * _SCALE, (_HEAD + _HEIGHT * len(panels)) * _SCALE)
    picture = Image.new("RGB", size, _PAPER)
    canvas = _Canvas(ImageDraw.Draw(picture))
    canvas.text((_LEFT, 14), title, 17, _INK)
    for number, panel in enumerate(panels):
        _draw_panel(canvas, panel, _HEAD + number * _HEIGHT)
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return stream.getvalue()


class _Canvas:
    """Draws in units of the layout."""

    def __init__(self, draw: ImageDraw.ImageDraw) -> None:
        self.draw = draw
        self.fonts = {size: ImageFont.load_default(size * _SCALE) for size in (11, 13, 17)}

    def text(self, at: tuple[float, float], text: str, size: int, colour: str, anchor: str = "la") -> None:
        self.draw.text((at[0] * _SCALE, at[1] * _SCALE), text, colour, self.fonts[size], anchor)

    def line(self, ends: Sequence[float], width: float, colour: str) -> None:
        self.draw.line([end * _SCALE for end in ends], colour, round(width * _SCALE))

    def diamond(self, x: float, y: float, radius: float) -> None:
        corners = [(x - radius, y), (x, y - radius), (x + radius, y), (x, y + radius)]
        self.draw.polygon([(a * _SCALE, b * _SCALE) for a, b in corners], _ACCENT)


def _draw_panel(canvas: _Canvas, panel: Panel, top: float) -> None:
    floor, ceiling = top + _HEIGHT - _BOTTOM, top + _TOP
    steps = panel.high - panel.low

    def height(value: float) -> float:
        return floor - (value - panel.low) / steps * (floor - ceiling)

    canvas.text((_LEFT, top + 8), panel.title, 13, _INK)
    for power in range(panel.low, panel.high + 1, max(1, -(-steps // 6))):
        canvas.line((_LEFT, height(power), _WIDTH - _RIGHT, height(power)), 1, _LINE)
        canvas.text((_LEFT - 8, height(power)), f"{10.0**power:g}", 11, _MUTED, "rm")
    pitch = (_WIDTH - _LEFT - _RIGHT) / len(panel.columns)
    label = max(1, -(-len(panel.columns) // 24))
    for at, column in enumerate(panel.columns):
        x = _LEFT + (at + 0.5) * pitch
        _draw_column(canvas, column, x, min(8.0, 0.6 * pitch), height)
        if at % label == 0:
            canvas.text((x, floor + 8), str(column.layer), 11, _MUTED, "ma")
    canvas.text((_WIDTH - _RIGHT, floor + 22), "layer", 11, _MUTED, "ra")


def _draw_column(canvas: _Canvas, column: Column, x: float, width: float, height: Callable[[float], float]) -> None:
    if column.span:
        least, low, median, high, most = map(height, column.span)
        canvas.line((x, least, x, most), 1, _BAR)
        canvas.line((x, low, x, high), width, _BAR)
        canvas.line((x - width / 2, median, x + width / 2, median), 1.5, _INK)
    for _, value, _ in column.faults:
        canvas.diamond(x, height(value), 3.5)
