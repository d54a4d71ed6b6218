"""A port as an ONNX model of standard nodes; what a node gives has its name, layers that do nothing are dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .graph import INPUT, Floats, Graph, Node
from .reorgs import REORGS, reorg_sizes

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto

OPSET = 17
_TYPES = {"float32": (TensorProto.FLOAT, np.float32), "float16": (TensorProto.FLOAT16, np.float16)}


def as_onnx(graph: Graph, *, everything: bool = False) -> onnx.ModelProto:
    """The model; `everything`: each value is an output."""
    w = _Writer(graph)
    kind = _TYPES[graph.precision][0]
    for node in graph.nodes:
        w.write(node)
    shapes = {w.values[name]: ["batch", *w.shapes[name]] for name in graph.outputs}
    if everything:
        shapes = dict.fromkeys(name for node in w.nodes for name in node.output)
    given = helper.make_tensor_value_info(INPUT, kind, ["batch", *graph.shape])
    outputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    made = helper.make_graph(w.nodes, "port", [given], outputs, w.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    if not everything:
        onnx.checker.check_model(model)
    return model


def saved(graph: Graph, path: Path) -> Path:
    """The model as a file."""
    onnx.save(as_onnx(graph), path)
    return path


def values_of(graph: Graph, x: Floats) -> dict[str, Floats]:
    """Every value of the graph, by name."""
    w = _Writer(graph)
    for node in graph.nodes:
        w.write(node)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(as_onnx(graph, everything=True).SerializeToString(), options, ["CPUExecutionProvider"])
    given = x.astype(_TYPES[graph.precision][1])
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(names, {INPUT: given}), strict=True)) | {INPUT: given}
    return {name: got[tensor] for name, tensor in w.values.items()}


class _Writer:
    """Nodes and constants, as they come."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values = {INPUT: INPUT}
        self.shapes: dict[str, tuple[int, ...]] = {INPUT: graph.shape}
        self.type = _TYPES[graph.precision][1]
        self.node: Node

    def write(self, node: Node) -> None:
        self.node = node
        inputs = [self.values[name] for name in node.inputs]
        self.shapes[node.name] = _shape(node, [self.shapes[name] for name in node.inputs])
        self.values[node.name] = _WRITERS[node.op](self, node, *inputs)

    def add(self, op: str, *inputs: str, last: bool = False, **attributes: Any) -> str:
        """A node; the last one of an operation has the operation's name."""
        output = self.node.name if last else f"{self.node.name}.{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, array: Any, name: str = "") -> str:
        """Numbers, as floats of the model's kind where they are floats."""
        values = np.asarray(array)
        values = values.astype(self.type if values.dtype.kind == "f" else values.dtype)
        name = f"{self.node.name}.{name or f'constant{len(self.constants)}'}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name


