"""`pydarknetbn convert`: a network to files of other programs, and back to .weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .. import convert as formats
from ..errors import UnsupportedError, WeightsError
from ..files import write_atomically
from ..network import Network
from . import common, inputs
from .convert_onnx import BatchOption, Boxes, BoxesOption, FoldOption, OnnxOptions, VerifyOption, write_onnx

__all__ = ["READERS", "WRITERS", "convert"]


class Style(str, Enum):
    """Names in a .pt."""

    LAYERS = "layers"
    ULTRALYTICS = "ultralytics"
    TIANXIAOMO = "tianxiaomo"


class Dtype(str, Enum):
    """Of the arrays that are written."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="CFG WEIGHTS OUT", help="With --from: CFG and the .weights to write.", show_default=False)
]
FromOption = Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Read the arrays of this file, write .weights.")]
StyleOption = Annotated[Style, typer.Option(help="Names of the arrays in a .pt.")]
DtypeOption = Annotated[Dtype, typer.Option(help="float16 and bfloat16 fold first, and report what that loses before they write.")]


def convert(
    files: FilesArgument,
    source: FromOption = None,
    style: StyleOption = Style.LAYERS,
    dtype: DtypeOption = Dtype.FLOAT32,
    pictures: inputs.InputOption = None,
    fold: FoldOption = True,
    boxes: BoxesOption = Boxes.RAW,
    batch: BatchOption = "dynamic",
    verify: VerifyOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Write a network as .onnx, .npz, .safetensors or .pt, or read one of the last three back.

    Exit code 1: a layer's output in onnxruntime is not this package's own.
    """
    if len(files) != (2 if source else 3):
        wanted = "CFG and the .weights to write" if source else "CFG, WEIGHTS and the file to write"
        raise typer.BadParameter(f"expected {wanted}, got {len(files)} files")
    cfg, target = files[0], files[-1]
    if source:
        net = _pick(READERS, source, "read")(source, cfg, style.value, profile)
        net.save(target)
    elif target.suffix == ".onnx":
        net = common.load_network(cfg, files[1], dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
        options = OnnxOptions(fold, boxes, batch, verify)
        return _end_onnx(write_onnx(net, target, options, dtype=dtype.value, quiet=quiet or json), json)
    else:
        write = _pick(WRITERS, target, "written")
        net = common.load_network(cfg, files[1], dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
        half = _halve(net, dtype, pictures, quiet or json) if dtype is not Dtype.FLOAT32 else None
        write(half[0] if half else net, target, style.value, dtype.value)
        if json and half:
            return common.print_json({"file": str(target), "half": half[1].to_json()})
    if json:
        common.print_json({"file": str(target)})
    elif not quiet:
        common.console().print(f"written: {target}", markup=False)


def _end_onnx(document: dict[str, Any], json: bool) -> None:
    if json:
        common.print_json(document)
    if not document.get("verification", {}).get("agrees", True):
        raise typer.Exit(1)


def _pick(table: Mapping[str, Any], path: Path, what: str) -> Any:
    if path.suffix not in table:
        known = [*table, *([".onnx"] if table is WRITERS else [])]
        if table is WRITERS and path.suffix == ".weights":
            message = f"{path}: expected a file of {', '.join(known)} here; write a .weights with `convert CFG {path} --from FILE`"
            raise UnsupportedError(message)
        raise UnsupportedError(f"{path}: expected a file of {', '.join(known)}; {path.suffix or 'another'} is not {what}")
    return table[path.suffix]


# --- by suffix ------------------------------------------------------------------------------------------------------------------


def _write_npz(net: Network, path: Path, _: str, dtype: Any) -> None:
    formats.to_npz(net, path, dtype=dtype)


def _write_safetensors(net: Network, path: Path, _: str, dtype: Any) -> None:
    formats.to_safetensors(net, path, dtype=dtype)


def _write_pt(net: Network, path: Path, style: Any, dtype: str) -> None:
    state = formats.to_state_dict(net, style=style)
    import torch  # noqa: PLC0415

    kind = getattr(torch, dtype)
    rounded = {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    try:
        write_atomically(path, lambda stream: torch.save(rounded, stream))
    except OSError as reason:
        raise WeightsError(f"{path}: cannot be written, and is as it was: {reason}") from reason


def _read_npz(path: Path, cfg: Path, _: str, profile: str | None) -> Network:
    return formats.from_npz(path, cfg=cfg, profile=profile)


def _read_safetensors(path: Path, cfg: Path, _: str, profile: str | None) -> Network:
    return formats.from_safetensors(path, cfg=cfg, profile=profile)


def _read_pt(path: Path, cfg: Path, style: Any, profile: str | None) -> Network:
    return formats.from_state_dict(path, cfg=cfg, style=style, profile=profile)


WRITERS: Mapping[str, Callable[[Network, Path, str, str], None]] = {
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".pt": _write_pt,
}
READERS: Mapping[str, Callable[[Path, Path, str, str | None], Network]] = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".pt": _read_pt,
}


# --- half precision -------------------------------------------------------------------------------------------------------------


def _halve(net: Network, dtype: Dtype, pictures: list[Path] | None, quiet: bool) -> tuple[Network, formats.HalfReport]:
    made, report = formats.half_report(net, inputs.batch_of(net, pictures), dtype=dtype.value)
    if not quiet:
        _print_half(common.console(), report)
    return made, report


def _print_half(out: Console, report: formats.HalfReport) -> None:
    columns = ("layer", "type", "values", "overflow", "underflow", "vanish", "largest", "outputs over", "error")
    made = common.table(*columns, right=tuple(name for name in columns if name != "type"))
    for layer in report.layers:
        counts = (layer.values, layer.overflow, layer.underflow, layer.vanish)
        rest = (f"{layer.largest:.3g}", f"{layer.outputs_overflow}", f"{layer.error:.1e}")
        made.add_row(str(layer.index), layer.type, *(f"{count:,}" for count in counts), *rest)
    out.print(made)
    worst = report.worst
    if worst:
        told = "something overflows" if report.overflows else "nothing overflows"
        out.print(f"{report.dtype}: {told}; at most {worst.error:.1e} of a layer's range, in layer {worst.index} \\[{worst.type}]")
