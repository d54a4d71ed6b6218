"""Another program's values put to those of a bundle: by name, by what they hold, by order and shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..doctor.names import NameMap
from ..doctor.trace import Tensor
from .bundle import Golden, GoldenStep
from .checking import as_array, layouts
from .naming import own_names, told_names

__all__ = ["Pair", "pairs_of"]

Doubles = npt.NDArray[np.float64]

_ALIKE = 0.1  # differences of that share of the spread still tell that two values are the same one
_WORST = 1.9
_SKIPPED = {"post": 10.0}  # what a value without a counterpart costs: every port has layers' outputs, some nothing between
_BETWEEN = 1.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of the bundle and the other side's.

    Args:
        step: of the bundle.
        tensor: of the other side.
        how: "by name", "by content" or "by order and shape".
        certain: whether it is.
    """

    step: GoldenStep
    tensor: Tensor
    how: str
    certain: bool


def pairs_of(golden: Golden, tensors: Sequence[Tensor], names: NameMap | None) -> tuple[Pair, ...]:
    """In the order of the network; no two with the same tensor, but where two values are equal.

    Raises:
        ValueError: `names` names what is not there, or values of different shapes.
    """
    found = _by_name(golden, tensors, names)
    used = {pair.tensor.name for pair in found.values()}
    free = [tensor for tensor in tensors if tensor.name not in used]
    left = [step for step in golden.steps if step.key not in found]
    far = _distances(left, free)
    for at, step in enumerate(left):
        best = int(far[at].argmin()) if free else 0
        if free and far[at, best] < _ALIKE:
            found[step.key] = Pair(step, free[best], "by content", True)
            used.add(free[best].name)
    rows = [at for at, step in enumerate(left) if step.key not in found]
    columns = [at for at, tensor in enumerate(free) if tensor.name not in used]
    costs = np.array([_SKIPPED.get(left[at].stage, _BETWEEN) for at in rows])
    for row, column in _aligned(far[np.ix_(rows, columns)], costs):
        step = left[rows[row]]
        found[step.key] = Pair(step, free[columns[column]], "by order and shape (uncertain)", False)
    return tuple(found[step.key] for step in golden.steps if step.key in found)


def _by_name(golden: Golden, tensors: Sequence[Tensor], names: NameMap | None) -> dict[str, Pair]:
    """A tensor whose name is a number alone is called so by its framework, not after a layer."""
    by_name = {tensor.name: tensor for tensor in tensors}
    told = told_names(golden, by_name, names)
    others = [name for name in by_name if name not in told.values() and not re.fullmatch(r"\d+", name)]
    found = {}
    for key, name in (own_names(golden, others) | told).items():
        step, tensor = golden[key], by_name[name]
        if _fits(step, tensor):
            found[key] = Pair(step, tensor, "by name", True)
        elif key in told:
            raise ValueError(f"names: {name!r} has shape {tensor.array.shape}; {key} of the golden bundle has {step.shape}")
    return found


def _fits(step: GoldenStep, tensor: Tensor) -> bool:
    return next(layouts(step.shape, as_array(tensor.array, tensor.name)), None) is not None


def _distances(steps: Sequence[GoldenStep], tensors: Sequence[Tensor]) -> Doubles:
    """How far samples are apart, as a share of their spread; infinite where shapes do not fit."""
    far = np.full((len(steps), len(tensors)), np.inf)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for number, tensor in enumerate(tensors):
        shapes.setdefault(tensor.array.shape, []).append(number)
    for row, step in enumerate(steps):
        samples = step.samples.astype(np.float64)
        spread = float(np.linalg.norm(samples - samples.mean())) or float(np.linalg.norm(samples)) or 1.0
        for numbers in shapes.values():
            if not _fits(step, tensors[numbers[0]]):
                continue
            for number in numbers:
                array = as_array(tensors[number].array, tensors[number].name)
                apart = min(_apart(step, samples, view) for _, view in layouts(step.shape, array))
                far[row, number] = min(apart / spread, _WORST) if np.isfinite(apart) else _WORST
    return far


def _apart(step: GoldenStep, samples: Doubles, view: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(view[np.unravel_index(step.places, step.shape)] - samples))


def _aligned(far: Doubles, skipped: Doubles) -> list[tuple[int, int]]:
    """Rows and columns put together in order, each at most once, at the least cost: how far they are apart, and what is skipped."""
    rows, columns = far.shape
    cost = np.zeros((rows + 1, columns + 1))
    cost[1:, 0] = np.cumsum(skipped)
    for row in range(1, rows + 1):
        paired = cost[row - 1, :-1] + far[row - 1]
        best = np.concatenate([[cost[row, 0]], np.minimum(paired, cost[row - 1, 1:] + skipped[row - 1])])
        cost[row] = np.minimum.accumulate(best)
    found = []
    row, column = rows, columns
    while row and column:
        if cost[row, column] == cost[row, column - 1]:
            column -= 1
        elif cost[row, column] == cost[row - 1, column - 1] + far[row - 1, column - 1]:
            row, column = row - 1, column - 1
            found.append((row, column))
        else:
            row -= 1
    return found[::-1]
