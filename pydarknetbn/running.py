"""Runs layers one after another, and plans which of their outputs may lie in the same memory."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from . import _native
from ._native import CData, ffi, lib
from .errors import StateError, UnsupportedError
from .exchanging import Exchange, exchanging
from .layers import Layer
from .layers.dropout import draw_mask
from .sync.ranks import Ranks
from .training.backpropagation import Pass, prepare_delta
from .training.rowless import forward_without_rows
from .training.syncing import rolling_arrays_kept

if TYPE_CHECKING:
    from .cuda.running import DeviceLayers

__all__ = ["Plan", "Runner", "plan_outputs"]

Starts = Callable[[Layer], Literal["cleared", "kept", "multiplied"]]


class Plan(NamedTuple):
    """Where outputs lie that only later layers need.

    Args:
        place: number of a layer -> number of the array that its output lies in.
        floats: of each array, for one image.
        last_readers: number of a layer -> those whose outputs nobody needs after it.
    """

    place: dict[int, int]
    floats: list[int]
    last_readers: dict[int, list[int]]


def plan_outputs(layers: Sequence[Layer], kept: Iterable[Layer]) -> Plan:
    """Puts the outputs of layers into few arrays: the largest first, each where nothing lies at the same time.

    Args:
        layers: of a network.
        kept: those whose outputs have arrays of their own.
    """
    last = _last_readers(layers)
    makers = {maker.index for layer in kept if (maker := layer.maker)}
    shared = [layer for layer in layers if layer.native is not None and layer.index not in makers]
    place: dict[int, int] = {}
    floats: list[int] = []
    taken: list[list[tuple[int, int]]] = []  # for each array, the layers from which to which it is in use, in order
    for layer in sorted(shared, key=lambda layer: -layer.out_shape.floats):
        use = (layer.index, last[layer.index])
        free = [number for number, uses in enumerate(taken) if _fits(use, uses)]
        if not free:
            taken.append([])
            floats.append(layer.out_shape.floats)
        number = free[-1] if free else len(taken) - 1  # of those that are free the shortest
        insort(taken[number], use)
        place[layer.index] = number
    readers: dict[int, list[int]] = {}
    for index in place:
        readers.setdefault(last[index], []).append(index)
    return Plan(place, floats, readers)


def _last_readers(layers: Sequence[Layer]) -> dict[int, int]:
    """Number of each layer -> that of the last layer that reads its output; its own where none does."""
    last = {layer.index: layer.index for layer in layers}
    for layer in layers:
        read = [layer.index - 1, *layer.sources] if layer.index and layer.native is not None else []
        for maker in (layers[index].maker for index in read):
            if maker is not None:
                last[maker.index] = layer.index
    return last


def _fits(use: tuple[int, int], uses: list[tuple[int, int]]) -> bool:
    at = bisect(uses, use)
    return (at == 0 or uses[at - 1][1] < use[0]) and (at == len(uses) or use[1] < uses[at][0])


class Runner:
    """The forward of a network's layers, and the memory that they share in it.

    Args:
        layers: in order.
        kept: the layers whose outputs outlive every forward.
        name: how messages call the network.
        folded: it has no batchnorm to train.
    """

    def __init__(self, layers: Sequence[Layer], kept: Sequence[Layer], name: str, *, folded: bool = False) -> None:
        self._layers, self._kept, self._name, self._folded = layers, kept, name, folded
        self.generator = np.random.default_rng(0)  # of the numbers that training forwards draw
        self._plan: Plan | None = None  # made by the first forward that needs it
        self.workspace = _workspace(0)
        self.done: Pass | None = None
        self.exchanges: dict[int, Exchange] = {}  # of the batchnorms of layers, by their numbers
        self.ranks: Ranks | None = None  # that train together
        self.device: DeviceLayers | None = None  # where the layers run instead

    def checked(self, x: object, expected: Sequence[int | str]) -> Any:
        """A batch of that shape that `run` takes: an array of the host's or, where the layers are on a device, one of that, too."""
        if self.device and not isinstance(x, np.ndarray):
            return self.device.checked(x, expected)
        return _native.input_array(x, "x", expected, empty=self.ranks is not None and self.device is None)

    def require_host(self, what: str) -> None:
        """Raises an UnsupportedError where the layers run on a device."""
        if self.device:
            place = self.device.place
            raise UnsupportedError(f"{self._name}: {what} runs on the CPU, and the network is on {place}; call net.to('cpu') first")

    def run(self, done: Pass, *, keep_all: bool, starts: Starts | None = None) -> Pass:
        """Computes each layer's output; `self.done` is then the pass, if a backward can follow.

        Args:
            done: the batch, and what for.
            keep_all: or else outputs go as soon as no later layer needs them; not in training.
            starts: how a layer's delta starts, for losses to fill.

        Returns:
            The pass, whose x is a copy where a first layer changes it in place.
        """
        if done.time_steps < 1:
            raise ValueError(f"expected time_steps to be 1 or more, got {done.time_steps}")
        self.done = None
        self._check_place(done)
        if done.train:
            self._check_training()
            if any(layer.type == "dropout" and layer.passes_input for layer in self._layers):
                done = replace(done, x=done.x.copy())
        for layer in self._layers:
            if layer.trainer is not None:
                layer.trainer.batch = 0  # not run yet
        if self.device:
            return self.device.run(done, keep_all=keep_all)
        if keep_all or done.train or done.cache:
            if self._plan:
                self._plan, self.workspace = None, _workspace(0)
            with rolling_arrays_kept(self._layers if done.train and self.exchanges else ()):
                self._run(done, None, starts)
            self.done = done if done.cache else None
            return done
        if not self._plan:
            self._plan = plan_outputs(self._layers, self._kept)
            self.workspace = _workspace(len(self._plan.floats))
        self._drop(self._plan.place)
        try:
            self._run(done, self._plan, None)
        finally:
            self._drop(self._plan.place)
        return done

    def _check_place(self, done: Pass) -> None:
        """Whether the layers can be run where they are."""
        if done.train or done.cache:
            self.require_host("training" if done.train else "what a backward needs")
        if any(exchange.in_inference for exchange in self.exchanges.values()):
            self.require_host("a batchnorm whose statistics are exchanged")

    def _check_training(self) -> None:
        if self._folded:
            raise StateError(f"{self._name}: is folded and has no batchnorm to train; train the network it was folded from")
        untrained = [f"[{layer.type}]" for layer in self._layers if layer.type == "crop"]
        untrained += ["[dropout] with dropblock=1" for layer in self._layers if layer.type == "dropout" and layer.trainer is None]
        if untrained:
            raise UnsupportedError(f"{self._name}: {untrained[0]} in training is not computed; use train=False")

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            lib.drop_output(self._layers[number].native)

    def _run(self, done: Pass, plan: Plan | None, starts: Starts | None) -> None:
        if not len(done.x) and done.train:
            forward_without_rows(self._layers, done, self.exchanges, self._name)
            return
        state = ffi.new("network_state *")
        state.batch, state.train, state.cache, state.steps = done.x.shape[0], done.train, done.cache, done.time_steps
        state.workspace = self.workspace
        state.seen = done.seen
        state.truth = ffi.NULL if done.truth is None else _native.floats(done.truth)
        current = _native.floats(done.x)
        outputs: list[CData] = []
        for layer in self._layers:
            if starts:
                prepare_delta(layer, state.batch, starts(layer))
            native = layer.trainer if layer.native is None and done.train else layer.native
            if native is not None:
                if layer.type == "dropout":
                    draw_mask(layer, state.batch, self.generator)
                sources = ffi.new("float *[]", [outputs[index] for index in layer.sources])
                state.input, state.sources = current, sources
                where = f"{self._name}:{layer.line}: layer {layer.index} [{layer.type}]"
                if plan and layer.index in plan.place:
                    place = plan.place[layer.index]
                    _native.check(lib.lend_output(native, self.workspace, place, plan.floats[place], state.batch), where)
                with exchanging(state, self.exchanges.get(layer.index), where):
                    _native.check(lib.forward_layer(native, state), where)
            if layer.native is not None:
                current = layer.native.output
            outputs.append(current)
            if plan:
                self._drop(plan.last_readers.get(layer.index, ()))


def _workspace(arrays: int) -> CData:
    made = ffi.new("workspace **")
    _native.check(lib.make_workspace(made, arrays))
    return ffi.gc(made[0], lib.free_workspace)
