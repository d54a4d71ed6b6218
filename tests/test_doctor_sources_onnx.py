"""An ONNX model as the other side: every value that depends on the input, however the model takes its input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import noise
from pydarknetbn.doctor.sources import trace_of

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

X = noise(2, 3, 4, 5, seed=1)
KERNEL = noise(4, 3, 1, 1, seed=2) - np.float32(0.5)
PLANES, LAST = ("n", 3, 4, 5), ("n", 4, 5, 3)


def model_of(
    nodes: list[Any], shape: tuple[Any, ...], output: str, *, kind: int = TensorProto.FLOAT, inputs: tuple[str, ...] = ("x",)
) -> Any:
    """A graph with the weight `w`, whose inputs are all alike."""
    weight = numpy_helper.from_array(KERNEL.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")
    given = [helper.make_tensor_value_info(name, kind, shape) for name in inputs]
    made = helper.make_graph(nodes, "port", given, [helper.make_tensor_value_info(output, kind, None)], [weight])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


CONV = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"])]


def product(x: Any) -> Any:
    """The convolution of one pixel, in double."""
    return np.einsum("oi,nihw->nohw", KERNEL[:, :, 0, 0].astype(np.float64), x.astype(np.float64))


def values(trace: Any) -> dict[str, Any]:
    return {tensor.name: tensor.array for tensor in trace.tensors}


def sentence(kind: type[dn.DarknetError], other: Any, x: Any = X, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        trace_of(other, x, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_value_is_seen_with_its_operation():
    trace = trace_of(model_of(CONV, PLANES, "r"), X)
    assert [(tensor.name, tensor.op) for tensor in trace.tensors] == [("c", "Conv"), ("r", "Relu")]
    assert (trace.framework, trace.outputs) == ("onnx", ("r",))
    np.testing.assert_allclose(values(trace)["c"], product(X), atol=2e-7)  # three products in float32
    assert np.array_equal(values(trace)["r"], values(trace)["c"].clip(0))


def test_path_and_bytes_are_the_same_and_the_model_stays(tmp_path):
    model = model_of(CONV, PLANES, "r")
    before = model.SerializeToString()
    onnx.save(model, tmp_path / "port.onnx")
    for other in (model, before, tmp_path / "port.onnx", str(tmp_path / "port.onnx")):
        assert list(values(trace_of(other, X))) == ["c", "r"]
    assert model.SerializeToString() == before
    assert trace_of(tmp_path / "port.onnx", X).source.startswith("port.onnx in onnxruntime ")


def test_what_depends_on_no_input_is_left_out():
    nodes = [
        helper.make_node("Neg", ["w"], ["folded"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Conv", ["x", "folded"], ["c"]),
    ]
    assert list(values(trace_of(model_of(nodes, PLANES, "c"), X))) == ["c"]


def test_channels_last_are_fed_channels_last():
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), helper.make_node("Conv", ["t", "w"], ["c"])]
    trace = trace_of(model_of(nodes, LAST, "c"), X)
    assert np.array_equal(trace.input, X.transpose(0, 2, 3, 1))
    assert np.array_equal(values(trace)["t"], X)


def test_float16_is_fed_and_kept_as_float16():
    trace = trace_of(model_of(CONV, PLANES, "r", kind=TensorProto.FLOAT16), X)
    assert values(trace)["r"].dtype == trace.input.dtype == np.float16
    assert np.array_equal(trace.input, X.astype(np.float16))


def test_a_fixed_batch_is_run_image_by_image():
    trace = trace_of(model_of(CONV, (1, 3, 4, 5), "r"), X)
    assert values(trace)["c"].shape == (2, 4, 4, 5)
    np.testing.assert_allclose(values(trace)["c"], product(X), atol=2e-7)
    assert "takes (2, 3, 4, 5), the input is (3, 3, 4, 5)" in sentence(
        dn.ShapeError, model_of(CONV, (2, 3, 4, 5), "r"), noise(3, 3, 4, 5)
    )


def test_other_input_is_fed_as_it_is():
    trace = trace_of(model_of(CONV, PLANES, "r"), X, other_input=X * 2)
    assert np.array_equal(trace.input, X * 2)
    np.testing.assert_allclose(values(trace)["c"], product(X * 2), atol=4e-7)


def test_weights_in_a_file_of_their_own_are_found(tmp_path: Path):
    folder = tmp_path / "port"
    folder.mkdir()
    onnx.save(
        model_of(CONV, PLANES, "r"), folder / "port.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert (folder / "weights.bin").stat().st_size >= KERNEL.nbytes
    np.testing.assert_allclose(values(trace_of(folder / "port.onnx", X))["c"], product(X), atol=2e-7)
    (folder / "weights.bin").unlink()
    assert sentence(dn.WeightsError, folder / "port.onnx").startswith("port.onnx: cannot be read as ONNX: ")


def test_several_inputs_are_refused():
    model = model_of([helper.make_node("Add", ["x", "y"], ["s"])], PLANES, "s", inputs=("x", "y"))
    assert sentence(dn.UnsupportedError, model) == "port: has 2 inputs (x, y); expected one, the picture"


def test_what_is_no_model_of_this_input_is_told(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 40)
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert sentence(dn.WeightsError, tmp_path / "bad.onnx").startswith("bad.onnx: cannot be read as ONNX: ")
    assert sentence(dn.WeightsError, tmp_path / "empty.onnx").endswith("the graph is empty")
    unknown = model_of([helper.make_node("NoSuchThing", ["x"], ["c"])], PLANES, "c")
    assert sentence(dn.WeightsError, unknown).startswith("port: onnxruntime refuses it: ")
    small = model_of(CONV, ("n", 3, 8, 8), "r")
    assert sentence(dn.ShapeError, small) == "port: takes (any, 3, 8, 8), the input is (2, 3, 4, 5); give both sides the same size"
    levels = model_of([helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT)], PLANES, "c")
    levels.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    assert sentence(dn.DtypeError, levels) == "port: takes uint8, not floats; pass what it is to be fed with as other_input"
    bytes_of = (X * 255).astype(np.uint8)
    assert np.array_equal(values(trace_of(levels, X, other_input=bytes_of))["c"], bytes_of.astype(np.float32))


def test_a_model_that_fails_is_told():
    shape = numpy_helper.from_array(np.array([7, 7], np.int64), "to")
    model = model_of([helper.make_node("Reshape", ["x", "to"], ["c"])], ("n", "c", "h", "w"), "c")
    model.graph.initializer.append(shape)
    assert sentence(dn.StateError, model).startswith("port: onnxruntime fails: ")
