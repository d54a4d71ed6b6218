"""Draws the matrix of faults for the README: `python tools/matrix_picture.py ROWS.json tools/pictures/matrix.png`.

ROWS.json is what the long test of tests/test_doctor_matrix.py writes where PYDARKNETBN_MATRIX names a file.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

NAMED, UNKNOWN, WRONG, NONE = "#2f7d5b", "#e0a526", "#b3372f", "#eef0f2"
CELL, LINE, LEFT, TOP = 92, 26, 290, 86


def main() -> None:
    """Reads the rows, writes the picture, and prints the counts."""
    rows = [row for row in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")) if not row["expected"] or row["moved"] > 10]
    cells: dict[tuple[str, tuple[str, str]], list[dict]] = defaultdict(list)
    for row in rows:
        cells[row["expected"][0] if row["expected"] else "clean port", (row["network"], row["backend"])].append(row)
    kinds = sorted({kind for kind, _ in cells}, key=lambda kind: (kind != "clean port", kind))
    columns = sorted({column for _, column in cells}, key=lambda column: (["tiny", "residual", "csp"].index(column[0]), column[1]))
    size = (LEFT + CELL * len(columns) + 24, TOP + LINE * len(kinds) + 56)
    picture = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(14)
    for number, (network, backend) in enumerate(columns):
        x = LEFT + number * CELL + CELL // 2
        draw.text((x, TOP - 48), network, "#20262c", font, anchor="mm")
        draw.text((x, TOP - 24), backend, "#5b6670", font, anchor="mm")
    for line, kind in enumerate(kinds):
        y = TOP + line * LINE
        draw.text((LEFT - 12, y + LINE // 2), kind, "#20262c", font, anchor="rm")
        for number, column in enumerate(columns):
            _cell(draw, font, LEFT + number * CELL, y, cells.get((kind, column), []))
    faults = [row for row in rows if row["expected"]]
    named, wrong = sum(row["correct"] for row in faults), sum(row["wrong"] for row in rows)
    told = f"{named} of {len(faults)} faults named, {len(faults) - named - wrong} called unknown, {wrong} named wrongly"
    draw.text((LEFT - 12 + CELL * len(columns) // 2, size[1] - 26), told, "#20262c", font, anchor="mm")
    picture.save(sys.argv[2], optimize=True)
    print(told)


def _cell(draw: ImageDraw.ImageDraw, font: ImageFont.ImageFont, x: int, y: int, rows: list[dict]) -> None:
    named = sum(row["correct"] for row in rows)
    color = NONE if not rows else WRONG if any(row["wrong"] for row in rows) else NAMED if named == len(rows) else UNKNOWN
    draw.rounded_rectangle((x + 2, y + 2, x + CELL - 2, y + LINE - 2), 4, color)
    if rows:
        draw.text((x + CELL // 2, y + LINE // 2), f"{named}/{len(rows)}", "white", font, anchor="mm")


if __name__ == "__main__":
    main()