def _integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _shape(node: Node, inputs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """(c, h, w) of what an operation gives."""
    (c, h, w), o = inputs[0], node.attributes
    if node.op in ("conv", "maxpool"):
        sizes = node.arrays["weights"].shape[2:] if node.op == "conv" else (o["size"],) * 2
        steps = o["stride"] if node.op == "conv" else (o["stride"],) * 2
        top, bottom, left, right = o["padding"]
        reach = [o.get("dilation", 1) * (size - 1) + 1 for size in sizes]
        h, w = ((h + top + bottom - reach[0]) // steps[0] + 1, (w + left + right - reach[1]) // steps[1] + 1)
        return (len(node.arrays["weights"]) if node.op == "conv" else c, h, w)
    if node.op == "upsample":
        return c, h * o["factor"], w * o["factor"]
    if node.op == "concat":
        return sum(shape[0] for shape in inputs), h, w
    if node.op == "reorg":
        return c * o["stride"] ** 2, h // o["stride"], w // o["stride"]
    changed = {"slice": lambda: (o["end"] - o["begin"], h, w), "avgpool": lambda: (c, 1, 1), "scale": lambda: inputs[1]}
    return changed[node.op]() if node.op in changed else (c, h, w)


# --- layers ---------------------------------------------------------------------------------------------------------------------


def _conv(w: _Writer, node: Node, x: str) -> str:
    o = node.attributes
    top, bottom, left, right = o["padding"]
    inputs = [x, *(w.constant(node.arrays[name], name) for name in ("weights", "bias") if name in node.arrays)]
    options: dict[str, Any] = {"strides": list(o["stride"]), "pads": [top, left, bottom, right], "dilations": [o["dilation"]] * 2}
    return w.add("Conv", *inputs, last=True, group=o["groups"], kernel_shape=list(node.arrays["weights"].shape[2:]), **options)


def _batchnorm(w: _Writer, node: Node, x: str) -> str:
    keep, add, unbiased = node.attributes["statistics"]
    names = ("scales", "biases", "mean", "variance")
    if not add:
        arrays = [w.constant(node.arrays[name], name) for name in names]
        return w.add("BatchNormalization", x, *arrays, last=True, epsilon=node.attributes["epsilon"])
    scales, biases, mean, variance = (w.constant(node.arrays[name][:, None, None], name) for name in names)
    _, h, wide = w.shapes[node.name]
    batch_mean = w.add("ReduceMean", x, axes=[0, 2, 3])
    apart = w.add("Sub", x, batch_mean)
    batch_variance = w.add("ReduceMean", w.add("Mul", apart, apart), axes=[0, 2, 3])
    factor = add * (h * wide / max(1, h * wide - 1) if unbiased else 1)  # of a batch of one
    mean = _mixed(w, mean, keep, batch_mean, add)
    variance = _mixed(w, variance, keep, batch_variance, factor)
    root = w.add("Sqrt", w.add("Add", variance, w.constant(np.float32(node.attributes["epsilon"]))))
    normal = w.add("Div", w.add("Sub", x, mean), root)
    return w.add("Add", w.add("Mul", normal, scales), biases, last=True)


def _mixed(w: _Writer, a: str, share_a: float, b: str, share_b: float) -> str:
    parts = [w.add("Mul", name, w.constant(np.float32(share))) for name, share in ((a, share_a), (b, share_b))]
    return w.add("Add", *parts)


def _activation(w: _Writer, node: Node, x: str) -> str:
    kind = node.attributes["kind"]
    if kind == "leaky":
        return w.add("LeakyRelu", x, last=True, alpha=node.attributes["slope"])
    if kind in _SINGLE:
        return w.add(_SINGLE[kind], x, last=True)
    if kind == "relu6":
        return w.add("Clip", x, w.constant(np.float32(0)), w.constant(np.float32(6)), last=True)
    factor = {"mish": ("Softplus", "Tanh"), "swish": ("Sigmoid",), "tanhexp": ("Exp", "Tanh")}
    if kind in factor:
        value = x
        for op in factor[kind]:
            value = w.add(op, value)
        return w.add("Mul", x, value, last=True)
    moved = w.add("Add", x, w.constant(np.float32(2)))  # hard mish
    cut = w.add("Clip", moved, w.constant(np.float32(0)), w.constant(np.float32(2)))
    return w.add("Mul", w.add("Mul", x, w.constant(np.float32(0.5))), cut, last=True)


_SINGLE = {"relu": "Relu", "logistic": "Sigmoid", "linear": "Identity", "elu": "Elu", "tanh": "Tanh", "hard swish": "HardSwish"}


def _maxpool(w: _Writer, node: Node, x: str) -> str:
    o = node.attributes
    top, bottom, left, right = o["padding"]
    options = {"kernel_shape": [o["size"]] * 2, "strides": [o["stride"]] * 2}
    if o["value"] == 0 and any(o["padding"]):
        pads = w.constant(_integers(0, 0, top, left, 0, 0, bottom, right))
        return w.add("MaxPool", w.add("Pad", x, pads), last=True, **options)
    return w.add("MaxPool", x, last=True, pads=[top, left, bottom, right], **options)


def _upsample(w: _Writer, node: Node, x: str) -> str:
    o = node.attributes
    scales = f"{node.name}.scales"  # float32 in every model
    w.constants.append(numpy_helper.from_array(np.array([1, 1, o["factor"], o["factor"]], np.float32), scales))
    ways = {
        "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        "bilinear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    }
    alone = o["scale"] == 1
    grown = w.add("Resize", x, "", scales, last=alone, **ways[o["mode"]])
    return grown if alone else w.add("Mul", grown, w.constant(np.float32(o["scale"])), last=True)


def _same(w: _Writer, node: Node, x: str) -> str:
    return x


def _slice(w: _Writer, node: Node, x: str) -> str:
    ends = (w.constant(_integers(node.attributes[name])) for name in ("begin", "end"))
    return w.add("Slice", x, *ends, w.constant(_integers(1)), last=True)


def _sum(w: _Writer, node: Node, *inputs: str) -> str:
    weights, at = node.arrays.get("weights"), node.attributes["at"]
    channels = w.shapes[node.name][0]
    terms = [inputs[0]]
    for name, value in zip(node.inputs[1:], inputs[1:], strict=True):
        taken = min(w.shapes[name][0], channels - at)
        term = value
        if taken < w.shapes[name][0]:
            term = w.add("Slice", value, w.constant(_integers(0)), w.constant(_integers(taken)), w.constant(_integers(1)))
        if taken < channels:
            term = w.add("Pad", term, w.constant(_integers(0, at, 0, 0, 0, channels - at - taken, 0, 0)))
        terms.append(term)
    if weights is not None:
        factors = [w.constant(row[:, None, None]) for row in weights]
        terms = [w.add("Mul", term, factor) for term, factor in zip(terms, factors, strict=True)]
    total = terms[0]
    for number, term in enumerate(terms[1:], 2):
        total = w.add("Add", total, term, last=number == len(terms))
    return total


def _reorg(w: _Writer, node: Node, x: str) -> str:
    steps = REORGS[node.attributes["order"]]
    sizes = w.shapes[node.inputs[0]]
    for shape, axes in steps:
        target = reorg_sizes(shape, 0, *sizes, node.attributes["stride"])
        x = w.add("Reshape", x, w.constant(_integers(*target)), last=not axes)
        x = w.add("Transpose", x, perm=list(axes)) if axes else x
    return x


def _dropout(w: _Writer, node: Node, x: str) -> str:
    if not node.attributes["active"]:
        return x
    share = w.constant(np.float32(node.attributes["probability"]))
    return w.add("Dropout", x, share, w.constant(np.array(True)), last=True, seed=5)


# --- heads ----------------------------------------------------------------------------------------------------------------------


def _parts(w: _Writer, node: Node, x: str, anchors: int) -> tuple[list[str], list[str]]:
    """Centre, size and the rest; the constants that bring back the shape."""
    c, h, wide = w.shapes[node.name]
    apart = w.add("Reshape", x, w.constant(_integers(0, anchors, c // anchors, h, wide)))
    names = [f"{node.name}.{part}" for part in ("centre", "size", "rest")]
    sizes = w.constant(_integers(2, 2, c // anchors - 4))
    w.nodes.append(helper.make_node("Split", [apart, sizes], names, name=f"{node.name}.split", axis=2))
    return names, [w.constant(_integers(0, c, h, wide))]


def _head(w: _Writer, node: Node, x: str) -> str:
    o = node.attributes
    (centre, size, rest), back = _parts(w, node, x, o["anchors"])
    for _ in range(o["logistic"][0]):
        centre = w.add("Sigmoid", centre)
    if o["softmax"]:
        ends = [w.constant(_integers(number)) for number in (0, 1, 1 + o["classes"], 2)]  # the last is the axis
        sure, classes = (w.add("Slice", rest, ends[at], ends[at + 1], ends[3]) for at in (0, 1))
        rest = w.add("Concat", w.add("Sigmoid", sure), w.add("Softmax", classes, axis=2), axis=2)
    else:
        for _ in range(o["logistic"][1]):
            rest = w.add("Sigmoid", rest)
    spread = w.add("Mul", centre, w.constant(np.float32(o["scale_x_y"])))
    centre = w.add("Sub", spread, w.constant(np.float32(0.5 * (o["scale_x_y"] - 1))))
    return w.add("Reshape", w.add("Concat", centre, size, rest, axis=2), *back, last=True)


def _boxes(w: _Writer, node: Node, x: str) -> str:
    o = node.attributes
    (centre, size, rest), back = _parts(w, node, x, len(o["anchors"]))
    _, h, wide = w.shapes[node.name]
    rows, columns = np.mgrid[0:h, 0:wide].astype(np.float32)
    cells = w.add("Add", centre, w.constant(np.stack([columns, rows])[None, None]))
    centre = w.add("Div", cells, w.constant(np.array([wide, h], np.float32)[:, None, None]))
    squares = o["squares"]
    grown = w.add("Mul", w.add("Mul", size, size), w.constant(np.float32(4))) if squares else w.add("Exp", size)
    shares = np.array(o["anchors"], np.float32) / np.array(o["size"], np.float32)
    size = w.add("Mul", grown, w.constant(shares[None, :, :, None, None]))
    return w.add("Reshape", w.add("Concat", centre, size, rest, axis=2), *back, last=True)


_WRITERS: Mapping[str, Callable[..., str]] = {
    "activation": _activation,
    "avgpool": lambda w, node, x: w.add("GlobalAveragePool", x, last=True),
    "batchnorm": _batchnorm,
    "boxes": _boxes,
    "concat": lambda w, node, *inputs: w.add("Concat", *inputs, axis=1, last=True),
    "conv": _conv,
    "dropout": _dropout,
    "head": _head,
    "identity": _same,
    "maxpool": _maxpool,
    "reorg": _reorg,
    "scale": lambda w, node, gate, image: w.add("Mul", image, gate, last=True),
    "slice": _slice,
    "sum": _sum,
    "upsample": _upsample,
}
