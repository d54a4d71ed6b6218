"""The other side of a comparison: each kind becomes the values that it computes; what cannot be read is told in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, noise, ramp
from pydarknetbn.doctor.sources import trace_of
from pydarknetbn.doctor.trace import Trace

X = noise(2, 3, 4, 5, seed=1)
ONE = X[:1]


def values(trace: Trace) -> dict[str, Any]:
    return {tensor.name: tensor.array for tensor in trace.tensors}


def sentence(kind: type[dn.DarknetError], other: Any, x: Any = X, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        trace_of(other, x, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- arrays ---------------------------------------------------------------------------------------------------------------------


def test_a_dict_keeps_its_order_and_its_input():
    given = X * 2
    trace = trace_of({"b": ramp(2, 2, 2, batch=2), "input": given, "a": ramp(1, 2, 2, batch=2)}, X)
    assert [tensor.name for tensor in trace.tensors] == ["b", "a"]
    assert trace.framework == "arrays"
    assert np.array_equal(trace.input, given)


def test_what_other_input_says_comes_before_the_arrays_own():
    trace = trace_of({"input": X * 2, "a": X}, X, other_input=X * 3)
    assert np.array_equal(trace.input, X * 3)


def test_values_are_copies():
    array = X.copy()
    trace = trace_of({"a": array}, X)
    array[...] = 0
    assert np.array_equal(trace.tensors[0].array, X)


def test_a_single_image_needs_no_axis_of_the_batch():
    assert trace_of({"a": ONE[0]}, ONE).tensors[0].array.shape == (1, 3, 4, 5)


def test_values_of_another_batch_and_whole_numbers_are_left_out():
    trace = trace_of({"a": X, "ids": np.zeros((2, 4), np.int64), "table": np.zeros((5, 3), np.float32)}, X)
    assert list(values(trace)) == ["a"]


def test_an_npz_is_read_in_the_order_of_the_file(tmp_path):
    np.savez(tmp_path / "port.npz", z=X, input=X * 2, a=X + 1)
    trace = trace_of(tmp_path / "port.npz", X)
    assert list(values(trace)) == ["z", "a"]
    assert trace.source == "port.npz"
    assert np.array_equal(trace.input, X * 2)


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path):
    for name in ("10_c", "9_b", "1_a"):
        np.save(tmp_path / f"{name}.npy", X)
    assert list(values(trace_of(str(tmp_path), X))) == ["1_a", "9_b", "10_c"]


def test_what_holds_no_arrays_is_told(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "1.npy").write_bytes(b"no array")
    (tmp_path / "model.pth").write_bytes(b"")
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    told = {name: sentence(dn.WeightsError, tmp_path / name) for name in ("bad.npz", "folder", "bad", "model.pth", "objects.npz")}
    assert told["folder"].endswith("holds no .npy files")
    assert "1.npy: cannot be read as an array" in told["bad"]
    assert "bad.npz: cannot be read as an .npz of arrays" in told["bad.npz"]
    assert "objects.npz: cannot be read as an .npz of arrays" in told["objects.npz"]
    assert told["model.pth"].endswith("expected .onnx, .npz or a folder of .npy; load it with PyTorch and pass the module")
    assert sentence(dn.WeightsError, tmp_path / "none.onnx").endswith("none.onnx: there is no such file or folder")


def test_what_is_no_other_side_is_told():
    assert sentence(dn.DtypeError, 3).startswith("the other side is a int; expected an ONNX file, ")
    assert sentence(dn.DtypeError, {"a": "text"}) == "arrays: 'a' is a str; expected an array"
    assert "shows no array of floats whose first axis is the batch (2 images)" in sentence(dn.StateError, {"a": ONE})


# --- functions and networks -----------------------------------------------------------------------------------------------------


def test_a_functions_arrays_are_its_outputs():
    trace = trace_of(lambda x: [x + 1, x.reshape(2, -1)], X)
    assert trace.outputs == ("output 0", "output 1")
    assert np.array_equal(values(trace)["output 0"], X + 1)
    assert np.array_equal(trace.input, X)


def test_a_functions_dict_is_its_values():
    trace = trace_of(lambda x: {"conv": x, "relu": x.clip(0)}, X)
    assert list(values(trace)) == ["conv", "relu"]
    assert trace.outputs == ()


def test_a_function_may_overwrite_what_it_is_given():
    def spoil(x: Any) -> Any:
        x *= 0
        return x + 1

    kept, other = X.copy(), X * 2
    assert np.array_equal(trace_of(spoil, X).input, kept)
    assert np.array_equal(trace_of(spoil, X, other_input=other).input, kept * 2)
    assert np.array_equal(X, kept)
    assert np.array_equal(other, kept * 2)


def test_a_function_that_fails_or_gives_no_arrays_is_told():
    def broken(x: Any) -> Any:
        raise ValueError("no such size")

    assert sentence(dn.StateError, broken).endswith("broken raised ValueError: no such size")
    assert sentence(dn.DtypeError, lambda x: [x, "y"]).endswith(
        "gave ndarray, str; expected an array, a list of arrays, or a dict of arrays by name"
    )
    assert " gave nothing; expected" in sentence(dn.DtypeError, lambda x: [])


def test_a_network_shows_each_step_and_calls_its_heads_outputs():
    net = dn.load(
        cfg_of(
            "conv batch_normalize=1 filters=4 size=3 pad=1 activation=leaky", "conv filters=2 size=1 activation=linear", w=5, h=4
        ),
        None,
        seed=1,
    )
    trace = trace_of(net, X)
    assert list(values(trace)) == [
        "0 [convolutional] sums",
        "0 [convolutional] normal",
        "0 [convolutional] post",
        "1 [convolutional] sums",
        "1 [convolutional] post",
    ]
    assert trace.outputs == ("1 [convolutional] post",)
    net.forward(X)
    assert np.array_equal(values(trace)["1 [convolutional] post"], net.layers[1].output)
    assert "(2, 3, 4, 5)" in sentence(dn.ShapeError, dn.load(cfg_of("conv filters=1 size=1"), None, seed=1))
