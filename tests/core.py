"""Layers of the core without a network, and how their arrays are compared with recorded ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import libm
from pydarknetbn import _native
from pydarknetbn._native import Array, ffi, lib
from pydarknetbn.dialect import PROFILES, BatchNormRule, LayerRule

SAMPLE = Path(__file__).parent / "golden"
RECORDED = ("pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu")
VARIABLE = "PYDARKNETBN_GOLDEN"
LIBM = frozenset(
    "logistic loggy tanh elu selu mish swish gelu normalize_channels_softmax normalize_channels_softmax_maxval".split()
)

# --- recorded cases -----------------------------------------------------------------------------------------------------


def recorded_files(pattern: str) -> list[Any]:
    """Parameters for a test: each file of the sample, and each of the whole folder or one skip that says what is missing."""
    found = [pytest.param(path, id=f"sample-{_id(path)}") for path in sorted(SAMPLE.glob(pattern))]
    folder = os.environ.get(VARIABLE)
    if not folder:
        missing = pytest.mark.skip(reason=f"{VARIABLE} does not name the folder of recorded numbers")
        return [*found, pytest.param(None, id="whole", marks=missing)]
    return found + [pytest.param(path, id=f"whole-{_id(path)}") for path in sorted(Path(folder).glob(pattern))]


def _id(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def recorded(path: Path) -> tuple[Mapping[str, Array], Mapping[str, Array], str]:
    """The inputs, the recorded arrays and the profile of `<folder>/<profile>/<case>.npz`."""
    with np.load(path.parent.parent / "inputs" / path.name) as inputs, np.load(path) as arrays:
        return dict(inputs), dict(arrays), path.parent.name


# --- comparing ----------------------------------------------------------------------------------------------------------


def bits(array: Array) -> NDArray[np.uint32]:
    """The bits of each value, every NaN the same."""
    return np.where(np.isnan(array), np.float32(np.nan), array).view(np.uint32)


def same_bits(a: Array, b: Array) -> bool:
    """NaN equals NaN, and the sign of zero counts."""
    assert a.dtype == b.dtype == np.float32
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


def assert_same_bits(got: Array, want: Array, name: str) -> None:
    got = np.asarray(got).reshape(want.shape)
    if same_bits(got, want):
        return
    first = tuple(int(axis[0]) for axis in np.nonzero(bits(got) != bits(want)))
    count = int((bits(got) != bits(want)).sum())
    raise AssertionError(f"{name}: {count} of {want.size} differ, first at {first}: {got[first]!r}, recorded {want[first]!r}")


def libm_limit(activation: str, before: Array, after: Array) -> NDArray[np.float64]:
    """How far another libm may be off, per value: the float formulas cancel, so the input decides (golden/README.md).

    Two units in the last place of a logistic; 8 * 2^-24 * max(1, |x|) for the others, x the value before the activation.
    """
    if activation == "logistic":
        return 2.0 * np.spacing(np.abs(after)).astype(np.float64)
    return 8 * 2.0**-24 * np.maximum(1.0, np.abs(before.astype(np.float64)))


def assert_activated(got: Array, want: Array, before: Array, activation: str, name: str, *, strict: bool | None = None) -> None:
    """Bit-equal where libm has no part in the activation, or is the recorder's (strict); else within its limit."""
    got = np.asarray(got).reshape(want.shape)
    strict = libm.is_the_recorders() if strict is None else strict
    if strict or activation not in LIBM or same_bits(got, want):
        assert_same_bits(got, want, name)
        return
    assert np.array_equal(np.isfinite(got), np.isfinite(want)), f"{name}: finite elsewhere than recorded"
    finite = np.isfinite(want)
    assert_same_bits(got[~finite], want[~finite], name)
    off = np.abs(got[finite].astype(np.float64) - want[finite])
    limit = libm_limit(activation, np.asarray(before).reshape(want.shape)[finite], want[finite])
    assert np.all(off <= limit), f"{name}: bits differ (another libm), and by {np.max(off / limit)} of the limit"


# --- layers -------------------------------------------------------------------------------------------------------------


