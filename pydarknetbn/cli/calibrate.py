"""`pydarknetbn calibrate`: rolling arrays over a data set of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..calibration.results import Calibration
from . import common
from .detect import ResizeOption
from .pictures import PictureBatches, find_pictures
from .ranks import MpiOption, Ranks, sharing

__all__ = ["BatchOption", "PicturesArgument", "SkipOption", "calibrate"]

PicturesArgument = Annotated[
    list[Path], typer.Argument(metavar="PICTURE...", help="Pictures, folders, or .txt lists of paths.", show_default=False)
]
OutOption = Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The .weights to write.", show_default=False)]
BatchOption = Annotated[int, typer.Option(min=1, metavar="N", help="Pictures of a batch; as many as in training are best.")]
SequentialOption = Annotated[
    bool, typer.Option("--sequential", help="One pass for each layer, those before it calibrated already, instead of one for all.")
]
SkipOption = Annotated[bool, typer.Option("--skip", help="Leave out pictures that cannot be read.")]

_ROWS = 12


def calibrate(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    pictures: PicturesArgument,
    output: OutOption,
    batch: BatchOption = 8,
    sequential: SequentialOption = False,
    resize: ResizeOption = None,
    skip: SkipOption = False,
    mpi: MpiOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Set the rolling arrays to mean and variance over all pictures; under mpiexec the processes share them.

    Interrupted, the same command goes on where it was: what is done is kept in OUT.unfinished.
    """
    with sharing(mpi, threads) as ranks:
        silent = quiet or json or not ranks.first
        files = {"dialect": dialect, "profile": profile, "threads": None if ranks.comm.size > 1 else threads, "quiet": silent}
        net = ranks.together(lambda: common.load_network(cfg, weights, **files))  # type: ignore[arg-type]
        how = resize.value if resize else net.default_resize
        data = ranks.together(lambda: PictureBatches(net, find_pictures(pictures), batch, how, skip))
        unfinished = output.with_name(f"{output.name}.unfinished")
        with common.late_progress("calibrating", silent, of_bytes=False) as tell:
            options = {"sequential": sequential, "comm": ranks.comm, "progress": tell, "resume": unfinished}
            found = net.calibrate(data, **options, data=data.about())  # type: ignore[arg-type]
        ranks.together(lambda: net.save(output) if ranks.first else None)
        skipped = skipped_anywhere(ranks, data)
        if not ranks.first:
            return
        if not quiet:
            common.warn(skipped)
        if json:
            common.print_json(found.to_json() | {"file": str(output), "skipped": list(skipped)})
        else:
            _print(common.console(), found, output)


def skipped_anywhere(ranks: Ranks, data: PictureBatches) -> tuple[str, ...]:
    """What each process said of the pictures that it left out."""
    return tuple(sorted(line for text in ranks.texts("\n".join(data.skipped.values())) for line in text.splitlines()))


def _print(out: Console, found: Calibration, output: Path) -> None:
    right = ("layer", "channels", "values", "mean off by", "old / new variance")
    made = common.table("layer", "type", "channels", "values", "mean off by", "old / new variance", right=right)
    for layer in found.worst_first[:_ROWS]:
        ratio, off = layer.variance_ratio, layer.mean_drift
        span = f"{ratio.min():.3g} to {ratio.max():.3g}"
        made.add_row(str(layer.layer), layer.type, str(len(layer.mean)), f"{layer.n:,}", f"{off.max():.3g} dev.", span)
    out.print(made)
    left = len(found.layers) - _ROWS
    if left > 0:
        out.print(f"… and {left} more layers that changed less; --json has all channels")
    how = "layer after layer" if found.sequential else "in one pass"
    out.print(f"calibrated {len(found.layers)} batchnorms {how} over {found.images:,} pictures in {found.units:,} batches")
    out.print(f"written: {output}", markup=False)
