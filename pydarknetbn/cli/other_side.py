"""The other side of a comparison as the command line names it: a file, a profile, or a function."""

from __future__ import annotations

import pickle
import re
import sys
import warnings
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UnsupportedError, WeightsError
from ..extras import import_extra
from ..loading import load
from ..network import Network

__all__ = ["ACCEPTED", "other_side"]

ACCEPTED = "an .onnx, .npz, .pt2, TorchScript .pt or .weights file, a folder of .npy, profile:NAME, or module:function"
_PROFILE = "profile:"
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_PICKLED = "torch.export.save writes a program, as .pt2; or name a function of yours that makes the module, as module:function"
_READ_ERRORS = (RuntimeError, ValueError, OSError, EOFError, KeyError, AttributeError, pickle.UnpicklingError, zipfile.BadZipFile)


def other_side(text: str, cfg: Path | None, weights: Path | None, *, dialect: str = "auto") -> Any:
    """What `compare` takes.

    Args:
        text: one of `ACCEPTED`.
        cfg: of our network, which a .weights file and a profile go with; None where there is none.
        weights: of our network, which a profile goes with.
        dialect: of these files.

    Raises:
        UnsupportedError: none of these, or a file that holds no program; it says what to do.
        WeightsError: a file that is not there or cannot be read.
        MissingExtraError: PyTorch is not installed.
    """
    path = Path(text)
    if text.startswith(_PROFILE) and not path.exists():
        return _network(cfg, weights, dialect, text.removeprefix(_PROFILE))
    function = _FUNCTION.fullmatch(text)
    if function and not path.exists():
        return _called(*function.groups())
    if not path.exists():
        raise WeightsError(f"{text}: there is no such file; expected {ACCEPTED}")
    if path.suffix == ".weights":
        return _network(cfg, path, dialect, None)
    if path.is_dir() or path.suffix.lower() in (".onnx", ".npz"):
        return path
    reader = {".pt": _torch_file, ".pth": _torch_file, ".pt2": _exported}.get(path.suffix.lower())
    if reader is None:
        raise UnsupportedError(f"{text}: expected {ACCEPTED}; {path.suffix or 'a name without an ending'} is none of them")
    return reader(path)


def _network(cfg: Path | None, weights: Path | None, dialect: str, profile: str | None) -> Network:
    if cfg is None:
        raise UnsupportedError("a golden bundle holds no network to run again; expected another program, or arrays of one")
    return load(cfg, weights, dialect=dialect, profile=profile)


# --- PyTorch --------------------------------------------------------------------------------------------------------------------


def _torch_file(path: Path) -> Any:
    """A TorchScript program; whatever else torch.save writes holds none, or one that runs code as it is read."""
    torch = import_extra("torch", "torch")
    if _is_script(path):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # TorchScript is deprecated
                return torch.jit.load(str(path), map_location="cpu").eval()
        except _READ_ERRORS as reason:
            raise WeightsError(f"{path}: cannot be read as TorchScript: {_first_line(reason)}") from None
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as reason:
        if "Unsupported global" not in str(reason):
            raise WeightsError(f"{path}: cannot be read as a file of PyTorch: its pickle is damaged or none") from None
        raise UnsupportedError(f"{path}: is a pickled module, which runs code of its own as it is read; {_PICKLED}") from None
    except _READ_ERRORS as reason:
        raise WeightsError(f"{path}: cannot be read as a file of PyTorch: {_first_line(reason)}") from None
    what = "a state_dict" if isinstance(held, dict) else f"a {type(held).__name__}"
    raise UnsupportedError(f"{path}: holds {what}, numbers without a program; {_PICKLED}")


def _is_script(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def _exported(path: Path) -> Any:
    torch = import_extra("torch", "torch")
    try:
        return torch.export.load(path).module()
    except _READ_ERRORS as reason:
        raise WeightsError(f"{path}: cannot be read as a program of torch.export: {_first_line(reason)}") from None


def _first_line(reason: BaseException) -> str:
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0]


# --- functions of the user ------------------------------------------------------------------------------------------------------


def _called(module: str, name: str) -> Any:
    """What the function gives, a module or callable; it is imported as Python does in the current folder."""
    where = f"{module}:{name}"
    function = _imported(module, name, where)
    try:
        made = function()
    except Exception as reason:
        raise UnsupportedError(f"{where} raised {type(reason).__name__}: {_first_line(reason)}{_place_of(reason)}") from reason
    if not callable(made) and not isinstance(made, Network | dict):
        raise UnsupportedError(f"{where} gave {type(made).__name__}; expected a torch.nn.Module, a callable, or arrays by name")
    return made


def _imported(module: str, name: str, where: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name, None)
    except Exception as reason:
        raise UnsupportedError(f"{where}: {module} cannot be imported: {_first_line(reason)}{_place_of(reason)}") from reason
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise UnsupportedError(f"{where}: {module} has no function {name}")
    return found


def _place_of(reason: BaseException) -> str:
    """File and line where it was raised, if that is not here."""
    last = reason.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or last.tb_frame.f_code.co_filename in (__file__, "<frozen importlib._bootstrap>"):
        return ""
    return f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})"
