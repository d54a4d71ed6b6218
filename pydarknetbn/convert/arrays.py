"""NumPy's .npz and .safetensors: every array under `layers.N.<name>`, with header, dialect and cfg beside them."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import UnsupportedError, WeightsError
from ..files import write_atomically
from ..network import Network
from .filling import CfgSource, HeaderNumbers, network_of_arrays
from .half import Dtype, in_dtype
from .naming import Style, named_arrays
from .tensor_file import read_tensors, write_tensors

__all__ = ["from_npz", "from_safetensors", "metadata_of", "to_npz", "to_safetensors"]

_METADATA = "__metadata__"
Path_ = str | os.PathLike[str]


def metadata_of(net: Network) -> dict[str, str]:
    """What a network is besides its arrays, as text: header, dialect, profile, cfg and the SHA-256 of that."""
    text = net.origin.cfg.text
    header = net.header
    return {
        "format": "darknet arrays",
        "header": json.dumps([header.major, header.minor, header.revision, header.seen, header.seen_bytes]),
        "dialect": net.dialect,
        "profile": net.profile,
        "cfg": text,
        "cfg_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "names": json.dumps(list(net.names)),
    }


# --- .npz -----------------------------------------------------------------------------------------------------------------------


def to_npz(net: Network, path: Path_, *, dtype: Dtype = "float32") -> None:
    """Writes an .npz: `numpy.load(path)["layers.0.weights"]`.

    Args:
        net: the network.
        path: written whole or not at all.
        dtype: of the arrays; "float16" rounds, see `half_report`.

    Raises:
        UnsupportedError: bfloat16, which NumPy's files do not hold.
        WeightsError: the file cannot be written.
    """
    if dtype == "bfloat16":
        raise UnsupportedError(f"{os.fspath(path)}: an .npz holds no bfloat16; write .safetensors or .pt, or float16")
    arrays = {named.key: in_dtype(named.array, dtype) for named in named_arrays(net, "layers")}
    arrays[_METADATA] = np.array(json.dumps(metadata_of(net)))
    _write(path, lambda stream: np.savez(stream, **arrays))


def from_npz(
    source: Path_,
    *,
    cfg: CfgSource | None = None,
    style: Style = "layers",
    header: HeaderNumbers | None = None,
    profile: str | None = None,
) -> Network:
    """Reads an .npz of arrays.

    Args:
        source: the file.
        cfg: the network's; None takes the text in the file.
        style: of the names.
        header: for `save`; None takes the one in the file, else version 0.2.5 and no image seen.
        profile: that computes; None takes the one in the file, else the dialect's.

    Raises:
        WeightsError: it is no such file, or its arrays are not the cfg's.
    """
    try:
        with np.load(source, allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
            metadata = json.loads(str(arrays.pop(_METADATA, "{}")))
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, TypeError) as reason:
        raise WeightsError(f"{os.fspath(source)}: cannot be read as an .npz of arrays: {reason}") from None
    return _network(arrays, metadata, os.fspath(source), cfg, style, header, profile)


# --- .safetensors ---------------------------------------------------------------------------------------------------------------


def to_safetensors(net: Network, path: Path_, *, dtype: Dtype = "float32") -> None:
    """Writes a .safetensors file, see `to_npz`; it holds bfloat16 too.

    Raises:
        WeightsError: the file cannot be written.
    """
    arrays = ((named.key, in_dtype(named.array, dtype)) for named in named_arrays(net, "layers"))
    _write(path, lambda stream: write_tensors(stream, arrays, metadata_of(net)))


def from_safetensors(
    source: Path_,
    *,
    cfg: CfgSource | None = None,
    style: Style = "layers",
    header: HeaderNumbers | None = None,
    profile: str | None = None,
) -> Network:
    """Reads a .safetensors file of arrays, see `from_npz`.

    Raises:
        WeightsError: it is no such file, or its arrays are not the cfg's.
    """
    where = os.fspath(source)
    try:
        arrays, metadata = read_tensors(Path(where).read_bytes())
    except (OSError, ValueError) as reason:
        raise WeightsError(f"{where}: cannot be read as safetensors: {reason}") from None
    return _network(arrays, metadata, where, cfg, style, header, profile)


# --- both -----------------------------------------------------------------------------------------------------------------------


def _write(path: Path_, write: Any) -> None:
    try:
        write_atomically(path, write)
    except OSError as reason:
        raise WeightsError(f"{os.fspath(path)}: cannot be written, and is as it was: {reason}") from reason


def _network(
    arrays: Mapping[str, Any],
    metadata: dict[str, str],
    where: str,
    cfg: CfgSource | None,
    style: Style,
    header: HeaderNumbers | None,
    profile: str | None,
) -> Network:
    if cfg is None and "cfg" not in metadata:
        raise WeightsError(f"{where}: holds no cfg; pass the network's with cfg=")
    text = metadata["cfg"].encode() if cfg is None else cfg
    stored = json.loads(metadata.get("header", "null"))
    numbers = header or (tuple(stored[:4]) if stored else (0, 2, 5, 0))
    net = network_of_arrays(
        arrays,
        where=where,
        cfg=text,
        style=style,
        header=cast(HeaderNumbers, numbers),
        dialect=metadata.get("dialect", "auto"),
        profile=profile or metadata.get("profile"),
    )
    if stored and header is None:
        net.header = replace(net.header, seen_bytes=stored[4])
    net.names = net.names or tuple(json.loads(metadata.get("names", "[]")))
    return net
