"""`pydarknetbn check`: a .weights file held against its .cfg."""

from __future__ import annotations

import typer
from rich.console import Console

from ..checking import Report
from ..checking import check as run_check
from . import common

__all__ = ["check"]


def check(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
) -> None:
    """Tell what a .weights file is, whether it fits its .cfg, and whether its values are a trained network's."""
    with common.late_progress("checking", quiet or json) as progress:
        report = run_check(cfg, weights, dialect=dialect, progress=progress)
    if json:
        common.print_json(report.to_json())
    else:
        _print(report, quiet)
    raise typer.Exit(report.exit_code)


def _print(report: Report, quiet: bool) -> None:
    out = common.console()
    if not quiet:
        if report.header:
            _print_tables(report, out)
        for note in report.notes:
            out.print(f"note: {note}", markup=False, soft_wrap=True)
    if report.header:
        header = report.header
        out.print(
            f"header: version {header.version}, {header.nbytes} bytes, {header.seen:,} images seen; "
            f"{report.used:,} bytes used, {report.left_over:,} left over, {report.missing:,} missing; {report.why[0]}",
            markup=False,
            soft_wrap=True,
        )
    for finding in report.findings or (report.verdict,):
        out.print(finding, markup=False, soft_wrap=True)


def _print_tables(report: Report, out: Console) -> None:
    out.print(_places(report))
    if report.forecast:
        out.print("\nchannels that another epsilon would change by more than 0.1 %, of all layers where there are any:")
        out.print(_forecast(report))
    out.print()


def _places(report: Report) -> common.Table:
    made = common.table("layer", "type", "array", "shape", "offset", "bytes", "", right=("layer", "offset", "bytes"))
    before = -1
    for place in report.places:
        first = place.layer != before
        before = place.layer
        made.add_row(
            str(place.layer) if first else "",
            place.type if first else "",
            place.name,
            " x ".join(str(size) for size in place.shape),
            f"{place.offset:,}",
            f"{place.nbytes:,}",
            "" if place.held == "whole" else place.held,
        )
    return made


def _forecast(report: Report) -> common.Table:
    conventions = list(report.forecast[0].shares)
    made = common.table("layer", "type", "channels", *conventions, right=("layer", "channels", *conventions))
    for forecast in report.forecast:
        if not any(forecast.shares.values()):
            continue
        shares = [f"{share:.1%}" if share else "" for share in forecast.shares.values()]
        made.add_row(str(forecast.layer), forecast.type, str(forecast.channels), *shares)
    return made
