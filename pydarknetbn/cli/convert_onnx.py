"""`pydarknetbn convert` to a name that ends in .onnx."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..network import Network
from . import common

__all__ = ["BatchOption", "Boxes", "BoxesOption", "FoldOption", "OnnxOptions", "VerifyOption", "write_onnx"]


class Boxes(str, Enum):
    """What the file gives."""

    RAW = "raw"
    DECODED = "decoded"
    NMS = "nms"


FoldOption = Annotated[bool, typer.Option(help="ONNX: multiply batchnorms into the weights before them.")]
BoxesOption = Annotated[Boxes, typer.Option(help="ONNX: the heads' outputs, boxes, or boxes and which of them are left.")]
BatchOption = Annotated[str, typer.Option(metavar="dynamic|N", help="ONNX: images of an input.")]
VerifyOption = Annotated[
    bool | None, typer.Option("--verify/--no-verify", help="ONNX: compare every layer. Default: where onnxruntime is installed.")
]


class OnnxOptions(NamedTuple):
    """What the options above say."""

    fold: bool
    boxes: Boxes
    batch: str
    verify: bool | None


def write_onnx(net: Network, out: Path, options: OnnxOptions, *, dtype: str, quiet: bool) -> dict[str, Any]:
    """Writes the file, and prints how each layer compares.

    Returns:
        The document for `--json`; `document["verification"]["agrees"]` is false where a layer differs.
    """
    from ..convert.onnx_export import export_onnx  # noqa: PLC0415

    exported = export_onnx(
        net,
        out,
        fold=options.fold,
        boxes=options.boxes.value,
        batch=_batch(options.batch),
        dtype=dtype,
        verify=options.verify,
        progress=partial(common.progress, description="layers", quiet=quiet),
    )
    found, size = exported.verification, out.stat().st_size
    if not quiet:
        console = common.console()
        if found:
            console.print(_table(found))
        console.print(f"{out}: {len(net.layers)} layers, {size:,} bytes; {found or 'not compared'}", markup=False)
    verification = {"verification": found.to_json()} if found else {}
    return {"file": str(out), "format": "onnx", "layers": len(net.layers), "bytes": size} | verification


def _batch(text: str) -> Any:
    return int(text) if text.isdigit() else text


def _table(found: Any) -> Any:
    made = common.table("layer", "type", "apart", "range", "relative", right=("layer", "apart", "range", "relative"))
    for layer in found.layers:
        made.add_row(str(layer.index), layer.type, f"{layer.largest:.1e}", f"{layer.range:.3g}", f"{layer.relative:.1e}")
    return made
