"""An ONNX file, run in onnxruntime with every intermediate value as an output."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..._native import Array
from ...errors import DtypeError, ShapeError, StateError, UnsupportedError, WeightsError
from ...extras import import_extra
from ..trace import Trace
from .collecting import Collector, as_array

__all__ = ["trace_of_onnx"]

_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_BLIND = frozenset({"Shape", "Size", "Constant", "ConstantOfShape", "RandomNormal", "RandomUniform"})
"""What they give depends on no value of the input, at most on its shape."""


class _Value(NamedTuple):
    name: str
    op: str


def trace_of_onnx(other: Any, x: Array, other_input: Any) -> Trace:
    """The graph's own values: nothing is fused before it runs.

    Args:
        other: path, bytes or `ModelProto`.
        x: (batch, c, h, w); fed transposed where the model takes its channels last, image by image where its batch is fixed.
        other_input: fed instead, as it is.

    Raises:
        WeightsError: no ONNX file, or one that onnxruntime refuses.
        UnsupportedError: the model takes several inputs.
        ShapeError, DtypeError: it takes another input.
        StateError: it fails.
    """
    onnx, runtime = import_extra("onnx", "onnx"), import_extra("onnxruntime", "onnx")
    name, model = _model(onnx, other)
    values = _values(model.graph)
    session = _session(runtime, onnx, model, [value.name for value in values], name)
    entry = _only_input(session, model.graph, name)
    given = _given(entry, x, other_input, name)
    outputs = {output.name for output in model.graph.output}
    del model
    collector = Collector(len(given))
    for value, array in _run(session, entry, values, given, name):
        collector.add(value.name, array, value.op, copy=False)
    known = tuple(tensor.name for tensor in collector.tensors if tensor.name in outputs)
    return collector.trace(f"{name} in onnxruntime {runtime.__version__}", "onnx", given=given, outputs=known)


# --- the model ------------------------------------------------------------------------------------------------------------------


def _model(onnx: Any, other: Any) -> tuple[str, Any]:
    if type(other).__name__ == "ModelProto":
        return other.graph.name or "model", other
    name = "model" if isinstance(other, bytes | bytearray | memoryview) else Path(other).name
    try:
        model = onnx.load(os.fspath(other)) if isinstance(other, os.PathLike) else onnx.load_from_string(bytes(other))
    except Exception as reason:  # the parser's own kinds of error, which differ between versions
        raise WeightsError(f"{name}: cannot be read as ONNX: {_line(reason)}") from reason
    if not model.graph.node:
        raise WeightsError(f"{name}: cannot be read as ONNX: the graph is empty")
    return name, model


def _values(graph: Any) -> list[_Value]:
    """What depends on the input, in the order of the graph's nodes."""
    constants = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    alive = {each.name for each in graph.input} - constants
    found: list[_Value] = []
    for node in graph.node:
        inside = any(attribute.HasField("g") for attribute in node.attribute)  # a branch may take any value from outside
        if node.op_type in _BLIND or not (inside or alive.intersection(node.input)):
            continue
        made = [output for output in node.output if output]
        alive.update(made)
        found += [_Value(output, node.op_type) for output in made]
    return found


@contextmanager
def _all_outputs(onnx: Any, model: Any, names: Sequence[str]) -> Iterator[None]:
    """For a block, a model whose values are outputs."""
    outputs = model.graph.output
    count, present = len(outputs), {output.name for output in outputs}
    try:
        outputs.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
        yield
    finally:
        del outputs[count:]


def _session(runtime: Any, onnx: Any, model: Any, names: Sequence[str], name: str) -> Any:
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        with _all_outputs(onnx, model, names):
            data = model.SerializeToString()
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as reason:
        raise WeightsError(f"{name}: onnxruntime refuses it: {_line(reason)}") from reason


# --- the input ------------------------------------------------------------------------------------------------------------------


def _only_input(session: Any, graph: Any, name: str) -> Any:
    constants = {each.name for each in graph.initializer}
    inputs = [each for each in session.get_inputs() if each.name not in constants]
    if len(inputs) != 1:
        listed = ", ".join(each.name for each in inputs) or "none"
        raise UnsupportedError(f"{name}: has {len(inputs)} inputs ({listed}); expected one, the picture")
    return inputs[0]


def _given(entry: Any, x: Array, other_input: Any, name: str) -> npt.NDArray[Any]:
    """The input in the model's type and layout."""
    if entry.type not in _FLOATS and other_input is None:
        raise DtypeError(f"{name}: takes {entry.type[7:-1]}, not floats; pass what it is to be fed with as other_input")
    given = x if other_input is None else as_array(other_input)
    if given is None:
        raise DtypeError(f"other_input is a {type(other_input).__name__}; expected an array")
    dims = list(entry.shape)
    if other_input is None:
        given = _arranged(given, dims)
    fixed = dims[0] if dims and isinstance(dims[0], int) else None
    if len(dims) != given.ndim or not _fits(dims[1:], given.shape[1:]) or (fixed and len(given) % fixed):
        wanted = ", ".join(str(dim) if isinstance(dim, int) else "any" for dim in dims)
        raise ShapeError(f"{name}: takes ({wanted}), the input is {given.shape}; give both sides the same size")
    return np.ascontiguousarray(given, _FLOATS.get(entry.type, given.dtype))


def _arranged(x: Array, dims: Sequence[Any]) -> Array:
    """x, or x with its channels last, or as vectors, where only that is what the model takes."""
    if len(dims) == 2:
        return x.reshape(len(x), -1)
    if len(dims) != 4 or _fits(dims[1:], x.shape[1:]):
        return x
    last = x.transpose(0, 2, 3, 1)
    return last if _fits(dims[1:], last.shape[1:]) else x


def _fits(dims: Sequence[Any], shape: Sequence[int]) -> bool:
    return all(not isinstance(dim, int) or dim == size for dim, size in zip(dims, shape, strict=False))


# --- the run --------------------------------------------------------------------------------------------------------------------


def _run(
    session: Any, entry: Any, values: Sequence[_Value], given: npt.NDArray[Any], name: str
) -> Iterator[tuple[_Value, npt.NDArray[Any]]]:
    """Every tensor, let go in the runtime one after the other so that no two copies of all are held."""
    fixed = entry.shape[0] if isinstance(entry.shape[0], int) else len(given)
    parts: list[list[Any]] = []
    for start in range(0, len(given), fixed):
        try:
            parts.append(session.run_with_ort_values(*_request(entry, values, given[start : start + fixed])))
        except Exception as reason:
            raise StateError(f"{name}: onnxruntime fails: {_line(reason)}") from reason
    for number, value in enumerate(values):
        pieces = [_array(part, number) for part in parts]
        whole = [piece for piece in pieces if piece is not None and piece.ndim and len(piece) == fixed]
        if len(whole) == len(parts):
            yield value, whole[0] if len(whole) == 1 else np.concatenate(whole)


def _request(entry: Any, values: Sequence[_Value], given: npt.NDArray[Any]) -> tuple[list[str], dict[str, Any]]:
    runtime = import_extra("onnxruntime", "onnx")
    return [value.name for value in values], {entry.name: runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(given))}


def _array(part: list[Any], number: int) -> npt.NDArray[Any] | None:
    """A tensor of the runtime as an array of its own; it is taken out of the list."""
    value, part[number] = part[number], None
    if value is None or not value.is_tensor() or value.data_type() not in _FLOATS:
        return None
    array: npt.NDArray[Any] = value.numpy()
    return array


def _line(reason: BaseException) -> str:
    return (str(reason).splitlines() or [type(reason).__name__])[0]
