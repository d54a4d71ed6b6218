"""A network as an ONNX model."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

from .. import _native
from ..dialect import Host, profile_named
from ..errors import DarknetWarning, UnsupportedError, WeightsError
from ..extras import has_package, import_extra
from ..files import write_atomically
from ..folding import fold as fold_network
from ..layers import Layer, Shape
from ..network import Network
from ..trees import find_file, read_tree
from ..weights import write_weights
from .onnx_boxes import check_boxes, decoded, selected
from .onnx_graph import Batch, Graph, Value
from .onnx_layers import LAYERS
from .onnx_verify import LIMITS, Verification, verify_onnx
from .onnx_weighted import Source

__all__ = ["Exported", "export_onnx", "to_onnx"]

Boxes = Literal["raw", "decoded", "nms"]
_BYTES = 2**31
_OF_MATRICES = frozenset({"connected", "gru", "lstm", "rnn"})


@dataclass(frozen=True, slots=True)
class Exported:
    """A model, and how it compares with the network it is of; None where that was not asked."""

    model: Any
    verification: Verification | None


def to_onnx(
    net: Network,
    path: str | os.PathLike[str] | None = None,
    *,
    fold: bool = True,
    boxes: Boxes = "raw",
    batch: int | Literal["dynamic"] = "dynamic",
    dtype: str = "float32",
    verify: bool | None = None,
) -> Any:
    """The network as an ONNX model of opset 13.

    Each layer is nodes called `<index>_<type>`; its output is the value of that name. The input is `input` (batch, c, h, w).
    Recurrent layers make one time step, as with `net.time_steps = 1`: the inputs `<index>_<type>.state` (and of LSTMs `.cell`), at
    first zeros, are to get what the outputs `<index>_<type>.state_next` gave.

    Args:
        net: stays as it is.
        path: where to write it, whole or not at all; None writes nothing.
        fold: batchnorms are multiplied into the weights before them, see `fold`; else they are nodes, with the profile's epsilon
            on its side of the root.
        boxes: "raw" gives the heads' outputs as `Network.forward` does; "decoded" gives `detections` (batch, rows, 5 + classes): x,
            y, w, h (centre and size, 1 the side of the input), objectness and the probability of each class; "nms" gives
            `selected` (boxes, 3) as well: image, class and row of what non-maximum suppression leaves.
        batch: images of an input; "dynamic" leaves it open.
        dtype: float32 or float16, of all values.
        verify: compare every layer's output in onnxruntime with this package's own; None does where onnxruntime is installed.

    Returns:
        An `onnx.ModelProto`. Its metadata holds classes, anchors, profile, dialect, the hashes of cfg and weights, and what the
        comparison found.

    Raises:
        UnsupportedError: sections that ONNX cannot express, each named; nothing is written.
        NumericsError: a variance that cannot be folded, or a value too large for float16.
        WeightsError: the file cannot be written; an old one is as it was.
        MissingExtraError: onnx, or with verify=True onnxruntime, is not installed.

    Warns:
        DarknetWarning: a layer is further apart than the limit.
    """
    exported = export_onnx(net, path, fold=fold, boxes=boxes, batch=batch, dtype=dtype, verify=verify)
    if exported.verification and not exported.verification.agrees:
        warnings.warn(f"{net.origin.cfg.name}: in ONNX, {exported.verification.fault}", DarknetWarning, stacklevel=2)
    return exported.model


def export_onnx(
    net: Network,
    path: str | os.PathLike[str] | None = None,
    *,
    fold: bool,
    boxes: Boxes,
    batch: int | Literal["dynamic"],
    dtype: str,
    verify: bool | None,
    progress: Callable[[Sequence[Layer]], Iterable[Layer]] = iter,
) -> Exported:
    """As `to_onnx`; `progress` goes through the layers and may show how far it is."""
    axis = _check_arguments(boxes, batch, dtype)
    _check_layers(net)
    if boxes != "raw":
        check_boxes(net.origin.cfg.name, net.heads, boxes == "nms")
    import_extra("onnx", "onnx")
    if verify:
        import_extra("onnxruntime", "onnx")
    model = _model(net, fold_network(net, layers=_foldable(net))[0] if fold else net, axis, boxes, dtype, progress)
    _add_metadata(model, _metadata(net, fold, boxes))
    verification = None
    if verify or (verify is None and has_package("onnxruntime")):
        verification = verify_onnx(net, model, axis if isinstance(axis, int) else 2, dtype)
        _add_metadata(model, {"verification": json.dumps(verification.to_json())})
    if path is not None:
        _write_file(model, path)
    return Exported(model, verification)


# --- refusals -------------------------------------------------------------------------------------------------------------------


def _check_arguments(boxes: str, batch: object, dtype: str) -> Batch:
    if boxes not in ("raw", "decoded", "nms"):
        raise ValueError(f"expected boxes to be 'raw', 'decoded' or 'nms', got {boxes!r}")
    if dtype not in LIMITS:
        raise ValueError(f"expected dtype to be {' or '.join(LIMITS)}, got {dtype!r}")
    if batch == "dynamic":
        return "batch"
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ValueError(f"expected batch to be 'dynamic' or 1 or more, got {batch!r}")
    return batch


def _check_layers(net: Network) -> None:
    """Names every layer that ONNX cannot express."""
    found = [f"[{layer.type}], layer {layer.index} (line {layer.line})" for layer in net.layers if layer.type not in LAYERS]
    if found:
        raise UnsupportedError(f"{net.origin.cfg.name}: cannot become ONNX, which has no counterpart of {', '.join(found)}")
    floats = sum(array.size for layer in net.layers for array in layer.params.values())
    if floats * 4 >= _BYTES:
        raise UnsupportedError(f"{net.origin.cfg.name}: {floats:,} parameters are over the 2 GiB that one ONNX file can hold")


def _foldable(net: Network) -> list[int]:
    """The layers whose own batchnorm goes into their weights: not where another layer takes these without a batchnorm."""
    hosts = [layer for layer in net.layers if layer.type in ("convolutional", "connected")]
    bare = {layer.weights_at for layer in hosts if "rolling_variance" not in layer.params}
    return [layer.index for layer in hosts if "rolling_variance" in layer.params and layer.weights_at not in bare]


# --- the model ------------------------------------------------------------------------------------------------------------------


def _model(
    net: Network, source: Network, batch: Batch, boxes: Boxes, dtype: str, progress: Callable[[Sequence[Layer]], Iterable[Layer]]
) -> Any:
    g = Graph(batch, dtype)
    first = Value("input", (batch, net.c, net.h, net.w))
    values = _layers(g, source, first, progress)
    outputs = [values[layer.index] for layer in source.heads or source.layers[-1:]]
    infos = [g.info(value) for value in outputs]
    if boxes != "raw":
        rows = g.named("detections", decoded(g, Shape(net.c, net.h, net.w), source.heads, outputs))
        infos = [g.info(rows)]
        if boxes == "nms":
            infos.append(g.info(g.named("selected", selected(g, rows)), g.onnx.TensorProto.INT64))
    return g.finished(first, infos)


def _layers(g: Graph, net: Network, first: Value, progress: Callable[[Sequence[Layer]], Iterable[Layer]]) -> list[Value]:
    """The output of each layer."""
    profile = profile_named(net.profile)
    values: list[Value] = []
    for layer in progress(net.layers):
        host: Host = "connected" if layer.type in _OF_MATRICES else "batchnorm" if layer.type == "batchnorm" else "convolutional"
        before = values[-1] if values else first
        source = Source(before, [values[index] for index in layer.sources], profile.rule(host), _tree_groups(net, layer))
        g.begin(f"{layer.index}_{layer.type}")
        values.append(g.finish(layer, LAYERS[layer.type](g, layer, source)))
    return values


def _tree_groups(net: Network, layer: Layer) -> tuple[int, ...]:
    """The sizes of the groups of a layer's tree, neighbours of one parent each; () without a tree."""
    if layer.native is None or layer.native.softmax_tree == _native.ffi.NULL:
        return ()
    path = find_file(net.origin.cfg.layers[layer.index], "tree")
    tree = layer.head.tree if layer.head else read_tree(path) if path else None
    if tree is None:
        return ()
    parents = tree.parents
    starts = [node for node in range(len(parents)) if node == 0 or parents[node] != parents[node - 1]]
    return tuple(end - start for start, end in zip(starts, [*starts[1:], len(parents)], strict=True))


