"""`pydarknetbn detect`: the objects in pictures."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from ..boxes import Detections
from ..errors import ImageError
from ..image import load_image
from ..loading import load_names
from . import common

__all__ = ["detect", "print_detections"]


class Resize(str, Enum):
    """How a picture fits the network's input."""

    LETTERBOX = "letterbox"
    STRETCH = "stretch"


PicturesArgument = Annotated[list[Path], typer.Argument(metavar="PICTURE...", help="JPEG, PNG and others.", show_default=False)]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT", help="Draw the boxes: a picture, or a folder for several.")
]
NamesOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Names of the classes, one a line.")]
ThreshOption = Annotated[float, typer.Option(min=0, max=1, help="Lower limit of a box's probability.")]
HierOption = Annotated[float, typer.Option(min=0, max=1, help="Lower limit along a branch, where classes are a tree.")]
NmsOption = Annotated[float, typer.Option(min=0, max=1, help="Overlap over which the less probable box goes.")]
ResizeOption = Annotated[Resize | None, typer.Option(help="How a picture fits the input. Default: as the dialect's detector.")]


def detect(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    pictures: PicturesArgument,
    output: OutOption = None,
    names: NamesOption = None,
    thresh: ThreshOption = 0.25,
    hier: HierOption = 0.5,
    nms: NmsOption = 0.45,
    resize: ResizeOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
    device: common.DeviceOption = "cpu",
) -> None:
    """Find the objects in pictures, as the dialect's own detector does."""
    net = common.load_network(cfg, weights, dialect=dialect, profile=profile, threads=threads, quiet=quiet or json, device=device)
    labels = load_names(names) if names else net.names
    targets = _targets(output, pictures)
    _refuse_to_overwrite(pictures, targets)
    how = resize.value if resize else net.default_resize
    found: list[dict[str, Any]] = []
    out = common.console()
    work = list(zip(pictures, targets, strict=True))
    for picture, target in common.progress(work, "pictures", quiet=quiet or json or len(work) == 1):
        pixels = load_image(picture)
        detections = cast(Detections, net.detect(pixels, thresh=thresh, hier=hier, nms=nms, resize=how, names=labels))
        if target:
            _save(detections, picture, target)
        found.append({"picture": str(picture), "resize": how, "detections": detections.to_json()})
        if not json:
            print_detections(out, str(picture), detections, target)
    if json:
        common.print_json(found)


def _targets(output: Path | None, pictures: list[Path]) -> list[Path | None]:
    if output is None:
        return [None] * len(pictures)
    if len(pictures) == 1 and not output.is_dir():
        return [output if output.suffix else output.with_suffix(".png")]
    if output.exists() and not output.is_dir():
        raise ImageError(f"{output}: expected a folder for {len(pictures)} pictures, and this is a file")
    output.mkdir(parents=True, exist_ok=True)
    return [output / f"{stem}.png" for stem in _distinct([picture.stem for picture in pictures])]


def _distinct(stems: list[str]) -> list[str]:
    """Equal ones numbered: dog, dog-2."""
    seen: dict[str, int] = {}
    result = []
    for stem in stems:
        seen[stem] = seen.get(stem, 0) + 1
        result.append(stem if seen[stem] == 1 else f"{stem}-{seen[stem]}")
    return result


def _refuse_to_overwrite(pictures: list[Path], targets: list[Path | None]) -> None:
    originals = {picture.resolve() for picture in pictures}
    for target in targets:
        if target and target.resolve() in originals:
            raise ImageError(f"{target}: is the picture itself; name another file for the drawing")


def _save(detections: Detections, picture: Path, target: Path) -> None:
    try:
        detections.draw(picture).save(target)
    except (OSError, ValueError) as reason:  # ValueError: an extension that Pillow does not write
        raise ImageError(f"{target}: cannot be written as a picture: {reason}") from reason


def print_detections(out: Console, picture: str, detections: Detections, target: Path | None) -> None:
    """The table of the boxes of one picture, the most probable first."""
    count = len(detections)
    told = f", drawn in {target}" if target else ""
    out.print(f"{picture}: {count} object{'s' if count != 1 else ''}{told}", markup=False)
    if not count:
        return
    made = common.table("class", "probability", "x", "y", "w", "h", right=("probability", "x", "y", "w", "h"))
    for row in sorted(detections.to_json(), key=lambda row: -row["prob"]):
        box = [f"{row['box'][side]:.0f}" for side in "xywh"]
        made.add_row(row["name"] or f"class {row['class_id']}", f"{row['prob']:.1%}", *box)
    out.print(made)
