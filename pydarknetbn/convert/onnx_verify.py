"""Runs an exported file in onnxruntime and compares every layer's output with this package's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._native import Array
from ..extras import import_extra
from ..network import Network
from ..recurrence import fresh_state

__all__ = ["LIMITS", "LayerAgreement", "Verification", "seeded_input", "verify_onnx"]

SEED = 0
LIMITS: Mapping[str, float] = {"float32": 1 / 10_000, "float16": 1 / 20}
"""The largest difference, as a share of a layer's range, at which two programs still compute the same network. Sums in another
order differ by some 1e-6 of it, and every layer passes on what it got; half precision has 11 bits."""


@dataclass(frozen=True, slots=True)
class LayerAgreement:
    """How far two programs are apart after a layer.

    Args:
        index, type: of the layer.
        largest: the largest absolute difference; infinite where one has a number and the other none.
        range: largest minus smallest value that this package gives, or their size where all are equal.
    """

    index: int
    type: str
    largest: float
    range: float

    @property
    def relative(self) -> float:
        """The largest difference as a share of the range."""
        return self.largest / self.range if self.range else self.largest


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison found.

    Args:
        runtime: who computed the file, such as "onnxruntime 1.20.0".
        batch: how many images, from NumPy's generator of seed 0, values from 0 to 1.
        limit: up to which the two agree.
        layers: one entry a layer.
    """

    runtime: str
    batch: int
    limit: float
    layers: tuple[LayerAgreement, ...]

    @property
    def worst(self) -> LayerAgreement:
        """The layer with the largest difference relative to its range."""
        return max(self.layers, key=lambda layer: layer.relative)

    @property
    def agrees(self) -> bool:
        """Whether every layer is within the limit."""
        return self.worst.relative <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        layers = [asdict(layer) | {"relative": layer.relative} for layer in self.layers]
        return {
            "runtime": self.runtime, "batch": self.batch, "seed": SEED, "limit": self.limit, "agrees": self.agrees,
            "worst": self.worst.relative, "worst_layer": self.worst.index, "layers": layers,
        }  # fmt: skip

    def __str__(self) -> str:
        worst = self.worst
        found = f"every layer within {worst.relative:.1e} of its range (layer {worst.index} [{worst.type}])"
        return f"{self.runtime}, {self.batch} seeded images: {found if self.agrees else self.fault}"

    @property
    def fault(self) -> str:
        """A sentence on the first layer over the limit."""
        first = next((layer for layer in self.layers if not layer.relative <= self.limit), self.worst)
        return f"layer {first.index} [{first.type}] is {first.relative:.1e} of its range apart, more than {self.limit:g}"


def seeded_input(net: Network, batch: int) -> Array:
    """(batch, c, h, w), the same numbers each time."""
    return np.random.default_rng(SEED).random((batch, net.c, net.h, net.w), np.float32)


def verify_onnx(net: Network, model: Any, batch: int, dtype: str) -> Verification:
    """Compares each layer.

    Args:
        net: computes the expected outputs; not folded, so that the fold is compared as well.
        model: the ModelProto, whose outputs by layer are called `<index>_<type>`.
        batch: how many images to run.
        dtype: of the model's values.
    """
    runtime = import_extra("onnxruntime", "onnx")
    steps = 2 if any(layer.states for layer in net.layers) else 1  # the second one from a state that is not 0
    batches = list(seeded_input(net, steps * batch).reshape(steps, batch, net.c, net.h, net.w))
    names = [f"{layer.index}_{layer.type}" for layer in net.layers]
    outputs = _run(runtime, model, names, [x.astype(dtype) for x in batches])
    _forward(net, batches)
    layers = []
    for layer, name in zip(net.layers, names, strict=True):
        expected = batches[-1] if layer.passes_input else layer.output
        layers.append(_agreement(layer.index, layer.type, expected, outputs.pop(name)))
    return Verification(f"onnxruntime {runtime.__version__}", batch, LIMITS[dtype], tuple(layers))


def _forward(net: Network, batches: Sequence[Array]) -> None:
    """One time step after the other, from a state of zeros; the network's own state is as before."""
    steps, net.time_steps = net.time_steps, 1
    try:
        with fresh_state(net.layers):
            for x in batches:
                net.forward(x)
    finally:
        net.time_steps = steps


def _run(runtime: Any, model: Any, names: list[str], batches: Sequence[Array]) -> dict[str, Array]:
    """The outputs of all layers after the last time step, by the model's own nodes: only what counts as an output is changed."""
    graph = model.graph
    count, present = len(graph.output), {output.name for output in graph.output}
    by_name = {value.name: value for value in graph.value_info}
    try:
        graph.output.extend(by_name[name] for name in names if name not in present)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    finally:
        del graph.output[count:]
    dims = {state.name: [dim.dim_value for dim in state.type.tensor_type.shape.dim][1:] for state in list(graph.input)[1:]}
    states = {name: np.zeros((len(batches[0]), *shape), batches[0].dtype) for name, shape in dims.items()}
    wanted = [*names, *(f"{name}_next" for name in states)]
    for x in batches:
        outputs = dict(zip(wanted, session.run(wanted, {graph.input[0].name: x} | states), strict=True))
        states = {name: outputs.pop(f"{name}_next") for name in states}
    return outputs


def _agreement(index: int, kind: str, expected: Array, got: Array) -> LayerAgreement:
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(expected.astype(np.float64) - got))
    largest = float(np.where(np.isnan(apart), np.inf, apart).max())
    finite = expected[np.isfinite(expected)]
    spread = float(np.ptp(finite)) if finite.size else 0.0
    size = spread or (float(np.abs(finite).max()) if finite.size else 0.0)
    return LayerAgreement(index, kind, largest, size)