class CoreLayer:
    """A layer of the core: forward, backward of its batchnorm, and its arrays as views."""

    delta: Array  # what the last backward of the batchnorm alone gave

    def __init__(self, native: Any) -> None:
        self.native = native

    def forward(self, x: Array, *, train: bool = False, cache: bool | None = None, degenerate: bool = False) -> Array:
        state = ffi.new("network_state *")
        pointer = _native.floats(x)
        state.input, state.batch, state.train, state.allow_degenerate = pointer, x.shape[0], train, degenerate
        state.cache = train if cache is None else cache
        _native.check(lib.forward_layer(self.native, state))
        return self.array("output").copy()

    def backward(self, delta: Array, *, train: bool = True) -> Array:
        """Through the batchnorm alone."""
        result = np.empty_like(delta)
        state = ffi.new("network_state *")
        state.batch, state.train = delta.shape[0], train
        _native.check(lib.backward_batchnorm_layer(self.batchnorm, _native.floats(delta), _native.floats(result), state))
        self.delta = result
        return result

    def backward_whole(self, x: Array, delta: Array, input_delta: Array) -> Array:
        """Through all of the layer: x of the forward before, the delta of its output, what the delta of its input was."""
        state, result = ffi.new("network_state *"), input_delta.copy()
        pointers = _native.floats(x), _native.floats(result)
        state.input, state.delta, state.batch, state.train = *pointers, x.shape[0], 1
        _native.check(lib.prepare_delta(self.native, x.shape[0], lib.DELTA_START_CLEARED))
        self.array("delta")[...] = delta.reshape(self.array("delta").shape)
        _native.check(lib.backward_layer(self.native, state))
        return result

    def update(self, batch: int, learning_rate: float, momentum: float, decay: float) -> None:
        options = ffi.new("update_options *", (batch, learning_rate, momentum, decay))
        _native.check(lib.update_layer(self.native, options))

    @property
    def batchnorm(self) -> Any:
        return self.native.batchnorm or self.native

    def array(self, name: str) -> Array:
        if name == "delta" and not self.native.delta:
            return self.delta
        if name == "x_norm":
            _native.check(lib.make_x_norm(self.batchnorm))
        owner = self.native if name in ("weights", "weight_updates", "output", "activation_input", "delta") else self.batchnorm
        layer = self.native
        image = (layer.batch, layer.out_c, layer.out_h, layer.out_w)
        of_output = name in ("output", "x", "x_norm", "delta", "activation_input")
        shape = image if of_output else (layer.nweights if name.startswith("weight") else layer.out_c,)
        return _native.view(getattr(owner, name), shape)

    def set(self, arrays: Mapping[str, Array], prefix: str = "") -> None:
        """Copies the parameters that there are under that prefix."""
        names = ("weights", "biases", "scales") if self.native.batchnorm else ("weights", "biases")
        for name in names:
            if prefix + name in arrays:
                self.array(name)[...] = arrays[prefix + name].ravel()


def batchnorm(rule: BatchNormRule, c: int, h: int = 1, w: int = 1) -> CoreLayer:
    return CoreLayer(_native.make("batchnorm", c, h, w, _native.rule("batchnorm_rule", rule)))


def convolutional_options(**options: int) -> Any:
    """The struct; what is not named is 1, the padding and batch_normalize 0, the activation linear."""
    struct = ffi.new("convolutional_options *")
    defaults = dict.fromkeys(("c", "h", "w", "n", "groups", "size", "stride_x", "stride_y", "dilation"), 1)
    for name, value in (defaults | options).items():
        setattr(struct, name, value)
    return struct


def convolutional(profile: str, activation: str = "linear", **options: int) -> CoreLayer:
    struct = convolutional_options(**options, activation=_native.enum("activation", activation))
    return CoreLayer(_native.make("convolutional", struct, *_rules(profile, "convolutional")))


def connected(profile: str, activation: str, inputs: int, outputs: int, batch_normalize: bool) -> CoreLayer:
    kind = _native.enum("activation", activation)
    rules = _rules(profile, "connected")
    return CoreLayer(_native.make("connected", inputs, outputs, kind, batch_normalize, *rules))


def _rules(profile: str, host: Any) -> tuple[Any, Any]:
    record = PROFILES[profile]
    return _native.rule("batchnorm_rule", record.rule(host)), layer_rule(record.layers)


def layer_rule(rule: LayerRule) -> Any:
    return _native.rule("layer_rule", rule)
