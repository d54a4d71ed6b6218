"""Orders of a reorg as reshapes and permutations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Steps of (shape, axes); letters stand for b c h w, s the stride, C = c / s / s, H = h / s, W = w / s, M = c * s * s.
REORGS: Mapping[str, Sequence[tuple[str, Sequence[int]]]] = {
    # the widespread transcription of Darknet's order, which takes the input's memory for C channels of h * s rows
    "darknet": [("b C h s w s", (0, 3, 5, 1, 2, 4)), ("b M H W", ())],
    "block first": [("b c H s W s", (0, 3, 5, 1, 2, 4)), ("b M H W", ())],
    "channel first": [("b c H s W s", (0, 1, 3, 5, 2, 4)), ("b M H W", ())],
    "columns first": [("b c H s W s", (0, 5, 3, 1, 2, 4)), ("b M H W", ())],
}


def reorg_sizes(shape: str, b: int, c: int, h: int, w: int, s: int) -> list[int]:
    """Numbers for the letters."""
    known = {"b": b, "c": c, "h": h, "w": w, "s": s, "C": c // s // s, "H": h // s, "W": w // s, "M": c * s * s}
    return [known[letter] for letter in shape.split()]
