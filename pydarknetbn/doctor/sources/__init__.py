"""The other side of a comparison: a file, module, function or folder becomes the values that it computes for an input."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..._native import Array, input_array
from ...errors import DtypeError, WeightsError
from ...network import Network
from ..trace import Trace
from .arrays import trace_of_arrays, trace_of_folder, trace_of_npz
from .functions import trace_of_function
from .networks import trace_of_network

__all__ = ["trace_of"]

_KINDS = "an ONNX file, a torch.nn.Module, a dict or .npz of arrays, a folder of .npy, a callable, or another Network"


def trace_of(other: Any, x: Array, *, other_input: Any = None) -> Trace:
    """The values of the other side.

    Args:
        other: path, bytes or `ModelProto` of an ONNX file; a `torch.nn.Module`; a dict of arrays by name, in the order of
            computing, or path of an .npz of these, where "input" is what was computed from; a folder of .npy in the order of their
            names; a `Network`; or what takes an input and gives an array, a list of arrays (outputs) or a dict of arrays (values
            by name).
        x: (batch, c, h, w) float32, our network's input, which the other side is fed with as well.
        other_input: what it is fed with instead, in its own layout.

    Raises:
        DtypeError: none of these.
        WeightsError: a file that cannot be read.
        ShapeError: an input of another shape than the other side takes.
        UnsupportedError: a model of several inputs.
        StateError: the model raises an error, or shows no values of this batch.
        MissingExtraError: the package that runs it is not installed.
    """
    x = input_array(x, "x", ("batch", "c", "h", "w"))
    if isinstance(other, Network):
        return trace_of_network(other, x if other_input is None else other_input)
    if isinstance(other, str | os.PathLike):
        return _of_path(Path(other), x, other_input)
    if isinstance(other, bytes | bytearray | memoryview) or type(other).__name__ == "ModelProto":
        from .onnx_model import trace_of_onnx  # noqa: PLC0415

        return trace_of_onnx(other, x, other_input)
    if isinstance(other, Mapping):
        return trace_of_arrays(other, len(x), source="arrays", given=other_input)
    if _is_module(other):
        from .torch_module import trace_of_module  # noqa: PLC0415

        return trace_of_module(other, x, other_input)
    if callable(other):
        return trace_of_function(other, x, other_input)
    raise DtypeError(f"the other side is a {type(other).__name__}; expected {_KINDS}")


def _of_path(path: Path, x: Array, other_input: Any) -> Trace:
    if not path.exists():
        raise WeightsError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return trace_of_folder(path, len(x), given=other_input)
    if path.suffix.lower() == ".npz":
        return trace_of_npz(path, len(x), given=other_input)
    if path.suffix.lower() == ".onnx":
        from .onnx_model import trace_of_onnx  # noqa: PLC0415

        return trace_of_onnx(path, x, other_input)
    hint = "; load it with PyTorch and pass the module" if path.suffix.lower() in (".pt", ".pth") else ""
    raise WeightsError(f"{path}: expected .onnx, .npz or a folder of .npy{hint}")


def _is_module(other: object) -> bool:
    """Whether it is a PyTorch module; who has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(other, torch.nn.Module)
