"""Darknet's numbers in Python: batch normalization, layers, `.cfg` and `.weights` exactly as the named fork computes them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._native import flush_denormals, num_threads, set_num_threads
from .cpu import CpuInfo, cpu_info
from .errors import (
    CfgError,
    CheckpointError,
    DarknetError,
    DarknetWarning,
    DeviceError,
    DtypeError,
    DumpError,
    ImageError,
    MissingExtraError,
    NumericsError,
    ShapeError,
    StateError,
    SyncError,
    UnsupportedError,
    WeightsError,
)

if TYPE_CHECKING:
    from . import bn, convert, golden, sync, testing
    from .bn import BatchNorm
    from .boxes import Detections, nms
    from .calibration.results import Calibration
    from .cfg import Cfg, read_cfg
    from .checking import Report, check
    from .dialect import Profile, profiles
    from .differing import Diff, diff
    from .doctor import Comparison
    from .doctor.comparing import compare
    from .dumping import dump
    from .folding import FoldReport, fold
    from .golden import Golden
    from .image import letterbox, resize
    from .layers import Layer
    from .linting import Finding, Fork, forks, lint
    from .loading import load, load_names
    from .network import Network
    from .training import History, Loss, TrainSettings

__all__ = [
    "BatchNorm",
    "Calibration",
    "Cfg",
    "CfgError",
    "CheckpointError",
    "Comparison",
    "CpuInfo",
    "DarknetError",
    "DarknetWarning",
    "Detections",
    "DeviceError",
    "Diff",
    "DtypeError",
    "DumpError",
    "Finding",
    "FoldReport",
    "Fork",
    "Golden",
    "History",
    "ImageError",
    "Layer",
    "Loss",
    "MissingExtraError",
    "Network",
    "NumericsError",
    "Profile",
    "Report",
    "ShapeError",
    "StateError",
    "SyncError",
    "TrainSettings",
    "UnsupportedError",
    "WeightsError",
    "bn",
    "check",
    "compare",
    "convert",
    "cpu_info",
    "diff",
    "dump",
    "flush_denormals",
    "fold",
    "forks",
    "golden",
    "letterbox",
    "lint",
    "load",
    "load_names",
    "nms",
    "num_threads",
    "profiles",
    "read_cfg",
    "resize",
    "set_num_threads",
    "sync",
    "testing",
]

__version__ = "0.1.0"

# What is imported when it is first asked for, and where it stands.
_MODULES = {
    "BatchNorm": "bn",
    "Calibration": "calibration.results",
    "Cfg": "cfg",
    "Comparison": "doctor",
    "Detections": "boxes",
    "Diff": "differing",
    "Finding": "linting",
    "FoldReport": "folding",
    "Fork": "linting",
    "Golden": "golden",
    "History": "training",
    "Layer": "layers",
    "Loss": "training",
    "Network": "network",
    "Profile": "dialect",
    "Report": "checking",
    "TrainSettings": "training",
    "check": "checking",
    "compare": "doctor.comparing",
    "diff": "differing",
    "dump": "dumping",
    "fold": "folding",
    "forks": "linting",
    "letterbox": "image",
    "lint": "linting",
    "load": "loading",
    "load_names": "loading",
    "nms": "boxes",
    "profiles": "dialect",
    "read_cfg": "cfg",
    "resize": "image",
}


def __getattr__(name: str) -> Any:
    """A name of `__all__`, or a module of the package."""
    if name in _MODULES:
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__} has no {name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
