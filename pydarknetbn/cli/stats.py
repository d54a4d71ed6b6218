"""`pydarknetbn stats`: rolling arrays of a file, alone and against what pictures give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..calibration.findings import MEANINGS, LayerFindings, Statistics
from ..calibration.statistics import statistics_of
from . import common
from .calibrate import BatchOption, SkipOption
from .detect import ResizeOption
from .pictures import PictureBatches, find_pictures

__all__ = ["stats"]

PicturesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PICTURE...]", help="Pictures, folders, or .txt lists of paths.", show_default=False),
]
PlotOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw all layers: FILE.html or FILE.png.")]

_ROWS = 12


def stats(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    pictures: PicturesArgument = None,
    plot: PlotOption = None,
    batch: BatchOption = 8,
    resize: ResizeOption = None,
    skip: SkipOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Show what is wrong with rolling arrays, channel by channel; exit code 1 where something is.

    Without pictures from the file alone. With them each layer's mean and variance are measured as `calibrate` would set them.
    """
    if plot is not None and plot.suffix.lower() not in (".html", ".png"):
        raise typer.BadParameter(f"{plot}: expected a file that ends in .html or .png")
    net = common.load_network(cfg, weights, dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
    how = resize.value if resize else net.default_resize
    data = PictureBatches(net, find_pictures(pictures), batch, how, skip) if pictures else None
    with common.late_progress("measuring", quiet or json, of_bytes=False) as tell:
        found = statistics_of(net, data, progress=tell)
    if data is not None and not quiet:
        common.warn(tuple(data.skipped.values()))
    if plot is not None:
        from .stats_plot import draw  # noqa: PLC0415 few ask for it

        draw(found, plot, title=cfg.stem)
    if json:
        common.print_json(found.to_json() | {"plot": str(plot) if plot else None})
    else:
        _print(common.console(), found, plot)
    raise typer.Exit(found.exit_code)


def _print(out: Console, found: Statistics, plot: Path | None) -> None:
    out.print(_table(found))
    if len(found.layers) > _ROWS:
        out.print(f"… and {len(found.layers) - _ROWS} more layers; --json has all")
    if "tiny" in found.counts:
        out.print(_gains(found))
    for name, count in found.counts.items():
        layers = sum(name in layer.channels for layer in found.layers)
        out.print(f"[bold]{name}[/bold], {_counted(count, 'channel')} of {_counted(layers, 'layer')}: ", end="")
        out.print(MEANINGS[name], markup=False, soft_wrap=True)
    over = f"over {_counted(found.images, 'picture')}" if found.images else "from the file alone"
    wrong = "something to look at" if found.exit_code else "nothing wrong"
    out.print(f"{_counted(len(found.layers), 'batchnorm')}, {over}: {wrong}")
    if plot:
        out.print(f"written: {plot}", markup=False)


def _table(found: Statistics) -> common.Table:
    measured = ("mean off by", "rolling / measured variance") if found.images else ()
    columns = ("layer", "type", "channels", *measured, "least variance", "found")
    made = common.table(*columns, right=tuple(name for name in columns if name not in ("type", "found")))
    for layer in found.worst_first[:_ROWS]:
        told = ", ".join(f"{name} {len(channels)}" for name, channels in layer.channels.items())
        least = f"{layer.rolling_variance.min():.3g}"
        made.add_row(str(layer.layer), layer.type, str(len(layer.scales)), *_measured(layer), least, told)
    return made


def _gains(found: Statistics) -> common.Table:
    """What the smallest variances are multiplied by, here and with other epsilons."""
    layers = [layer for layer in found.worst_first if layer.gains][:_ROWS]
    names = {name: "gain here" if name == "profile" else name for name in layers[0].gains}
    columns = ("layer", "channel", "least variance", *names.values())
    made = common.table(*columns, right=columns)
    for layer in layers:
        gains = [f"{layer.gains[name]:,.4g}" for name in names]
        made.add_row(str(layer.layer), str(layer.least), f"{layer.rolling_variance[layer.least]:.3g}", *gains)
    return made


def _measured(layer: LayerFindings) -> tuple[str, ...]:
    if layer.measured is None:
        return ()
    ratio = layer.measured.variance_ratio
    return f"{layer.measured.mean_drift.max():.3g} dev.", f"{ratio.min():.3g} to {ratio.max():.3g}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
