"""`pydarknetbn demo`: the package's own small network, from its layers to boxes on a picture and a folded copy."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer
from rich.console import Console

from .. import image
from ..boxes import Detections
from ..files import write_atomically
from ..folding import FoldReport, fold
from ..loading import load_names
from ..network import Network
from . import common, detect, info

__all__ = ["demo"]

OutOption = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files that it writes.")]


def demo(
    output: OutOption = Path(),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Show all of it on a network that ships inside the package."""
    cfg, weights, names, picture = (_shipped(f"shapes.{ending}") for ending in ("cfg", "weights", "names", "png"))
    net = common.load_network(cfg, weights, dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
    net.names = load_names(names)
    output.mkdir(parents=True, exist_ok=True)
    found = cast(Detections, net.detect(picture))
    pixels = image.fit(image.load_image(picture), net.w, net.h, how=net.default_resize)[np.newaxis]
    folded, report = fold(net, check=pixels)
    targets = _write(output, found, picture, folded, quiet or json)
    if json:
        common.print_json(_document(found, report, targets))
        return
    out = common.console()
    out.print(info.layer_table(net, narrow=True))
    out.print()
    detect.print_detections(out, picture.name, found, None)
    out.print()
    _print_fold(out, report)
    out.print("\nwritten: " + ", ".join(str(target) for target in targets), markup=False)


def _shipped(name: str) -> Path:
    return Path(str(files("pydarknetbn") / "data" / name))


def _write(output: Path, found: Detections, picture: Path, folded: Network, quiet: bool) -> tuple[Path, ...]:
    boxes, cfg, weights = (output / f"demo{ending}" for ending in (".png", "-folded.cfg", "-folded.weights"))
    jobs = {
        boxes: lambda: found.draw(picture).save(boxes),
        cfg: lambda: write_atomically(cfg, lambda stream: stream.write(folded.origin.cfg.text.encode())),
        weights: lambda: folded.save(weights),
    }
    for target in common.progress(list(jobs), "writing", quiet=quiet):
        jobs[target]()
    return boxes, cfg, weights


def _print_fold(out: Console, report: FoldReport) -> None:
    made = common.table(
        "layer", "type", "largest difference", "of its range", right=("layer", "largest difference", "of its range")
    )
    for difference in report.differences:
        made.add_row(str(difference.index), difference.type, f"{difference.largest:.1e}", f"{difference.relative:.1e}")
    out.print(f"folded {len(report.folded)} batchnorms into their convolutions; the same picture before and after:")
    out.print(made)


def _document(found: Detections, report: FoldReport, targets: tuple[Path, ...]) -> dict[str, object]:
    return {"detections": found.to_json(), "fold": report.to_json(), "files": [str(target) for target in targets]}
