"""Writes table and picture of the README's section on speed from runs: `python tools/speed.py RUN.json [RUN.json]`.

A run is what `python -m benchmarks --json > RUN.json` wrote; two differ in `--threads`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

_ROOT = Path(__file__).parent.parent
PEERS = {
    "torch": ("PyTorch", "#d1495b"), "onnxruntime": ("onnxruntime", "#2a6f97"), "opencv": ("OpenCV", "#2f7d5b"),
    "numpy": ("NumPy's matrix product", "#8d5a97"), "copy": ("copy of the array", "#7a848c"), "original": ("original", "#e0a526"),
}  # fmt: skip
GROUPS = (
    # what the table calls it, suite, how the cases begin
    ("batchnorm, training step", "batchnorm", "training"),
    ("batchnorm, training step", "original", "batchnorm training"),
    ("batchnorm, inference", "batchnorm", "inference"),
    ("training step of five layers", "training", ""),
    ("convolution 3x3", "convolution", "3x3"),
    ("convolution 1x1", "convolution", "1x1"),
    ("", "network", "yolo"),
    ("", "original", "yolo"),
)
SCALE, LEFT, TOP, LINE, WIDTH = 2, 250, 84, 24, 640
INK, PALE, GRID = "#20262c", "#5b6670", "#dfe3e6"

Rows = dict[str, dict[str, dict[int, float]]]
"""{what: {peer: {threads: ratio}}}"""


def main() -> None:
    """Reads the runs, writes README and picture."""
    runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    readme = _ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    part = f"<!-- speed -->\n{_told(runs)}\n\n{_table(runs)}\n<!-- /speed -->"
    readme.write_text(re.sub("<!-- speed -->.*?<!-- /speed -->", lambda _: part, text, flags=re.DOTALL), encoding="utf-8")
    _picture(_rows(runs)).save(_ROOT / "tools" / "pictures" / "speed.png", optimize=True)


def _told(runs: list[dict[str, Any]]) -> str:
    machine, commands = runs[0]["machine"], []
    for run in runs:
        threads = f"{run['threads']} thread{'s' * (run['threads'] > 1)}"
        clock = " in the processor's time, since others used the machine" if run["clock"] == "cpu" else ""
        commands.append(f"{threads}{clock}")
    versions = {PEERS[name][0].split("'")[0]: version.split("+")[0] for name, version in machine["versions"].items()}
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    told = f"{machine['processor']}, {machine['processors']} processors, `{machine['variant']}`; {peers}."
    return f"{told} Medians of {runs[0]['rounds']} rounds, {', then '.join(commands)}:"


def _selected(run: dict[str, Any]) -> list[tuple[str, str, str, float]]:
    """Line of the table, line of the picture, peer and ratio."""
    found = []
    for title, suite, begin in GROUPS:
        for ratio in run["ratios"]:
            if ratio["suite"] == suite and ratio["case"].startswith(begin) and ratio["contender"] in PEERS:
                case = f"{title} {ratio['case'].removeprefix(begin).lstrip()}" if title else ratio["case"]
                found.append((title or case, case, ratio["contender"], ratio["value"]))
    return found


def _table(runs: list[dict[str, Any]]) -> str:
    """A line for each kind of work, a column for each peer; in a cell one range for each run."""
    values: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(lambda: [[] for _ in runs]))
    for number, run in enumerate(runs):
        for group, _, peer, value in _selected(run):
            values[group][peer][number].append(value)
    peers = [peer for peer in PEERS if any(peer in of for of in values.values())]
    lines = ["| | " + " | ".join(PEERS[peer][0] for peer in peers) + " |", "|---" * (1 + len(peers)) + "|"]
    for group, of in values.items():
        cells = [" / ".join(_range(each) for each in of[peer]) if peer in of else "" for peer in peers]
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    shown = [f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in sorted(values)]
    return "–".join(dict.fromkeys([shown[0], shown[-1]])) if shown else "-"  # noqa: RUF001


# --- the picture ----------------------------------------------------------------------------------------------------------------


def _rows(runs: list[dict[str, Any]]) -> Rows:
    rows: Rows = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for _, case, peer, value in _selected(run):
            rows[case][peer][run["threads"]] = value
    return rows


class _Canvas:
    """A picture drawn twice as large as it is shown, so that edges are smooth."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width * SCALE, height * SCALE), "white")
        self.draw = ImageDraw.Draw(self.image)
        self.font = ImageFont.load_default(13 * SCALE)

    def text(self, x: float, y: float, words: str, color: str, anchor: str) -> None:
        self.draw.text((x * SCALE, y * SCALE), words, color, self.font, anchor=anchor)

    def line(self, x: float, y: float, to_x: float, to_y: float, color: str, width: int = 1) -> None:
        self.draw.line((x * SCALE, y * SCALE, to_x * SCALE, to_y * SCALE), color, width * SCALE)

    def dot(self, x: float, y: float, color: str, filled: bool) -> None:
        box = tuple(at * SCALE for at in (x - 5, y - 5, x + 5, y + 5))
        self.draw.ellipse(box, color if filled else "white", color, 2 * SCALE)


def _picture(rows: Rows) -> Image.Image:
    values = [value for of in rows.values() for by_threads in of.values() for value in by_threads.values()]
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    canvas = _Canvas(LEFT + WIDTH + 40, TOP + LINE * len(rows) + 70)

    def at(value: float) -> float:
        return LEFT + 20 + (math.log2(value) - low) / (high - low) * (WIDTH - 20)

    bottom = TOP + LINE * len(rows)
    canvas.text(at(1) - 10, 20, "ours is slower", PALE, "rm")
    canvas.text(at(1) + 10, 20, "ours is faster", PALE, "lm")
    for power in range(low, high + 1):
        canvas.line(at(2**power), TOP - 22, at(2**power), bottom, INK if power == 0 else GRID, 2 if power == 0 else 1)
        canvas.text(at(2**power), TOP - 36, f"{2.0**power:g}x", INK if power == 0 else PALE, "mm")
    most = max(threads for of in rows.values() for by_threads in of.values() for threads in by_threads)
    for number, (what, of) in enumerate(rows.items()):
        y = TOP + LINE * number + LINE // 2
        canvas.text(LEFT, y, what, INK, "rm")
        for peer, by_threads in of.items():
            for threads, value in sorted(by_threads.items()):
                canvas.dot(at(value), y, PEERS[peer][1], filled=threads == most)
    _legend(canvas, rows, most, bottom)
    return canvas.image.resize((canvas.image.width // SCALE, canvas.image.height // SCALE), Image.Resampling.LANCZOS)


def _legend(canvas: _Canvas, rows: Rows, most: int, bottom: int) -> None:
    x = 24.0
    for peer, (name, color) in PEERS.items():
        if any(peer in of for of in rows.values()):
            canvas.dot(x, bottom + 26, color, filled=True)
            canvas.text(x + 10, bottom + 26, name, INK, "lm")
            x += 34 + canvas.font.getlength(name) / SCALE
    told = "Another's time over ours" + (f"; filled: {most} threads, hollow: 1 thread" if most > 1 else ", with one thread")
    canvas.text(24 - 5, bottom + 50, told, PALE, "lm")


if __name__ == "__main__":
    main()
