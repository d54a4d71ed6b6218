"""For the tests of a port: its values against a golden bundle, without Darknet, a cfg or weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._native import Array
from .doctor.names import NameMap
from .golden import Golden, read_golden
from .golden.checking import Checked, as_array, check_value
from .golden.naming import own_names, told_names

__all__ = ["assert_matches", "golden_input"]

_LISTED = 6


def golden_input(path: str | os.PathLike[str]) -> Array:
    """The input that a golden bundle was made with, (batch, c, h, w), to the bit.

    Raises:
        DumpError: the file is no golden bundle, or damaged.
    """
    return read_golden(path).input


def assert_matches(
    activations: Mapping[Any, Any],
    path: str | os.PathLike[str],
    *,
    names: NameMap | None = None,
    tolerance: float | None = None,
) -> None:
    """Fails where a port's values are not those of a golden bundle.

    Args:
        activations: name -> array or tensor of PyTorch, (batch, c, h, w) or (batch, h, w, c), of what the port makes of
            `golden_input(path)`. Named "12.post", "12_convolutional", "12" or 12, the layers' numbers in the cfg; or see `names`.
            Layers that are not among them are not compared.
        path: the bundle, of `pydarknetbn dump --golden`.
        names: layer -> the activations' name for it, where they are called otherwise: {"12": "conv3", "12.sums": "conv3.conv"}; or
            the path of a file of these, as in `compare`.
        tolerance: what may differ, as a share of the range of the layer; None takes what rounding makes of another order of
            sums, 0 wants every bit equal.

    Raises:
        AssertionError: naming the first layer that differs; or there is nothing to compare.
        CfgError: `names` names what is not there.
        ValueError: the tolerance is below 0.
        DumpError: the file is no golden bundle, or damaged.
    """
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"expected a tolerance of 0 or more, got {tolerance}")
    golden = read_golden(path)
    given = {str(name): value for name, value in activations.items()}
    told = told_names(golden, given, names)
    pairs = own_names(golden, [name for name in given if name not in told.values()]) | told
    where = os.fspath(path)
    if not pairs:
        first = ", ".join(map(repr, list(given)[:_LISTED])) or "nothing"
        raise AssertionError(f"None of the activations ({first}) is a layer of {where}; pass names={{'0': 'conv1', …}}")
    failures = list(_failures(golden, given, pairs, tolerance))
    if failures:
        raise AssertionError(_message(golden, where, pairs, failures))


@dataclass(frozen=True, slots=True)
class _Failure:
    """A value that is not as it should be: its key, and what a message says of it."""

    key: str
    lines: tuple[str, ...]


def _failures(golden: Golden, given: Mapping[str, Any], pairs: Mapping[str, str], tolerance: float | None) -> Iterator[_Failure]:
    """In the order of the network."""
    for step in golden.steps:
        if step.key not in pairs:
            continue
        name = pairs[step.key]
        array = as_array(given[name], name)
        checked = check_value(step, name, array, tolerance=tolerance)
        if checked is None:
            sides = " or as (batch, h, w, c)" if step.shape[2] * step.shape[3] > 1 else ""
            wrong = f"expected {step.shape}{sides}, got {array.shape}"
            yield _Failure(step.key, (f"{_title(step.title, name)} has another shape: {wrong}", ""))
        elif checked.bad:
            yield _Failure(step.key, tuple(_lines(checked)))


def _title(title: str, name: str) -> str:
    return f"{title[0].upper()}{title[1:]} (given as {name!r}),"


def _message(golden: Golden, where: str, pairs: Mapping[str, str], failures: Sequence[_Failure]) -> str:
    lines = [*failures[0].lines]
    if len(failures) > 1:
        others = _some([failure.key for failure in failures[1:]])
        lines.append(f"After it {len(failures) - 1} more of the {len(pairs)} compared differ: {others}")
    missing = [step.key for step in golden.steps if step.key not in pairs]
    if missing:
        lines.append(f"Not given, so not compared: {_some(missing)}")
    lines.append(f"Expected values: {where}, {golden.about.get('formula', '')}")
    lines.append(f"Input: {golden.about.get('input', '')}")
    return "\n".join(lines)


def _lines(result: Checked) -> list[str]:
    """As torch.testing.assert_close words it."""
    step, over = result.step, result.over
    layout = "" if result.layout == "NCHW" else f" Read as {result.layout}."
    lines = [f"{_title(step.title, result.name)} is not as it should be!{layout}", ""]
    share = 100 * over.mean() if over.size else 0.0
    lines.append(f"Mismatched elements: {int(over.sum())} / {over.size} sampled ({share:.1f}%)")
    if over.any():
        with np.errstate(all="ignore"):
            relative = np.where(over, result.apart / np.abs(step.samples), 0)
        lines += [
            _greatest("absolute", result, result.apart, int(np.argmax(np.where(over, result.apart, -1)))),
            _greatest("relative", result, relative, int(np.argmax(np.nan_to_num(relative, nan=-1, posinf=np.inf)))),
        ]
    if result.nan:
        lines.append(f"First NaN at index {result.nan}")
    return [*lines, *result.totals]


def _greatest(kind: str, result: Checked, values: Any, at: int) -> str:
    place, expected, got = result.step.index(at), result.step.samples[at], result.samples[at]
    allowed = f" (up to {result.allowed[at]:.2g} allowed)" if kind == "absolute" else ""
    return f"Greatest {kind} difference: {values[at]:.9g} at index {place}{allowed}: expected {expected:.9g}, got {got:.9g}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
