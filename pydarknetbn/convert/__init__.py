"""Networks in the formats of other programs. Each is imported when it is first asked for, and with it what it needs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..bn.conventions import BatchNormArrays, batchnorm
    from .arrays import from_npz, from_safetensors, to_npz, to_safetensors
    from .from_torch import from_torch
    from .half import HalfReport, half_report
    from .onnx_export import to_onnx
    from .state import from_state_dict, to_state_dict
    from .to_torch import to_torch

__all__ = [
    "BatchNormArrays",
    "HalfReport",
    "batchnorm",
    "from_npz",
    "from_safetensors",
    "from_state_dict",
    "from_torch",
    "half_report",
    "to_npz",
    "to_onnx",
    "to_safetensors",
    "to_state_dict",
    "to_torch",
]

_MODULES = {
    "BatchNormArrays": "..bn.conventions",
    "HalfReport": ".half",
    "batchnorm": "..bn.conventions",
    "from_npz": ".arrays",
    "from_safetensors": ".arrays",
    "from_state_dict": ".state",
    "from_torch": ".from_torch",
    "half_report": ".half",
    "to_npz": ".arrays",
    "to_onnx": ".onnx_export",
    "to_safetensors": ".arrays",
    "to_state_dict": ".state",
    "to_torch": ".to_torch",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no {name}")
    found = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = found  # a module of the same name would stand here otherwise
    return found
