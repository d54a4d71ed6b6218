"""Each fault in each network through each framework: what a doctor says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import pydarknetbn as dn

from . import networks
from .as_onnx import saved
from .bn_faults import folded
from .graph import Floats, Graph, port_of
from .mutations import Mutation, mutations

BACKENDS = ("torch", "onnx", "onnx folded")
_FOLDED = "onnx folded"
CLEAN = Mutation("clean", frozenset())
VISIBLE = 10.0
"""A cell counts where an output moves by more than that many times its layer's rounding noise."""
_RECOVERED = ("epsilon", "slope")
_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Case:
    """A network, its right port, what both are given, and the picture of that."""

    name: str
    net: dn.Network
    graph: Graph
    picture: Floats
    x: Floats


@dataclass(frozen=True)
class Cell:
    """One fault in one network through one framework."""

    case: Case
    backend: str
    mutation: Mutation

    @property
    def graph(self) -> Graph:
        """The port with the fault."""
        wrong = self.mutation.graph(self.case.graph)
        return folded(wrong) if self.backend == _FOLDED else wrong

    @property
    def given(self) -> Floats:
        """What the port gets."""
        return self.mutation.given(self.case.picture, self.case.x)

    def port(self, folder: Path) -> Any:
        """A module, or the path of an ONNX file in the folder."""
        if self.backend != "torch":
            return saved(self.graph, folder / "port.onnx")
        from .as_torch import as_torch

        return as_torch(self.graph)


@dataclass(frozen=True)
class Row:
    """What came of a cell.

    `expected` kinds, any is right, none for a clean port; `moved` in multiples of the noise; `named` kind, "" for none; `correct`;
    `wrong`: a cause was named, and not the right one; `values` that were recovered; `words` of the verdict.
    """

    network: str
    backend: str
    mutation: str
    expected: tuple[str, ...]
    moved: float
    named: str
    correct: bool
    wrong: bool
    values: dict[str, float | int | str]
    words: str

    @property
    def counts(self) -> bool:
        """Whether the fault shows, or there is none."""
        return not self.expected or self.moved > VISIBLE


@cache
def case(name: str, seed: int) -> Case:
    """One of the three networks with weights and a picture from a seed."""
    net, picture = networks.network(name, seed), networks.picture(seed)
    return Case(name, net, port_of(net), picture, networks.given(picture))


def cells(seed: int, names: Iterable[str] = networks.NETWORKS) -> tuple[Cell, ...]:
    """All cells; a folded model has the faults of what is not folded away, and those of the arrays before they are folded."""
    return tuple(cell for name in names for cell in _of_case(case(name, seed), seed))


@cache
def faults_of(name: str, seed: int) -> tuple[Mutation, ...]:
    """All faults of one of the three networks."""
    made = case(name, seed)
    return mutations(made.net, made.graph)


def _of_case(made: Case, seed: int) -> Iterator[Cell]:
    found = (CLEAN, *faults_of(made.name, seed))
    for backend in BACKENDS:
        yield from (Cell(made, backend, mutation) for mutation in found if _exists(backend, mutation, made.graph))


def _exists(backend: str, mutation: Mutation, graph: Graph) -> bool:
    if mutation.values.get("precision") == "bfloat16":
        return backend == "torch"  # onnxruntime computes none of it on the CPU
    if backend != _FOLDED:
        return True
    if mutation.change is None:
        return mutation is CLEAN
    foldable = {"batchnorm.epsilon", "batchnorm.scales_missing", "batchnorm.biases_missing", "batchnorm.rolling_not_loaded"}
    of_batchnorm = any(kind.startswith("batchnorm") for kind in mutation.kinds)
    already = not mutation.graph(graph).where("batchnorm")
    return not already and (not of_batchnorm or bool(mutation.kinds & foldable))


def observable(cell: Cell) -> float:
    """By how many times its layer's rounding noise the fault moves an output, at most; its own layer's alone."""
    from .moving import moved

    right = _right(cell.case)
    return moved(right, cell.mutation.graph(cell.case.graph), cell.given, first_only=cell.mutation.feed is not None)


@cache
def _right(made: Case) -> Any:
    from .moving import Right

    return Right(made.graph, made.x)


def run(
    seed: int, compare: Callable[..., Any], folder: Path, *, chosen: Sequence[Cell] | None = None, **options: Any
) -> Iterator[Row]:
    """Asks the doctor about each cell.

    Args:
        seed: of weights and pictures.
        compare: `dn.compare`, or what takes and gives the same.
        folder: where ONNX files are written.
        chosen: cells instead of all of that seed.
        options: for `compare`.
    """
    for cell in cells(seed) if chosen is None else chosen:
        given, x = cell.given, cell.case.x
        found = compare(cell.case.net, cell.port(folder), x, other_input=given, picture=cell.case.picture, **options)
        yield judged(cell, found)


def judged(cell: Cell, found: Any) -> Row:
    """A comparison as a row."""
    cause, mutation = found.cause, cell.mutation
    named = cause.kind if cause is not None else ""
    values = dict(cause.values) if cause is not None else {}
    if mutation is CLEAN or mutation.harmless:
        correct = named in ("", *mutation.kinds) and bool(found.clean)
    else:
        correct = named in mutation.kinds and _recovered(mutation, values)
    names = cell.case.name, cell.backend, mutation.name
    share = 0.0 if mutation is CLEAN else observable(cell)
    return Row(*names, tuple(sorted(mutation.kinds)), share, named, correct, bool(named) and not correct, values, found.verdict)


def _recovered(mutation: Mutation, values: dict[str, float | int | str]) -> bool:
    """Numbers that were to be found out are right to 1 %."""
    wanted = {name: value for name, value in mutation.values.items() if name in _RECOVERED}
    return all(
        name in values and np.isclose(float(values[name]), float(value), rtol=_SHARE, atol=0) for name, value in wanted.items()
    )


def sample(found: Sequence[Cell], step: int, first: int = 0) -> tuple[Cell, ...]:
    """Every so manieth cell, and the clean ones."""
    return tuple(cell for number, cell in enumerate(found) if cell.mutation is CLEAN or number % step == first)


def summary(rows: Iterable[Row]) -> dict[str, float]:
    """Counts over the cells that count."""
    counted = [row for row in rows if row.counts]
    faults = [row for row in counted if row.expected]
    clean = [row for row in counted if not row.expected]
    return {
        "cells": len(faults),
        "named": sum(row.correct for row in faults),
        "share": sum(row.correct for row in faults) / max(1, len(faults)),
        "wrong": sum(row.wrong for row in counted),
        "clean": len(clean),
        "clean called clean": sum(row.correct for row in clean),
    }
