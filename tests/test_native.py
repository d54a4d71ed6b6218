"""The gate between Python and the core: arrays in, views out, statuses, rules."""

from __future__ import annotations

import gc
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import batchnorm, convolutional
from pydarknetbn import _native
from pydarknetbn._native import ffi, lib
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import DarknetError, DtypeError, NumericsError, ShapeError, StateError, UnsupportedError

RULE = PROFILES["pjreddie-cpu"].rule("batchnorm")
GOOD = np.ones((2, 3, 4, 5), np.float32)

# --- arrays in ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [(2, 3, 4, 5), ("batch", 3, 4, 5), (None, None, None, None), ("n", 3, None, 5)], ids=str)
def test_a_good_array_passes_as_itself(expected: Any) -> None:
    assert _native.input_array(GOOD, "x", expected) is GOOD


def read_only() -> Any:
    array = GOOD.copy()
    array.flags.writeable = False
    return array


REFUSED = [
    ([[1.0]], (1, 1), DtypeError, "expected x to be a NumPy array of float32, got list"),
    (np.float32(1), (), DtypeError, "got float32"),
    (memoryview(GOOD), (2, 3, 4, 5), DtypeError, "got memoryview"),
    (GOOD.astype(np.float64), (2, 3, 4, 5), DtypeError, "expected x of float32, got float64"),
    (GOOD.astype(np.float16), (2, 3, 4, 5), DtypeError, "got float16"),
    (GOOD.astype(bool), (2, 3, 4, 5), DtypeError, "got bool"),
    (GOOD.astype(object), (2, 3, 4, 5), DtypeError, "got object"),
    (GOOD.astype(np.dtype(np.float32).newbyteorder()), (2, 3, 4, 5), DtypeError, "float32"),
    (GOOD, (2, 3, 4), ShapeError, r"expected x of shape \(2, 3, 4\), got \(2, 3, 4, 5\)"),
    (GOOD, (2, 3, 4, 6), ShapeError, r"got \(2, 3, 4, 5\)"),
    (GOOD, ("batch", 4, None, 5), ShapeError, r"expected x of shape \(batch, 4, any, 5\)"),
    (GOOD[:0], ("batch", 3, 4, 5), ShapeError, r"got \(0, 3, 4, 5\)"),
    (np.asfortranarray(GOOD), (2, 3, 4, 5), ShapeError, "expected x C-contiguous, got strides"),
    (GOOD[:, :, ::-1], (2, 3, 4, 5), ShapeError, "C-contiguous"),
    (GOOD[..., :2], (2, 3, 4, 2), ShapeError, "numpy.ascontiguousarray"),
    (read_only(), (2, 3, 4, 5), ShapeError, "expected x writable, got a read-only array; pass a copy"),
]


