"""What is drawn, where, and that it stays within the picture."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from pydarknetbn import draw as drawing
from pydarknetbn.boxes import Detections, detections_dtype
from pydarknetbn.draw import draw
from pydarknetbn.errors import DtypeError


def detections(*rows: tuple[float, float, float, float, int, float]) -> Detections:
    """From left, top, right, bottom, class and probability; ten classes."""
    made = np.zeros(len(rows), detections_dtype(10)).view(Detections)
    for i, (left, top, right, bottom, class_id, prob) in enumerate(rows):
        box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
        made[i] = (box, 1, class_id, prob, np.eye(10)[max(class_id, 0)] * prob, 0, 0, i)
    return made


def grey(w: int, h: int) -> Image.Image:
    return Image.new("RGB", (w, h), (120, 120, 120))


def test_frame_has_the_colour_of_its_class() -> None:
    rows = detections((50, 60, 150, 160, 0, 0.9), (20, 100, 40, 180, 7, 0.8), (160, 100, 180, 180, 1, 0.8))
    drawn = draw(grey(200, 200), rows)
    assert [drawn.getpixel(at) for at in ((50, 100), (149, 100), (100, 159), (20, 140), (160, 140))] == [
        (230, 159, 0), (230, 159, 0), (230, 159, 0), (230, 159, 0), (86, 180, 233),
    ]  # fmt: skip
    assert drawn.getpixel((100, 110)) == (120, 120, 120)


def test_frame_of_a_box_beyond_the_edge_runs_along_the_edge() -> None:
    drawn = draw(grey(200, 200), detections((-50, 100, 50, 300, 0, 0.9)))
    assert [drawn.getpixel(at) for at in ((0, 150), (25, 199), (49, 150))] == [(230, 159, 0)] * 3


def test_nothing_is_drawn_of_rows_without_class_outside_or_not_finite() -> None:
    outside = [(-90, 10, -50, 50, 0, 0.9), (10, 900, 50, 950, 0, 0.9)]
    rows = detections((10, 10, 50, 50, -1, 0), *outside, (10, 10, 50, 50, 0, 0.9))
    rows["box"][3] = np.nan
    assert draw(grey(100, 100), rows).tobytes() == grey(100, 100).tobytes()
    assert draw(grey(100, 100), rows[:0]).tobytes() == grey(100, 100).tobytes()


def test_the_picture_given_stays_as_it_is() -> None:
    image = grey(100, 100)
    pixels = np.asarray(image).copy()
    draw(image, detections((10, 40, 50, 90, 0, 0.9)))
    draw(pixels, detections((10, 40, 50, 90, 0, 0.9)))
    assert np.array_equal(np.asarray(image), pixels)
    assert (pixels == 120).all()


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (40, 12), (12, 300), (640, 480), (3000, 2000)])
def test_tags_stay_within_the_picture(size: tuple[int, int]) -> None:
    w, h = size
    corners = [(x - 3, y - 3, x + 3, y + 3) for x in (0, w) for y in (0, h)]
    rows = detections(*((*corner, i, 0.9) for i, corner in enumerate([*corners, (0, 0, w, h), (-w, -h, 2 * w, 2 * h)])))
    names = ["a rather long name of a class"] * 10
    style = drawing._style(size)
    marks = drawing._marks(rows, names, size)
    assert len(marks) == 6
    for (left, top, right, bottom), label in drawing._place_tags(marks, style, size):
        assert 0 <= left <= right <= w
        assert 0 <= top <= bottom <= h
        assert not label or drawing._width(label, style) == right - left
    assert draw(grey(w, h), rows, names=names).size == size


def test_tags_of_thirty_boxes_on_one_spot_cover_each_other_little() -> None:
    generator = np.random.default_rng(0)
    low, high = generator.uniform(140, 260, (30, 2)), generator.uniform(370, 490, (30, 2))
    rows = detections(*((*low[i], *high[i], i % 8, 0.3 + i / 50) for i in range(30)))
    size = (768, 576)
    places = drawing._place_tags(drawing._marks(rows, ["dog"] * 8, size), drawing._style(size), size)
    tags = [np.array(tag) for tag, _ in places]
    sides = [np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) for a, b in combinations(tags, 2)]
    shared = sum(np.clip(side, 0, None).prod() for side in sides)
    assert shared < 0.02 * sum((tag[2:] - tag[:2]).prod() for tag in tags)


def test_labels_tell_name_and_percent_or_the_number_of_the_class() -> None:
    rows = detections((10, 10, 50, 50, 0, 0.874), (10, 10, 50, 50, 1, 0.5), (10, 10, 50, 50, 3, 0.25))
    marks = drawing._marks(rows, ["dog", "traffic\nlight"], (100, 100))
    assert [mark.label for mark in marks] == ["dog 87%", "traffic light 50%", "class 3 25%"]


def test_detections_draw_with_their_names() -> None:
    rows = detections((10, 40, 90, 90, 0, 0.9))
    unnamed = rows.draw(grey(100, 100)).tobytes()
    rows.names = ("dog",)
    assert rows.draw(grey(100, 100)).tobytes() == draw(grey(100, 100), rows, names=["dog"]).tobytes() != unnamed


def test_float_pictures_keep_their_levels() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    drawn = draw((levels.repeat(3, axis=0) / np.float32(255)).astype(np.float32), detections())
    assert np.array_equal(np.asarray(drawn), levels[0, :, :, None].repeat(3, axis=2))


def test_arrays_that_are_no_picture_are_refused() -> None:
    with pytest.raises(DtypeError, match=r"float32 picture \(3, h, w\).*got float64"):
        draw(np.zeros((3, 8, 8)), detections())  # type: ignore[arg-type]
