"""`pydarknetbn info`: what a network is made of, and what was read of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..layers import Layer
from ..network import Network
from ..variances import untrained
from . import common

__all__ = ["info", "layer_table"]

WeightsArgument = Annotated[Path | None, typer.Argument(metavar="[WEIGHTS]", help="Its .weights file.", show_default=False)]
_ROLLING = ("rolling_mean", "rolling_variance")


def info(
    cfg: common.CfgArgument,
    weights: WeightsArgument = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
    device: common.DeviceOption = "cpu",
) -> None:
    """Show a network's layers, parameters, header, dialect and profile."""
    files: dict[str, Any] = {"dialect": dialect, "profile": profile, "threads": threads, "quiet": quiet or json}
    net = common.load_network(cfg, weights, **files, initial=False, device=device)
    if json:
        common.print_json(_document(net))
        return
    out = common.console()
    out.print(layer_table(net, narrow=common.is_narrow(out)))
    out.print()
    _print_summary(out, net)


def _trainable(layer: Layer) -> int:
    return sum(array.size for name, array in layer.params.items() if not name.endswith(_ROLLING)) if layer.stored else 0


def _stored(layer: Layer) -> int:
    return sum(array.size for array in layer.params.values()) if layer.stored else 0


def layer_table(net: Network, *, narrow: bool) -> Any:
    """The layers as Darknet prints them; narrow leaves the notes out."""
    right = ("layer", "input", "output", "parameters", "BF")
    columns = ["layer", "type", "size/stride", "input", "output", "parameters", "BF"]
    made = common.table(*columns, *([] if narrow else ["notes"]), right=right, gap=1 if narrow else 2)
    for layer in net.layers:
        count = _stored(layer)
        cells = [
            str(layer.index),
            layer.type,
            layer.kernel,
            str(layer.in_shape) if layer.type != "route" else "",
            str(layer.out_shape),
            f"{count:,}" if count else "",
            f"{layer.operations / 1e9:.3f}" if layer.operations else "",
        ]
        made.add_row(*cells, *([] if narrow else [layer.detail]))
    return made


def _print_summary(out: Console, net: Network) -> None:
    stored, trainable = sum(map(_stored, net.layers)), sum(map(_trainable, net.layers))
    rows = {
        "input": f"{net.w} x {net.h} x {net.c}",
        "parameters": f"{trainable:,} trainable, {stored:,} stored (with the rolling arrays)",
        "operations": f"{sum(layer.operations for layer in net.layers) / 1e9:.3f} BFLOPs for each image",
    }
    if net.origin.weights:
        rows["weights"] = f"{net.origin.weights}, all {net.origin.nbytes:,} bytes used"
        header = f"version {net.header.version}, {net.header.nbytes} bytes, {net.seen:,} images seen"
        rows["header"] = header
        if still := _untrained(net):
            many = f"layers {', '.join(map(str, still))}" if len(still) > 1 else f"layer {still[0]}"
            rows["statistics"] = f"the rolling arrays of {many} are as before any training"
    rows["dialect"] = net.why[0].removeprefix("dialect ")
    rows["profile"] = net.why[1].removeprefix("profile ")
    if there := _device(net):
        rows["device"] = f"{there['place']}, {there['name']}, {there['memory'] / 2**30:.1f} GiB: every layer is computed there"
    if net.names:
        rows["classes"] = f"{len(net.names)} names: {', '.join(net.names[:5])}{' …' if len(net.names) > 5 else ''}"
    for name, text in rows.items():
        out.print(f"[bold]{name:<11}[/bold]", end="")
        out.print(text, markup=False)


def _device(net: Network) -> dict[str, Any] | None:
    """The device that the network is on; None: the CPU."""
    if not net.runner.device:
        return None
    place = net.runner.device.place
    found = place.library.devices()[place.device]
    return {"place": net.device, "name": found.name, "memory": found.memory}


def _untrained(net: Network) -> list[int]:
    """Numbers of the layers whose rolling arrays a file holds as they start."""
    return [layer.index for layer in untrained(net.layers)] if net.origin.weights else []


def _document(net: Network) -> dict[str, Any]:
    return {
        "input": {"w": net.w, "h": net.h, "c": net.c},
        "layers": [
            {
                "index": layer.index,
                "type": layer.type,
                "line": layer.line,
                "size": layer.kernel,
                "in": list(layer.in_shape),
                "out": list(layer.out_shape),
                "arrays": {name: list(array.shape) for name, array in layer.params.items()},
                "stored": _stored(layer),
                "trainable": _trainable(layer),
                "bflops": layer.operations / 1e9,
                "notes": layer.detail,
            }
            for layer in net.layers
        ],
        "stored": sum(map(_stored, net.layers)),
        "trainable": sum(map(_trainable, net.layers)),
        "bflops": sum(layer.operations for layer in net.layers) / 1e9,
        "header": {
            "major": net.header.major,
            "minor": net.header.minor,
            "revision": net.header.revision,
            "seen": net.seen,
            "bytes": net.header.nbytes,
        },
        "untrained_statistics": _untrained(net),
        "bytes_used": net.origin.nbytes,
        "dialect": net.dialect,
        "profile": net.profile,
        "why": list(net.why),
        "warnings": list(net.warnings),
        "names": list(net.names),
        "device": _device(net),
    }
