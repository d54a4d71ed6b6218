"""Recurrent layers in training as the forks' own files computed it: two batches, updates between them, and an inference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import libm
import pydarknetbn as dn
from core import SAMPLE, assert_same_bits
from nets import cfg_of
from pydarknetbn import _native
from pydarknetbn._native import Array, ffi, lib

RECORDINGS = SAMPLE / "recurrent"
CASES = [
    pytest.param(path, name.removesuffix(".made"), id=f"{path.stem}-{name.removesuffix('.made')}")
    for path in sorted(RECORDINGS.glob("*.npz"))
    for name in np.load(path).files
    if name.endswith(".made")
]
UPDATES = {"weights": "weight_updates", "biases": "bias_updates", "scales": "scale_updates"}
BATCHES = 2


class Recording:
    """One case: the recorded arrays lie one after another in the order in which they are asked for."""

    def __init__(self, path: Path, case: str) -> None:
        with np.load(path) as file:
            cfg, self._given, self.made = (file[f"{case}.{name}"] for name in ("cfg", "given", "made"))
            self.inner = file[f"{case}.inner"].tolist()
        section, size, steps = (str(text) for text in cfg)
        sizes = {name: int(value) for name, _, value in (part.partition("=") for part in size.split())}
        self.steps = int(steps.partition("=")[2])
        self.net = dn.load(cfg_of(section, net=steps, **sizes), dialect=path.stem.removesuffix("-cpu"), profile=path.stem)
        self.native: Any = self.net.layers[0].native
        for inside in (self.net.layers[0].inner[name] for name in self.inner):
            for name in sorted(inside.shapes, key="weights biases scales rolling_mean rolling_variance".split().index):
                getattr(inside, name)[...] = self.take(inside.shapes[name])

    def take(self, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape))
        taken, self._given = self._given[:count].reshape(shape).copy(), self._given[count:]
        return taken

    @property
    def left(self) -> int:
        return len(self._given)

    def state(self, x: Array, *, train: bool, delta: Array | None = None) -> Any:
        state = ffi.new("network_state *")
        state.input, state.batch, state.steps = ffi.cast("float *", x.ctypes.data), len(x), self.steps
        state.train = state.cache = train
        state.delta = ffi.NULL if delta is None else ffi.cast("float *", delta.ctypes.data)
        return state

    def view(self, name: str, rows: int) -> Array:
        return _native.view(getattr(self.native, name), (rows, *self.net.layers[0].out_shape))

    def parts(self, *names: str) -> Iterator[tuple[str, Array]]:
        """Those of the arrays that there are, one inner layer after another; gradients are zeros before any backward."""
        for inside in self.inner:
            layer = self.net.layers[0].inner[inside]
            for name in names:
                parameter = {value: key for key, value in UPDATES.items()}.get(name, name)
                if parameter in layer.shapes:
                    there = getattr(layer.owner(name), name) != ffi.NULL
                    yield (
                        f"{inside}.{name}",
                        getattr(layer, name).copy() if there else np.zeros(layer.shapes[parameter], np.float32),
                    )

    def run(self, rows: int) -> Iterator[tuple[str, Array]]:
        """Each array that the recorder took, in its order."""
        shape = self.net.layers[0].out_shape
        for batch in range(BATCHES):
            x, delta, into = (self.take((rows, *of)) for of in (self.net.layers[0].in_shape, shape, self.net.layers[0].in_shape))
            _native.check(lib.forward_layer(self.native, self.state(x, train=True)))
            yield f"{batch} output", self.view("output", rows).copy()
            _native.check(lib.prepare_delta(self.native, rows, lib.DELTA_START_CLEARED))
            self.view("delta", rows)[...] = delta
            _native.check(lib.backward_layer(self.native, self.state(x, train=True, delta=into)))
            yield from ((f"{batch} delta of the input", into), (f"{batch} delta", self.view("delta", rows).copy()))
            yield from self.parts("weight_updates", "bias_updates", "scale_updates", "rolling_mean", "rolling_variance")
            if self.is_updated:
                options = ffi.new("update_options *", (rows, 0.01, 0.9, 0.0005))
                _native.check(lib.update_layer(self.native, options))
                yield from self.parts("weights", "biases", "weight_updates", "scales")
        x = self.take((rows, *self.net.layers[0].in_shape))
        _native.check(lib.forward_layer(self.native, self.state(x, train=False)))
        yield "output of an inference after it", self.view("output", rows).copy()

    @property
    def is_updated(self) -> bool:
        """AlexeyAB's program has no update of a [gru] that does not crash, and none of a [history]."""
        return self.net.layers[0].type != "history" and not (self.net.layers[0].type == "gru" and self.net.dialect != "pjreddie")

    def compare(self, made: Iterator[tuple[str, Array]], *, strict: bool) -> None:
        at = 0
        for name, array in made:
            want = self.made[at : at + array.size].reshape(array.shape)
            at += array.size
            if strict:
                assert_same_bits(array, want, name)
            else:  # another libm's last bits are in the gates, and from there in all that follows
                assert np.abs(array - want).max() <= 1e-5 * np.abs(want).max(), name
        assert at == len(self.made)


ROWS = {"rnn_batchnorm": 9, "lstm_batchnorm": 9, "lstm_one_step": 2}


@pytest.mark.parametrize(("path", "case"), CASES)
def test_two_batches_and_an_inference_equal_the_recorded_ones(path, case, threads, functions):
    recording = Recording(path, case)
    strict = libm.is_the_recorders() or not ("lstm" in case or case in ("gru", "rnn_batchnorm"))
    recording.compare(recording.run(ROWS.get(case, 6)), strict=strict)
    assert recording.left == 0
