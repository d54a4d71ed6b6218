"""What of a layer a file of weights holds: dontload, dontloadscales, numload, dontsave and flipped."""

from __future__ import annotations

from ..options import Section
from .base import FileOptions, Layer

__all__ = ["file_options"]

# The forks ask no other layer about dontloadscales.
_WITH_SCALES = ("connected", "convolutional", "deconvolutional")


def file_options(section: Section, layer: Layer) -> FileOptions:
    """What the section says about the file.

    Raises:
        CfgError: numload is more than the layer's filters, or of a layer whose filters are not one after another.

    Source: pjreddie/darknet src/parser.c load_convolutional_weights, AlexeyAB/darknet src/parser.c load_weights_upto.
    """
    return FileOptions(
        load=not section.flag("dontload"),
        scales=not (section.flag("dontloadscales") and section.type in _WITH_SCALES),
        filters=_filters(section, layer),
        save=not section.flag("dontsave"),
        flipped=section.type == "convolutional" and section.flag("flipped"),
    )


def _filters(section: Section, layer: Layer) -> int | None:
    numload = section.integer("numload", 0, minimum=0)
    if not numload or section.type not in ("convolutional", "deconvolutional"):
        return None
    place = f"{section.name}, layer {section.index}, has numload={numload}"
    if section.type == "deconvolutional":
        raise section.error(f"{place}, but its weights do not lie filter after filter; leave numload out", "numload")
    if numload > layer.out_shape.c:
        raise section.error(f"{place}, but only {layer.out_shape.c} filters", "numload")
    return numload
