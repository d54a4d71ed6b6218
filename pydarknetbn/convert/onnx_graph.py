"""An ONNX graph while it grows: every value has its shape from the start, every node the name of its layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._native import CData
from ..errors import NumericsError
from ..extras import import_extra
from ..layers import Layer

__all__ = ["OPSET", "Batch", "Dims", "Graph", "Value", "native_of"]

OPSET = 13
"""The first in which every operator that is used here has the form that it has today (Softmax along one axis; axes of ReduceSum
and parts of Split as inputs), so that old runtimes read the files too. Later ones bring nothing that a Darknet layer needs."""

IR_VERSION = 7
"""The version of the file format that came with the opset."""

Batch = int | str
Dims = tuple[Batch, ...]


class Value(NamedTuple):
    """What a node gives or a constant holds: its name and its shape, the batch first where it has one."""

    name: str
    shape: Dims


def native_of(layer: Layer) -> CData:
    """The core's struct of a layer that computes."""
    assert layer.native is not None
    return layer.native


class Graph:
    """Nodes, constants and shapes.

    Args:
        batch: images of every input, or the name of that axis where it is free.
        dtype: float32 or float16, of every value but indices.
    """

    def __init__(self, batch: Batch, dtype: str) -> None:
        self.onnx = import_extra("onnx", "onnx")
        self.batch, self.dtype = batch, np.dtype(dtype)
        self.nodes: list[Any] = []
        self.model = self.onnx.ModelProto()
        self.values: list[Any] = []
        self.prefix = ""
        self.states: list[Any] = []
        self.next_states: list[Any] = []
        self._used: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], Value] = {}

    @property
    def float_type(self) -> int:
        """ONNX's number of `dtype`."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))

    # --- values -----------------------------------------------------------------------------------------------------------------

    def begin(self, prefix: str) -> None:
        """What follows is called `prefix/…`."""
        self.prefix = prefix

    def _unique(self, name: str) -> str:
        count = self._used[name] = self._used.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def constant(self, name: str, array: NDArray[Any]) -> Value:
        """An array of the file, called `prefix.name`; floats in the graph's type.

        Raises:
            NumericsError: a value has no number in that type.
        """
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                narrow = np.ascontiguousarray(array, self.dtype)
            if narrow.dtype != array.dtype and (np.isinf(narrow) & np.isfinite(array)).any():
                largest = float(np.abs(array[np.isfinite(array)]).max())
                raise NumericsError(
                    f"{self.prefix}: {name} holds {largest:g}, which {self.dtype} cannot hold; take dtype='float32'"
                )
            array = narrow
        full = self._unique(f"{self.prefix}.{name}")
        return self._store(full, array)

    def scalar(self, number: float) -> Value:
        """One float without axes; equal ones are one constant."""
        key = ("scalar", float(number))
        if key not in self._known:
            self._known[key] = self._shared(f"constant.{number:.9g}", np.asarray(number, np.float32))
        return self._known[key]

    def integers(self, *numbers: int) -> Value:
        """A vector of indices; equal ones are one constant."""
        if numbers not in self._known:
            name = "integers." + "_".join(str(number) for number in numbers[:6])
            self._known[numbers] = self._shared(name, np.asarray(numbers, np.int64))
        return self._known[numbers]

    def _shared(self, name: str, array: NDArray[Any]) -> Value:
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        full = self._unique(name)
        return self._store(full, array)

    def _store(self, name: str, array: NDArray[Any]) -> Value:
        """Into the model itself: no second copy of the weights."""
        constant = self.model.graph.initializer.add()
        constant.name = name
        constant.dims.extend(array.shape)
        constant.data_type = self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        constant.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        return Value(name, array.shape)

    def op(self, kind: str, *inputs: Value | None, shape: Sequence[Batch], dtype: int | None = None, **attributes: Any) -> Value:
        """A node of one output."""
        return self.op_of_many(kind, *inputs, shapes=[shape], dtype=dtype, **attributes)[0]

    def op_of_many(
        self, kind: str, *inputs: Value | None, shapes: Sequence[Sequence[Batch]], dtype: int | None = None, **attributes: Any
    ) -> list[Value]:
        """A node of several outputs."""
        name = self._unique(f"{self.prefix}/{kind}")
        ends = [""] if len(shapes) == 1 else [f".{number}" for number in range(len(shapes))]
        outputs = [Value(name + end, tuple(shape)) for end, shape in zip(ends, shapes, strict=True)]
        sources = [source.name if source else "" for source in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, sources, [value.name for value in outputs], name=name, **attributes))
        self.values += [self.info(value, dtype) for value in outputs]
        return outputs

    def info(self, value: Value, dtype: int | None = None) -> Any:
        """Name, type and shape as ONNX stores them."""
        return self.onnx.helper.make_tensor_value_info(value.name, dtype or self.float_type, list(value.shape))

    def finished(self, first: Value, outputs: Sequence[Any]) -> Any:
        """The model, with its inputs and outputs; states come last."""
        graph, outputs = self.model.graph, [*outputs, *self.next_states]
        names = {info.name for info in outputs}
        graph.name = "darknet"
        graph.node.extend(self.nodes)
        graph.input.extend([self.info(first), *self.states])
        graph.output.extend(outputs)
        graph.value_info.extend(info for info in self.values if info.name not in names)
        self.model.ir_version, self.model.producer_name = IR_VERSION, "pydarknetbn"
        self.model.opset_import.append(self.onnx.helper.make_opsetid("", OPSET))
        return self.model

    # --- what many layers do ----------------------------------------------------------------------------------------------------

    def same(self, kind: str, x: Value, *others: Value, **attributes: Any) -> Value:
        """A node that keeps the shape of its first input."""
        return self.op(kind, x, *others, shape=x.shape, **attributes)

    def reshape(self, x: Value, *dims: int) -> Value:
        """The same values in the order of memory; dims are those behind the batch."""
        if x.shape[1:] == dims:
            return x
        first = self.batch if isinstance(self.batch, int) else -1
        return self.op("Reshape", x, self.integers(first, *dims), shape=(self.batch, *dims))

    def transpose(self, x: Value, *order: int) -> Value:
        """Axes in another order; the batch, axis 0, stays first."""
        return self.op("Transpose", x, shape=[x.shape[axis] for axis in (0, *order)], perm=[0, *order])

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Part of one axis."""
        if (start, stop, step) == (0, x.shape[axis], 1):
            return x
        shape = list(x.shape)
        shape[axis] = math.ceil((stop - start) / step)
        bounds = [self.integers(start), self.integers(stop), self.integers(axis)]
        return self.op("Slice", x, *bounds, *([self.integers(step)] if step > 1 else []), shape=shape)

    def split(self, x: Value, axis: int, *parts: int) -> list[Value]:
        """Consecutive parts of one axis."""
        if len(parts) == 1:
            return [x]
        shapes = [[part if number == axis else size for number, size in enumerate(x.shape)] for part in parts]
        return self.op_of_many("Split", x, self.integers(*parts), shapes=shapes, axis=axis)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """Values one behind the other along an axis."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(int(part.shape[axis]) for part in parts)
        return self.op("Concat", *parts, shape=shape, axis=axis)

    def pad(self, x: Value, before: Sequence[int], after: Sequence[int], fill: float = 0) -> Value:
        """More of every axis, filled up; a negative number takes away."""
        if not any((*before, *after)):
            return x
        shape = [size + a + b if a or b else size for size, a, b in zip(x.shape, before, after, strict=True)]  # type: ignore[operator]
        return self.op("Pad", x, self.integers(*before, *after), self.scalar(fill), shape=shape)

    def float32(self, name: str, *numbers: float) -> Value:
        """A vector that is float32 in every graph, called `prefix.name`."""
        return self._store(self._unique(f"{self.prefix}.{name}"), np.asarray(numbers, np.float32))

    def state(self, name: str, shape: Sequence[int]) -> Value:
        """A further input of the graph, called `prefix.name`: what a recurrent layer kept from the time step before."""
        value = Value(f"{self.prefix}.{name}", (self.batch, *shape))
        self.states.append(self.info(value))
        return value

    def next_state(self, name: str, value: Value) -> None:
        """A further output of the graph, called `prefix.name_next`: what the layer keeps for the next time step."""
        kept = self.named(f"{self.prefix}.{name}_next", self.same("Identity", value))
        self.next_states.append(self.info(kept))

    def named(self, name: str, value: Value) -> Value:
        """The newest value under another name."""
        assert self.nodes[-1].output[0] == value.name
        self.nodes[-1].output[0] = self.values[-1].name = name
        return Value(name, value.shape)

    def finish(self, layer: Layer, value: Value) -> Value:
        """The layer's output: a value called `<index>_<type>`, by a node of that name."""
        made_here = bool(self.nodes) and self.nodes[-1].name.startswith(f"{self.prefix}/") and [value.name] == self.nodes[-1].output
        if not made_here:
            value = self.same("Identity", value)
        node = self.nodes[-1]
        node.name = node.output[0] = self.values[-1].name = self.prefix
        shape = (self.batch, *layer.out_shape)
        assert value.shape == shape, f"{self.prefix}: shape {value.shape}, the layer's is {shape}"
        return Value(self.prefix, value.shape)
