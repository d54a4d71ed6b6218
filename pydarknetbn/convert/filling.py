"""From arrays by name back to a network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from ..errors import WeightsError
from ..loading import load
from ..network import Network
from ..weights import header_of
from .naming import Style, is_ignored, named_arrays

__all__ = ["CfgSource", "HeaderNumbers", "network_of_arrays"]

CfgSource = str | os.PathLike[str] | bytes | BinaryIO
HeaderNumbers = tuple[int, int, int, int]


def network_of_arrays(
    arrays: Mapping[str, Any],
    *,
    where: str,
    cfg: CfgSource,
    style: Style,
    header: HeaderNumbers,
    dialect: str = "auto",
    profile: str | None = None,
) -> Network:
    """A network whose every stored array is one of those given.

    Args:
        arrays: name -> anything that NumPy takes for an array, as `naming` calls them.
        where: what messages call them.
        cfg: the network's.
        style: of the names.
        header: major, minor, revision and images seen, for `save`.
        dialect: of the cfg.
        profile: that computes; None takes the dialect's.

    Raises:
        WeightsError: an array is missing, left over, of another shape or no floats; nothing is kept.
    """
    net = load(cfg, None, dialect=dialect, profile=profile)
    left = {key for key in arrays if not is_ignored(key)}
    for key, layer, name, target in named_arrays(net, style):
        place = f"layer {layer.index} [{layer.type}] {name} (line {layer.line})"
        if key not in arrays:
            raise WeightsError(f"{where}: has no {key}, which {place} needs{_near(left)}", layer=layer.index, array=name)
        values = np.asarray(arrays[key])
        if values.shape != target.shape:
            message = f"{where}: {key} is of shape {values.shape}, and {place} of {target.shape}"
            raise WeightsError(f"{message}; the arrays belong to another cfg", layer=layer.index, array=name)
        if values.dtype.kind not in "fV" or values.dtype.itemsize > 8:
            raise WeightsError(f"{where}: {key} is of {values.dtype}, expected floats", layer=layer.index, array=name)
        target[...] = values.astype(np.float32)
        left.discard(key)
    if left:
        raise WeightsError(
            f"{where}: {min(left)} belongs to no layer of the cfg, and {len(left) - 1} more; it is of another network"
        )
    net.header = header_of(header, net.dialect_record)
    return net


def _near(left: set[str]) -> str:
    return f"; it has {min(left)}" if left else ""