@pytest.mark.parametrize(("array", "expected", "error", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_bad_array_is_refused_with_expected_and_got(array: Any, expected: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        _native.input_array(array, "x", expected)


def test_an_array_of_a_subclass_passes() -> None:
    masked = np.ma.masked_array(GOOD)
    assert _native.input_array(masked, "x", GOOD.shape) is masked


def test_output_is_new_or_the_callers() -> None:
    made = _native.output_array(None, (2, 3))
    assert (made.shape, made.dtype) == ((2, 3), np.float32)
    assert _native.output_array(made, (2, 3)) is made
    with pytest.raises(ShapeError, match=r"expected out of shape \(3, 2\), got \(2, 3\)"):
        _native.output_array(made, (3, 2))


# --- views out ----------------------------------------------------------------------------------------------------------


def test_a_view_is_the_layers_memory_and_writable() -> None:
    layer = batchnorm(RULE, 6)
    view = _native.view(layer.native.scales, (2, 3))
    assert (view.shape, view.dtype, view.flags.writeable, view.flags.c_contiguous) == ((2, 3), np.float32, True, True)
    view[1, 2] = 5
    assert layer.native.scales[5] == 5


def test_arrays_start_at_a_cache_line() -> None:
    layer = convolutional("pjreddie-cpu", c=3, n=5, size=3, h=7, w=7, batch_normalize=1)
    for name in ("weights", "scales", "biases", "rolling_mean"):
        assert layer.array(name).ctypes.data % 64 == 0, name


def test_a_slice_of_a_view_keeps_the_memory_of_a_freed_layer() -> None:
    layer = batchnorm(RULE, 1000)
    part = _native.view(layer.native.scales, (1000,))[990:]
    pointer = layer.native.scales
    layer.native = None
    gc.collect()
    others = [batchnorm(RULE, 1000) for _ in range(20)]
    assert part.tolist() == [1] * 10
    assert all(other.native.scales != pointer for other in others), "the memory was given away"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this platform does not tell the resident memory")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the address sanitizer keeps freed memory")
def test_memory_is_given_back_with_the_last_view() -> None:
    """A layer of four arrays of 4 MiB each; kept, twenty of them would be 320 MiB."""
    before = resident_bytes()
    for _ in range(20):
        layer = batchnorm(RULE, 1 << 20)
        view = _native.view(layer.native.rolling_mean, (1 << 20,))
        del layer
        view[...] = 1
        del view
    assert resident_bytes() - before < 64 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


# --- statuses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "builtin"),
    [
        ("STATUS_OUT_OF_MEMORY", MemoryError, MemoryError),
        ("STATUS_SHAPE", ShapeError, ValueError),
        ("STATUS_NUMERICS", NumericsError, ArithmeticError),
        ("STATUS_STATE", StateError, RuntimeError),
        ("STATUS_UNSUPPORTED", UnsupportedError, NotImplementedError),
    ],
)
def test_each_status_is_an_exception_that_is_also_a_builtin(status: str, error: type[Exception], builtin: type) -> None:
    assert issubclass(error, builtin)
    assert builtin is MemoryError or issubclass(error, DarknetError)
    with pytest.raises(error, match=r"^layer 3: "):
        _native.check(getattr(lib, status), "layer 3")


def test_every_status_has_its_exception() -> None:
    for name, value in ffi.typeof("status").relements.items():
        if name == "STATUS_OK":
            _native.check(value)
        else:
            with pytest.raises((DarknetError, MemoryError)):
                _native.check(value)


def test_the_message_says_what_the_core_found() -> None:
    with pytest.raises(ShapeError, match=r"^here: a layer of 1 x 1 x 0 to 1 x 1 x 0 has no values$"):
        _native.make("batchnorm", 0, 1, 1, _native.rule("batchnorm_rule", RULE), where="here")
    with pytest.raises(ShapeError, match=r"^a layer of 1 x 0 x 3"):
        _native.make("batchnorm", 3, 0, 1, _native.rule("batchnorm_rule", RULE))


def test_a_batch_of_no_images_is_refused() -> None:
    layer = batchnorm(RULE, 3)
    state = ffi.new("network_state *")
    with pytest.raises(ShapeError, match="a batch of 0 images"):
        _native.check(lib.forward_layer(layer.native, state))


def test_a_batch_beyond_memory_is_refused_and_the_layer_stays_usable() -> None:
    layer = batchnorm(RULE, 3)
    x = np.ones((4, 3), np.float32)
    want = layer.forward(x)
    for batch in (2**60, 2**63):
        state = ffi.new("network_state *")
        state.input, state.batch = _native.floats(x), batch
        with pytest.raises(MemoryError):
            _native.check(lib.forward_layer(layer.native, state))
        assert layer.native.batch == 4
    assert np.array_equal(layer.forward(x), want)


def test_messages_belong_to_their_thread() -> None:
    with pytest.raises(ShapeError):
        convolutional("pjreddie-cpu", c=4, groups=3)
    with ThreadPoolExecutor(1) as executor:
        theirs = executor.submit(lambda: ffi.string(lib.status_message())).result()
    assert theirs == b""
    assert b"3 groups" in ffi.string(lib.status_message())


# --- rules --------------------------------------------------------------------------------------------------------------


def test_words_of_an_enum() -> None:
    assert _native.choices("denominator") == {"n-1": 0, "n": 1}
    assert _native.choices("side") == {"inside": 0, "outside": 1}
    assert _native.choices("direct_1x1") == {"any stride": 0, "stride x 1": 1}
    assert _native.enum("activation", "hard_mish") == lib.ACTIVATION_HARD_MISH


def test_a_rule_is_filled_to_its_last_nested_field() -> None:
    layers = PROFILES["hank-ai-cpu"].layers
    struct = _native.rule("layer_rule", layers)
    assert struct.arithmetic.gelu == lib.PRECISION_DOUBLE
    assert struct.arithmetic.softmax == lib.PRECISION_FLOAT
    assert struct.scan == lib.SCAN_ANCHORS_OUTER
    batchnorm_struct = _native.rule("batchnorm_rule", RULE)
    assert (batchnorm_struct.forward.value, batchnorm_struct.rolling_keep) == (1e-6, 0.99)


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(KeyError):
        _native.enum("side", "beside")
    with pytest.raises(KeyError):
        _native.rule("batchnorm_rule", replace(RULE, keep_variance="n-2"))


def test_a_record_that_lacks_a_field_is_refused() -> None:
    @dataclass
    class Half:
        value: float

    with pytest.raises(AttributeError, match="side"):
        _native.rule("epsilon_rule", Half(1.0))


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError):
        _native.rule("batchnorm_rule", replace(RULE, rolling_keep=None))
