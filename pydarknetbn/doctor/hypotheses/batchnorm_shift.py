"""Arrays of a layer that are read some floats beside their place in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..._native import Array
from ...layers import Layer
from ...weights import Header, entries
from ..arithmetic import Padding, convolve
from ..situation import Hypothesis, Place, Run, Trial
from .batchnorm_pass import FILE_ORDER, Arrays, with_arrays

__all__ = ["shifted"]

_NEAR = 8


class _Surroundings(NamedTuple):
    """Floats of the file around a layer's, and the position among them of each of its arrays."""

    floats: Array
    starts: Mapping[str, int]

    def shifted(self, array: Array, name: str, by: int) -> Array | None:
        start = self.starts[name] + by
        taken = self.floats[start : start + array.size] if start >= 0 else self.floats[:0]
        return taken.reshape(array.shape) if taken.size == array.size else None


def shifted(place: Place, trial: Trial) -> Iterator[Hypothesis]:
    """The arrays of the batchnorm, or all of the layer, from up to 8 floats or one array's length beside their place."""
    count = place.step.shape.c
    around = _surroundings(place, max(_NEAR, count))
    if around is None:
        return
    near = [by for distance in range(1, _NEAR + 1) for by in (distance, -distance)]
    for by in [*near, *([count, -count] if count > _NEAR else [])]:
        runs = _runs(around, by)
        if "rolling_mean" in around.starts:
            yield _hypothesis({"batchnorm": runs["batchnorm"]}, by, "not the kernel", place)
        yield _hypothesis(runs, by, "and the kernel", place)


def _surroundings(place: Place, margin: int) -> _Surroundings | None:
    net, layer = place.runner.net, place.layer
    filed = list(entries(net.layers))
    own = [number for number, entry in enumerate(filed) if entry.layer is layer]
    if not own or layer.type not in ("convolutional", "batchnorm") or not layer.file.loads_all or layer.file.flipped:
        return None
    arrays = [entry.array.ravel() for entry in filed]
    before = _last([_of_header(net.header), *arrays[: own[0]]], margin)
    after = _last([array[::-1] for array in arrays[: own[-1] : -1]], margin)[::-1]
    starts, start = {}, before.size
    for number in own:
        starts[filed[number].name] = start
        start += arrays[number].size
    return _Surroundings(np.concatenate([before, *arrays[own[0] : own[-1] + 1], after]), starts)


def _of_header(header: Header) -> Array:
    return np.frombuffer(header.to_bytes(), np.float32)


def _last(arrays: Iterable[Array], count: int) -> Array:
    """The last `count` floats of arrays that follow one another."""
    taken: list[Array] = []
    for array in reversed(list(arrays)):
        if count <= 0:
            break
        taken.insert(0, array[-count:])
        count -= taken[0].size
    return np.concatenate(taken) if taken else np.empty(0, np.float32)


def _runs(around: _Surroundings, by: int) -> dict[str, Run]:
    def change(a: Arrays) -> Arrays | None:
        found = {name: around.shifted(getattr(a, name), name, by) for name in FILE_ORDER if name in around.starts}
        return None if any(array is None for array in found.values()) else replace(a, **found)  # type: ignore[arg-type]

    def sums(place: Place) -> Array | None:
        kernel = around.shifted(place.layer.weights, "weights", by)
        return None if kernel is None else _sums(place.layer, place.inputs[0], kernel)

    def biased(place: Place) -> Array | None:
        biases = around.shifted(place.layer.biases, "biases", by)
        return None if biases is None else np.asarray(place.inputs[0] + biases[:, None, None])

    normal: dict[str, Run] = {"batchnorm": with_arrays(change)} if "rolling_mean" in around.starts else {"biases": biased}
    return normal | ({"convolution": sums} if "weights" in around.starts else {})


def _sums(layer: Layer, x: Array, kernel: Array) -> Array | None:
    native = layer.native
    assert native is not None
    border = native.pad * native.dilation
    padding, stride = Padding(border, border, border, border), (native.stride_y, native.stride_x)
    with np.errstate(all="ignore"):  # integers of the header are no floats
        return convolve(x, kernel, stride=stride, padding=padding, dilation=native.dilation, groups=native.groups)


def _hypothesis(runs: Mapping[str, Run], by: int, kernel: str, place: Place) -> Hypothesis:
    floats = f"{abs(by)} float{'s' if abs(by) > 1 else ''}"
    named = f" ({kernel})" if "weights" in place.layer.shapes else ""
    words = f"the layer's arrays{named} are read {floats} too {'late' if by > 0 else 'early'} in the file"
    size = place.runner.net.header.nbytes
    order = ", ".join(place.layer.shapes)
    fix = {"": f"read {order} in this order, behind a header of {size} bytes"}
    return Hypothesis("batchnorm.shifted", words, runs, fix, {"shift": by, "kernel": kernel}, local=place.step.layer)
