"""Backward through the layers of a network, and the step of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from .. import _native
from .._native import Array, CData, ffi, lib
from ..dialect import TrainingRule
from ..errors import ShapeError, UnsupportedError
from ..exchanging import Exchange, exchanging
from ..layers import Layer
from .rowless import backward_without_rows

__all__ = [
    "Pass",
    "backpropagate",
    "clear_gradients",
    "fill_deltas",
    "natives_of",
    "on_the_way_back",
    "prepare_delta",
    "update_parameters",
    "updated_layers",
]


@dataclass(frozen=True, slots=True)
class Pass:
    """The forward that a backward goes back through.

    Args:
        x: its batch.
        train: it took the batch's statistics.
        time_steps: of the batch.
        cache: batchnorms keep what a backward needs.
        truth: what the losses compared with; None: nothing, and no delta is there yet.
        seen: images that the network was trained with, the batch's included.
    """

    x: Array
    train: bool
    time_steps: int
    cache: bool = False
    truth: Array | None = None
    seen: int = 0

    def output_of(self, layer: Layer) -> Array:
        """A copy of what the layer made of it."""
        if not self.x.shape[0]:
            return np.empty((0, *layer.out_shape), np.float32)
        return np.array(self.x if layer.passes_input else layer.output)


def prepare_delta(layer: Layer, batch: int, start: Literal["cleared", "kept", "multiplied"]) -> None:
    """The layer's delta becomes that of so many images."""
    for native in natives_of(layer):
        _native.check(lib.prepare_delta(native, batch, _native.enum("delta_start", start)))


def natives_of(layer: Layer) -> Iterator[CData]:
    """What of the core works for the layer in training: one layer or none."""
    native = layer.trainer if layer.native is None else layer.native
    if native is not None:
        yield native


def fill_deltas(layers: Sequence[Layer], kept: Sequence[Layer], delta: Array | Sequence[Array], batch: int) -> None:
    """Every delta becomes zeros, but of the kept layers what is given.

    Args:
        layers: of a network.
        kept: its heads, or its last layer.
        delta: of that one, or a list of all.
        batch: images of the forward.

    Raises:
        DtypeError, ShapeError: not one of each layer's shape.
    """
    given = [delta] if isinstance(delta, np.ndarray) else list(delta)
    if len(given) != len(kept):
        raise ShapeError(f"expected {len(kept)} deltas, one for each of layers {_numbers(kept)}, got {len(given)}")
    checked = [
        (layer, _native.input_array(array, f"delta of layer {layer.index}", (batch, *layer.out_shape), empty=not batch))
        for layer, array in zip(kept, given, strict=True)
    ]
    if not batch:
        return
    for layer in layers:
        prepare_delta(layer, batch, "cleared")
    for layer, array in checked:
        if layer.maker is not None:
            layer.maker.delta[...] = array


def _numbers(layers: Sequence[Layer]) -> str:
    return ", ".join(str(layer.index) for layer in layers)


def backpropagate(
    layers: Sequence[Layer],
    done: Pass,
    rule: TrainingRule,
    *,
    name: str,
    wants_input: bool,
    workspace: CData,
    exchanges: Mapping[int, Exchange] = MappingProxyType({}),
) -> Array | None:
    """Carries the layers' deltas back to the input, and adds to the gradients of the parameters.

    Args:
        layers: of a network; the deltas of its last ones are filled.
        done: the forward before.
        rule: whose program it is.
        name: how messages call the network.
        wants_input: whether the delta of the input is asked for.
        workspace: scratch.
        exchanges: of the forward, by the numbers of layers.

    Returns:
        The delta of the input, like `done.x`.

    Raises:
        UnsupportedError: a layer has no backward.
    """
    into = np.zeros_like(done.x) if wants_input else None
    if not len(done.x):
        backward_without_rows(on_the_way_back(layers, rule), done, exchanges, name)
        return into
    run = _Run(layers, done, into)
    state = run.state(workspace)
    for layer in on_the_way_back(layers, rule):
        for native in natives_of(layer):
            if layer.native is None and not native.batch:
                continue  # what runs in training alone did not run
            if native.backward == ffi.NULL:
                raise UnsupportedError(f"{name}:{layer.line}: layer {layer.index}: no backward for [{layer.type}]")
            kept = run.point(state, layer)
            where = f"{name}:{layer.line}: layer {layer.index} [{layer.type}]"
            with exchanging(state, exchanges.get(layer.index), where):
                _native.check(lib.backward_layer(native, state), where)
            del kept
    return into


