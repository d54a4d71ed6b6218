"""Faults that published ports of Darknet's networks have, rebuilt on a network that people use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pydarknetbn as dn

from . import bn_faults, inputs, other_faults
from .graph import port_of
from .matrix import CLEAN, Case, Cell
from .mutations import Mutation, placed

SCALE = 1.1
NAME = "yolo-fastest-1.1"
_FAULTS = {
    "batchnorm: epsilon 0.001 inside",
    "batchnorm: epsilon 0.0001 inside",
    "batchnorm: epsilon 1e-06 inside",
    "maxpool: padded with zeros",
    "upsample: bilinear",
    "yolo: scale_x_y ignored",
}


def real_case(models: Path) -> Case:
    """yolo-fastest-1.1 with dog.jpg; its cfg says scale_x_y=1, where ignoring it is no fault, so here it says 1.1."""
    text = (models / f"{NAME}.cfg").read_text(encoding="utf-8")
    for written in ("scale_x_y = 1.00", "scale_x_y = 1.0"):
        text = text.replace(f"{written}\n", f"scale_x_y = {SCALE}\n")
    net = dn.load(text.encode(), models / f"{NAME}.weights", dialect="alexeyab")
    picture = dn.image.load_image(models / "dog.jpg")
    return Case(NAME, net, port_of(net), picture, dn.image.resize(picture, net.w, net.h)[None])


def real_cells(case: Case, backends: tuple[str, ...] = ("torch", "onnx")) -> Iterator[Cell]:
    """A clean port and each known fault, in all its layers."""
    found = [CLEAN, Mutation("input: resized bicubic", frozenset({"input.resize"}), feed=inputs.bicubic)]
    for fault in (*bn_faults.faults(), *other_faults.faults(case.net)):
        if fault.name in _FAULTS:
            found.append(next(iter(placed(fault, case.graph))))
    for backend in backends:
        yield from (Cell(case, backend, mutation) for mutation in found)