# --- metadata and file ----------------------------------------------------------------------------------------------------------


def _metadata(net: Network, fold: bool, boxes: Boxes) -> dict[str, str]:
    heads = [
        {
            "layer": layer.index,
            "type": layer.type,
            "classes": layer.head.classes,
            "anchors": layer.head.anchors,
            "mask": layer.head.mask,
        }
        for layer in net.heads
        if layer.head
    ]
    return {
        "classes": json.dumps(net.names),
        "anchors": json.dumps(heads),
        "profile": net.profile,
        "dialect": net.dialect,
        "cfg_sha256": hashlib.sha256(net.origin.cfg.text.encode()).hexdigest(),
        "weights_sha256": _weights_hash(net),
        "folded": json.dumps(fold or net.folded),
        "boxes": boxes,
    }


class _HashStream:
    """A file that keeps the hash of what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: Any) -> None:
        self.hash.update(data)


def _weights_hash(net: Network) -> str:
    """Of the file that `Network.save` writes, which is the file that was read."""
    stream = _HashStream()
    write_weights(cast(BinaryIO, stream), net.header, net.layers)
    return stream.hash.hexdigest()


def _add_metadata(model: Any, entries: dict[str, str]) -> None:
    for key, value in entries.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value


def _write_file(model: Any, path: str | os.PathLike[str]) -> None:
    try:
        write_atomically(path, lambda stream: _write(model, stream))
    except OSError as reason:
        raise WeightsError(f"{os.fspath(path)}: cannot be written, and is as it was: {reason}") from reason


def _write(model: Any, stream: BinaryIO) -> None:
    """The bytes of the model, one constant after the other: at no time a second copy of them all.

    A message is the concatenation of its fields in any order; the graph is field 7 of the model, a constant field 5 of the graph.
    """
    frame = type(model)()
    for field, value in model.ListFields():
        if field.name != "graph":
            frame.MergeFrom(type(model)(**{field.name: value}))
    graph = type(model.graph)()
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            graph.MergeFrom(type(graph)(**{field.name: value}))
    head = graph.SerializeToString()
    sizes = [constant.ByteSize() for constant in model.graph.initializer]
    total = len(head) + sum(size + len(_field(5, size)) for size in sizes)
    stream.write(frame.SerializeToString() + _field(7, total) + head)
    for constant, size in zip(model.graph.initializer, sizes, strict=True):
        stream.write(_field(5, size))
        stream.write(constant.SerializeToString())


def _field(number: int, size: int) -> bytes:
    """The start of a field of that number which is `size` bytes long."""
    out, rest = bytearray([number << 3 | 2]), size
    while True:
        out.append(rest & 127 | (128 if rest > 127 else 0))
        rest >>= 7
        if not rest:
            return bytes(out)