def on_the_way_back(layers: Sequence[Layer], rule: TrainingRule) -> Iterator[Layer]:
    """The layers that a backward goes through, the last first."""
    for layer in reversed(layers):
        if layer.train.stop:
            break
        if not (layer.train.only_forward and rule.passes_over):
            yield layer


@dataclass(frozen=True, slots=True)
class _Run:
    """Where each layer finds what it read in the forward, and the deltas of that."""

    layers: Sequence[Layer]
    done: Pass
    into: Array | None

    def state(self, workspace: CData) -> CData:
        state = ffi.new("network_state *")
        state.batch, state.train, state.steps = self.done.x.shape[0], self.done.train, self.done.time_steps
        state.workspace, state.cache = workspace, 1
        return state

    def point(self, state: CData, layer: Layer) -> list[CData]:
        """Points the state at the layer's input, its sources and their deltas; the result keeps these alive."""
        before = self.layers[layer.index - 1] if layer.index else None
        sources = [self.layers[index] for index in layer.sources]
        outputs, deltas = [self._output(source) for source in sources], [self._delta(source) for source in sources]
        kept = [ffi.new("float *[]", outputs), ffi.new("float *[]", deltas)]
        state.input, state.delta = self._output(before), self._delta(before)
        state.sources, state.source_deltas = kept
        return kept

    def _output(self, layer: Layer | None) -> CData:
        maker = layer.maker if layer else None
        return maker.native.output if maker and maker.native is not None else _native.floats(self.done.x)

    def _delta(self, layer: Layer | None) -> CData:
        if layer is not None and layer.trainer is not None and layer.trainer.has_cost:
            return layer.trainer.delta
        maker = layer.maker if layer else None
        if maker and maker.native is not None:
            return maker.native.delta
        return ffi.NULL if self.into is None else _native.floats(self.into)


# --- steps ----------------------------------------------------------------------------------------------------------------------


def updated_layers(layers: Sequence[Layer], rule: TrainingRule, iteration: int | None = None) -> list[Layer]:
    """Those that the program updates in an iteration, and that have something to update.

    Behind a train_only_bn=1, as in front of it up to the input, only rolling arrays move; with dont_update=N a layer moves after
    iteration N. Gradients come together in either, as in the forks.

    Args:
        layers: of a network.
        rule: whose program it is.
        iteration: counted after the step's images; None: one that no dont_update= holds back.
    """
    last_stop = max((layer.index for layer in layers if layer.train.stop), default=0) if rule.stops_before else 0
    still = max((layer.index for layer in layers if layer.train.only_statistics), default=-1) if rule.holds_back else -1
    return [
        layer
        for layer in layers[max(last_stop, still + 1) :]
        if rule.trains(layer.type)
        and (layer.stored or rule.shared_updates)  # else it moves with the layer whose kernel it shares
        and not (rule.holds_back and iteration is not None and iteration <= layer.train.dont_update)
        and layer.native is not None
        and layer.native.update != ffi.NULL
        and not layer.native.freeze_parameters
    ]


def update_parameters(
    layers: Sequence[Layer],
    rule: TrainingRule,
    *,
    batch: int,
    learning_rate: float,
    momentum: float,
    decay: float,
    iteration: int | None = None,
) -> None:
    """Moves the parameters by their gradients, and multiplies these by the momentum.

    Args:
        layers: of a network.
        rule: whose program it is.
        batch: images whose gradients came together.
        learning_rate: of the step.
        momentum: what stays of the gradients.
        decay: of weights; it is no part of the momentum's sum in name only: the forks add it to the gradients.
        iteration: as `updated_layers` takes it.
    """
    options = ffi.new("update_options *", (batch, learning_rate, momentum, decay))
    for layer in updated_layers(layers, rule, iteration):
        _native.check(lib.update_layer(layer.native, options), f"layer {layer.index} [{layer.type}]")


def clear_gradients(layers: Sequence[Layer]) -> None:
    """Gradients, which an update multiplies by the momentum, become zeros."""
    for layer in (each for outer in layers for each in (outer, *outer.inner.values())):
        for name in ("weight_updates", "bias_updates", "scale_updates"):
            if layer.native is not None and getattr(layer.owner(name), name) != ffi.NULL:
                getattr(layer, name)[...] = 0
