"""`pydarknetbn fold`: batchnorms into the layers before them, and what that changes."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..files import write_atomically
from ..folding import FoldReport
from ..folding import fold as fold_network
from ..network import Network
from . import common, inputs

__all__ = ["fold"]


class Epsilon(str, Enum):
    """Whose root the fold takes."""

    FORWARD = "forward"
    FORK = "fork"


WeightsArgument = Annotated[Path, typer.Argument(metavar="WEIGHTS", help="Its .weights file.", show_default=False)]
OutOption = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the folded .cfg and .weights.")]
EpsilonOption = Annotated[Epsilon, typer.Option(help="The root of the profile's own inference, or of the fork's own fold.")]


def fold(
    cfg: common.CfgArgument,
    weights: WeightsArgument,
    output: OutOption = Path(),
    pictures: inputs.InputOption = None,
    epsilon: EpsilonOption = Epsilon.FORWARD,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Fold batchnorms into weights; exit code 1 where a layer changes by more than rounding."""
    net = common.load_network(cfg, weights, dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
    folded, report = fold_network(net, epsilon=epsilon.value, check=inputs.batch_of(net, pictures))
    targets = _write(folded, output, cfg.stem)
    if json:
        common.print_json(document(report) | {"files": [str(target) for target in targets]})
    else:
        _print(common.console(), report, targets)
    if report.over_budget:
        raise typer.Exit(1)


def _write(folded: Network, output: Path, stem: str) -> tuple[Path, Path]:
    output.mkdir(parents=True, exist_ok=True)
    cfg, weights = output / f"{stem}-folded.cfg", output / f"{stem}-folded.weights"
    folded.save(weights)
    write_atomically(cfg, lambda stream: stream.write(folded.origin.cfg.text.encode()))
    return cfg, weights


def document(report: FoldReport) -> dict[str, Any]:
    """The report for --json, with the shares of the range."""
    made = report.to_json()
    for row, difference in zip(made["differences"], report.differences, strict=True):
        row |= {"relative": difference.relative, "alone_relative": difference.alone_relative}
    return made | {"within_budget": not report.over_budget}


def _print(out: Console, report: FoldReport, targets: tuple[Path, Path]) -> None:
    right = ("layer", "largest difference", "of its range", "alone")
    made = common.table("layer", "type", "largest difference", "of its range", "alone", "", right=right)
    taken = {layer.index: layer for layer in report.folded}
    for difference in report.differences:
        layer = taken.get(difference.index)
        note = "normalised" if difference.index in report.normalized else ""
        if layer is not None:
            also = f", took up {', '.join(str(index) for index in layer.absorbed)}" if layer.absorbed else ""
            channel = f"channel {layer.deviating_channel} of variance {layer.its_variance:.3g}"
            apart = f", {channel} is {layer.deviation:.1e} from the inference"
            note = f"folded{also}{apart if layer.deviation else ''}"
        numbers = (f"{difference.largest:.1e}", f"{difference.relative:.1e}", f"{difference.alone_relative:.1e}")
        made.add_row(str(difference.index), difference.type, *numbers, note)
    out.print(made)
    for left in report.left:
        out.print(f"left: layer {left.index} \\[{left.type}]: {left.reason}")
    for note in report.notes:
        out.print(f"note: {note}", markup=False)
    over = report.over_budget
    verdict = f"layer {over[0].index} and {len(over) - 1} more are over it" if over else "every layer is within it"
    out.print(
        f"folded {len(report.folded)} layers; on equal input rounding may change {report.budget:.0e} of a layer's range: {verdict}"
    )
    out.print(f"written: {targets[0]}, {targets[1]}", markup=False)
