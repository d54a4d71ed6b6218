"""PyTorch's state dicts under the names of common ports."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import WeightsError
from ..extras import import_extra
from ..network import Network
from .filling import CfgSource, HeaderNumbers, network_of_arrays
from .naming import Style, named_arrays

__all__ = ["from_state_dict", "to_state_dict"]


def to_state_dict(net: Network, *, style: Style = "layers") -> dict[str, Any]:
    """The arrays as tensors of their own, by the names of a PyTorch port; counters of batches are 0.

    Args:
        net: the network.
        style: "layers", "ultralytics" or "tianxiaomo", see `naming`.

    Raises:
        MissingExtraError: torch is not installed.
        UnsupportedError: a layer that the port does not have.
    """
    torch = import_extra("torch", "torch")
    made: dict[str, Any] = {}
    for named in named_arrays(net, style):
        made[named.key] = torch.from_numpy(np.array(named.array))
        if style != "layers" and named.name == "rolling_variance":
            counter = named.key.removesuffix("running_var") + "num_batches_tracked"
            made[counter] = torch.zeros((), dtype=torch.long)
    return made


def from_state_dict(
    source: Mapping[str, Any] | str | os.PathLike[str],
    *,
    cfg: CfgSource,
    style: Style = "layers",
    header: HeaderNumbers = (0, 2, 5, 0),
    profile: str | None = None,
    dialect: str = "auto",
) -> Network:
    """A network from a state dict.

    Args:
        source: name -> tensor or array; or a file that `torch.save` wrote, of that or with it under "model" or "state_dict".
        cfg: the network's.
        style: of the names; counters of batches are ignored, and a `module.` before every name.
        header: for `save`.
        profile: that computes.
        dialect: of the cfg.

    Raises:
        MissingExtraError: torch is not installed, and the source is a file.
        WeightsError: names or shapes are not the cfg's.
    """
    where = "the state dict"
    if isinstance(source, str | os.PathLike):
        where = os.fspath(source)
        source = _loaded(where)
    arrays = {key.removeprefix("module."): _as_array(value) for key, value in source.items()}
    return network_of_arrays(arrays, where=where, cfg=cfg, style=style, header=header, profile=profile, dialect=dialect)


def _as_array(value: Any) -> Any:
    if isinstance(value, np.ndarray) or not hasattr(value, "detach"):
        return value
    return value.detach().cpu().float().numpy() if value.is_floating_point() else value.detach().cpu().numpy()


def _loaded(path: str) -> Mapping[str, Any]:
    torch = import_extra("torch", "torch")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as reason:
        sentence = str(reason).splitlines()[0]
        raise WeightsError(f"{path}: cannot be read as a state dict of tensors: {sentence}") from None
    for key in ("model", "state_dict"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping):
        raise WeightsError(f"{path}: holds {type(loaded).__name__}, expected a state dict")
    return loaded
