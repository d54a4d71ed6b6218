"""Darknet's numbers in Python: batch normalization, layers, `.cfg` and `.weights` exactly as the named fork computes them."""

from __future__ import annotations

from . import convert, golden, testing
from ._native import num_threads, set_num_threads
from .bn import BatchNorm
from .boxes import Detections, nms
from .cfg import Cfg, read_cfg
from .checking import Report, check
from .cpu import CpuInfo, cpu_info
from .dialect import Profile, profiles
from .differing import Diff, diff
from .dumping import dump
from .errors import (
    CfgError,
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
from .folding import FoldReport, fold
from .golden import Golden
from .image import letterbox, resize
from .layers import Layer
from .linting import Finding, Fork, forks, lint
from .loading import load, load_names
from .network import Network

__all__ = [
    "BatchNorm",
    "Cfg",
    "CfgError",
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
    "ImageError",
    "Layer",
    "MissingExtraError",
    "Network",
    "NumericsError",
    "Profile",
    "Report",
    "ShapeError",
    "StateError",
    "SyncError",
    "UnsupportedError",
    "WeightsError",
    "check",
    "convert",
    "cpu_info",
    "diff",
    "dump",
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
    "testing",
]

__version__ = "0.1.0"
