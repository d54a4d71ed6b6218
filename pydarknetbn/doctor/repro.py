"""The first difference of a comparison as files of their own: the smallest cfg, weights, input and expected value that show it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .._native import Array
from ..errors import StateError, UnsupportedError
from ..loading import load
from ..network import Network
from ..options import Section
from .results import Comparison
from .teacher import Segment

__all__ = ["write_repro"]

_OTHERS = ("from", "layers", "share_index")  # options that name other layers
_VALUE = "theirs"


class _Compare(Protocol):
    """`dn.compare`, which stands above this."""

    def __call__(self, net: Network, other: dict[str, Array], x: Array, *, names: dict[str, str]) -> Comparison:
        """Compares."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A network of one layer, its input, and what the other side has for a stage of it."""

    net: Network
    x: Array
    expected: Array
    stage: str

    @property
    def names(self) -> dict[str, str]:
        """For `compare`."""
        return {f"0.{self.stage}": _VALUE}


def write_repro(comparison: Comparison, segment: Segment | None, directory: str | os.PathLike[str], compare: _Compare) -> Path:
    """Writes `repro.cfg`, `repro.weights`, `input.npz`, `expected.npz`, `names.txt` and `README.txt` into a new folder.

    Of the filters of a convolution only the worst are left, as many as are needed to name the same cause.

    Args:
        comparison: that found a difference.
        segment: where it was first.
        directory: must not be there yet.
        compare: tells whether what is left still differs for the same cause.

    Returns:
        The folder, written whole or not at all.

    Raises:
        StateError: there is no difference, or the folder is there.
        UnsupportedError: the difference is of no single layer that takes but the layer before it.
    """
    target = Path(directory)
    if segment is None:
        raise StateError(f"{comparison.name}: there is no difference to reproduce")
    if target.exists():
        raise StateError(f"{target}: is there already; name a folder that is not")
    section = _section_of(comparison, segment)
    kind = comparison.causes[0].kind if comparison.causes else ""
    for filters in _selections(segment):
        parts = _parts(segment, section, filters)
        found = compare(parts.net, {_VALUE: parts.expected}, parts.x, names=parts.names)
        if not found.clean and (found.cause.kind if found.cause else "") == kind:
            break
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        whole = Path(folder) / "repro"
        _write(whole, parts, comparison)
        whole.rename(target)
    return target


def _section_of(comparison: Comparison, segment: Segment) -> Section:
    place = "the network's input"
    layers = sorted({step.layer for step in segment.steps if step.layer >= 0})
    if len(layers) == 1:
        section = segment.runner.net.origin.cfg.layers[segment.step.layer]
        if not any(section.has(key) for key in _OTHERS):
            return section
        place = f"layer {section.index} [{section.type}] (line {section.line})"
    elif layers:
        place = f"layers {layers[0]} to {layers[-1]}"
    message = f"{comparison.name}: the first difference, at {place}, is of no single layer that takes but the layer before it"
    raise UnsupportedError(f"{message}, and is not cut out; write its values with dump and compare those")


def _selections(segment: Segment) -> Iterator[npt.NDArray[np.intp] | None]:
    """Filters to keep: the worst, the two worst, four, ..., and None for all of them."""
    layer = segment.runner.layer_of(segment.step)
    native = layer.native
    if layer.type == "convolutional" and native is not None and native.groups == 1:
        with np.errstate(invalid="ignore"):
            apart = np.nan_to_num(np.abs(segment.ours - segment.theirs).max(axis=(0, 2, 3)) / segment.noise, nan=np.inf)
        worst = np.argsort(-apart, kind="stable")
        count = 1
        while count < len(worst):
            yield np.sort(worst[:count])
            count *= 2
    yield None


def _parts(segment: Segment, section: Section, filters: npt.NDArray[np.intp] | None) -> _Parts:
    layer = segment.runner.layer_of(segment.step)
    first = next(step for step in segment.runner.steps if step.layer == layer.index)
    x = np.ascontiguousarray(segment.values[first.inputs[0]][:1])
    expected = segment.theirs[:1]
    changed = {} if filters is None else {"filters": str(len(filters))}
    lines = [f"{option.key}={changed.get(option.key, option.value)}" for option in section.options]
    head = ["[net]", *(f"{key}={size}" for key, size in zip(("channels", "height", "width"), x.shape[1:], strict=True))]
    text = "\n".join([*head, "", f"[{section.type}]", *lines, ""])
    net = segment.runner.net
    made = load(text.encode(), dialect=net.dialect, profile=net.profile)
    for name, array in layer.params.items():
        made.layers[0].params[name][...] = array if filters is None else array[filters]
    kept = expected if filters is None else expected[:, filters]
    return _Parts(made, x, np.ascontiguousarray(kept), segment.step.stage)


def _write(folder: Path, parts: _Parts, comparison: Comparison) -> None:
    folder.mkdir()
    (folder / "repro.cfg").write_text(parts.net.origin.cfg.text, encoding="utf-8")
    parts.net.save(folder / "repro.weights")
    np.savez_compressed(folder / "input.npz", input=parts.x)
    np.savez_compressed(folder / "expected.npz", theirs=parts.expected)
    (folder / "names.txt").write_text("".join(f"{key} = {name}\n" for key, name in parts.names.items()), encoding="utf-8")
    options = f"--input input.npz --names names.txt --dialect {parts.net.dialect} --profile {parts.net.profile}"
    run = f"pydarknetbn compare repro.cfg repro.weights expected.npz {options}"
    told = (
        f"{comparison.verdict}\n\nOf {comparison.name} against {comparison.source}. To see it again, in this folder:\n\n    {run}\n"
    )
    (folder / "README.txt").write_text(told, encoding="utf-8")
