"""`pydarknetbn compare`: where and why another program computes something else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..doctor.comparing import compare as run_compare
from ..doctor.results import Comparison
from ..image import load_image
from . import common, inputs
from .compare_table import print_comparison
from .other_side import ACCEPTED, other_side

__all__ = ["compare"]

SidesArgument = Annotated[
    list[str],
    typer.Argument(metavar="CFG WEIGHTS OTHER", help=f"OTHER: {ACCEPTED}. With --golden: OTHER alone.", show_default=False),
]
InputOption = Annotated[
    Path | None,
    typer.Option("--input", metavar="PICTURE|NPZ", help="What both sides are run on. Default: numbers from a seed."),
]
OtherInputOption = Annotated[
    Path | None, typer.Option(metavar="NPZ", help="What the other side is run on, as it takes it. Default: the same.")
]
NamesOption = Annotated[
    Path | None,
    typer.Option(metavar="MAP", help="Lines `12 = their name`, or 12.sums, 12.normal; or a .json of these."),
]
HtmlOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one page with charts.")]
ReproOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write the smallest files that still differ into a new folder.")
]
GoldenOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Compare with a bundle of `dump --golden` instead.")]
GoOnOption = Annotated[bool, typer.Option("--fix-and-go-on", help="After the first cause look for further ones.")]
TrainOption = Annotated[
    bool, typer.Option("--train", help="Compare a step of training instead: statistics, rolling arrays, gradients of a module.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Show every row of the table.")]


def compare(
    sides: SidesArgument,
    source: InputOption = None,
    other_input: OtherInputOption = None,
    names: NamesOption = None,
    html: HtmlOption = None,
    repro: ReproOption = None,
    golden: GoldenOption = None,
    fix_and_go_on: GoOnOption = False,
    train: TrainOption = False,
    every: AllOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
    device: common.DeviceOption = "cpu",
) -> None:
    """Tell why a port gives other values: the cause, the number that proves it, and the fix.

    Exit code 0: nothing but rounding; 1: a difference.
    """
    if len(sides) != (1 if golden else 3):
        wanted = "OTHER alone beside --golden" if golden else "CFG, WEIGHTS and OTHER"
        raise typer.BadParameter(f"expected {wanted}, got {len(sides)} names")
    _check_target(html)
    _check_together(golden, repro, train=train, device=device)
    given = inputs.array_of(other_input) if other_input else None
    if golden:
        found = _with_golden(golden, sides[0], names, given)
    else:
        cfg, weights = Path(sides[0]), Path(sides[1])
        files: dict[str, Any] = {"dialect": dialect, "profile": profile, "threads": threads, "quiet": quiet or json}
        net = common.load_network(cfg, weights, **files, device=device)
        other = other_side(sides[2], cfg, weights, dialect=dialect)
        options = {"names": names, "other_input": given, "fix_and_go_on": fix_and_go_on, "train": train}
        found = _with_network(net, other, source, options, quiet or json)
    if html:
        found.to_html(html)
    if repro and not found.clean:
        found.write_repro(repro)
    _tell(found, html, json=json, quiet=quiet, every=every)


def _check_together(golden: Path | None, repro: Path | None, *, train: bool, device: str) -> None:
    """Before anything is read: options that do not go with each other."""
    if golden and device != "cpu":
        raise ValueError("--device goes with a network, and --golden has none to run; leave one out")
    if train and (golden or repro):
        raise ValueError("--train goes with neither --golden nor --repro: it compares a step of a module")
    if repro and (golden or repro.exists()):
        raise ValueError("--repro needs the network, not --golden" if golden else f"{repro}: is there already; name a new folder")


def _check_target(html: Path | None) -> None:
    """Before minutes of work: what is wrong with the page's name or folder."""
    if html and html.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{html}: expected a name that ends in .html")
    if html and not html.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {html.parent}; make it first")


def _with_network(net: Any, other: Any, source: Path | None, options: dict[str, Any], quiet: bool) -> Comparison:
    picture = source is not None and source.suffix.lower() not in (".npz", ".npy")
    x = inputs.batch_of(net, [source] if source else None)
    pixels = load_image(source) if picture and source else None
    with common.late_progress("comparing", quiet, of_bytes=False) as progress:
        return run_compare(net, other, x, picture=pixels, progress=lambda done, total, _: progress(done, total), **options)


def _with_golden(golden: Path, other: str, names: Path | None, given: Any) -> Comparison:
    from ..golden import compare_golden  # noqa: PLC0415

    return compare_golden(golden, other_side(other, None, None), names=names, other_input=given)


def _tell(found: Comparison, html: Path | None, *, json: bool, quiet: bool, every: bool) -> None:
    if json:
        common.print_json(found.to_json())
    else:
        out = common.console()
        print_comparison(out, found, quiet=quiet, every=every)
        if html and not quiet:
            out.print(f"report: {html}", markup=False, soft_wrap=True)
    raise typer.Exit(found.exit_code)
