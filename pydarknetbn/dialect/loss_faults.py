"""The faults of `faults.py` that are in losses."""

from __future__ import annotations

from .faults import Fault

__all__ = ["LOSS_FAULTS"]

LOSS_FAULTS = (
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "forward_yolo_layer, forward_region_layer of a box of a class that there is not, of no size or with its middle outside the "
        "picture",
        "writes another box's deltas or foreign memory, takes logarithms of 0 and less; AlexeyAB's leaves unknown classes out "
        "with a line of output, hank-ai's ends",
        "ShapeError with the box and the image, before any delta is written",
    ),
    Fault(
        ("pjreddie", "alexeyab", "hank-ai"),
        "forward_yolo_layer, forward_region_layer of a box whose middle has x or y of exactly 1",
        "takes the first cell of the next row, of the next anchor, or, behind the last, the next image or foreign memory",
        "the same, but what lies behind the last cell of all anchors is the last cell",
    ),
    Fault(
        ("alexeyab", "hank-ai"),
        "src/region_layer.c forward_region_layer with classfix= and a thresh below 0",
        "teaches class -1: writes objectness as a class",
        "a cell that overlaps no box is taught no class",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/detection_layer.c forward_detection_layer with forced=1 and one box, or where every box is 20 and more away",
        "takes box 1, or -1: foreign memory",
        "box 0",
    ),
    Fault(
        ("pjreddie", "alexeyab"),
        "src/detection_layer.c forward_detection_layer with random=1",
        "takes a box by rand(), which other code draws from, too",
        "takes one by the number of images seen and of the cell",
    ),
    Fault(
        ("hank-ai",),
        "src-lib/box.cpp overlap of a prediction that is no number",
        "std::max and std::min keep it where AlexeyAB's comparisons drop it",
        "as AlexeyAB's",
    ),
    Fault(
        ("hank-ai",),
        "src-lib/gaussian_yolo_layer.cpp forward_gaussian_yolo_layer with yolo_point=left_top or right_bottom",
        "std::clamp with its arguments in another order and a cast of a number below 1: undefined, in practice mostly cell 0",
        "the cell of the corner, as in AlexeyAB's",
    ),
)
