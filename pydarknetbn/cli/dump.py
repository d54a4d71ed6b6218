"""`pydarknetbn dump`: the values of all layers, or a golden bundle for a port's tests."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..dumping import STAGES, write_dump
from ..dumping import dump as run_dump
from ..golden.about import about
from ..golden.given import Given, given_to
from ..network import Network
from . import common, inputs

__all__ = ["dump"]


class Resize(str, Enum):
    """How a picture is brought to the network's size."""

    LETTERBOX = "letterbox"
    STRETCH = "stretch"


InputArgument = Annotated[str, typer.Argument(metavar="INPUT", help="A picture, an .npz, or seed:N.", show_default=False)]
OutOption = Annotated[Path, typer.Option("-o", "--output", metavar="OUT.npz", help="The file to write.", show_default=False)]
GoldenOption = Annotated[bool, typer.Option("--golden", help="Samples, moments and hashes only, in less than 1 MB.")]
StagesOption = Annotated[
    str | None, typer.Option(metavar="LIST", help=f"Of {','.join(STAGES)}. Default: input,post; with --golden post,boxes.")
]
ResizeOption = Annotated[Resize | None, typer.Option(help="Of a picture. Default: the dialect's own way.")]

_DEFAULT = {False: "input,post", True: "post,boxes"}


def dump(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    source: InputArgument,
    output: OutOption,
    golden: GoldenOption = False,
    stages: StagesOption = None,
    resize: ResizeOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
    profile: common.ProfileOption = None,
    threads: common.ThreadsOption = None,
) -> None:
    """Write every layer's values into an .npz, or with --golden a bundle that a port is tested with, without Darknet or weights."""
    if output.suffix != ".npz":
        raise ValueError(f"{output}: expected a name that ends in .npz")
    net = common.load_network(cfg, weights, dialect=dialect, profile=profile, threads=threads, quiet=quiet or json)
    given = _given(net, source, resize.value if resize else None)
    chosen = [stage.strip() for stage in (stages if stages is not None else _DEFAULT[golden]).split(",")]
    names = _write(net, given, output, chosen, golden, quiet or json)
    told = about(net, given)
    size = output.stat().st_size
    if json:
        common.print_json({"file": str(output), "golden": golden, "arrays": names, "bytes": size} | told)
    elif not quiet:
        what = "golden bundle of" if golden else ""
        out = common.console()
        out.print(f"{output}: {what} {len(names)} arrays, {size:,} bytes".replace(":  ", ": "), markup=False, soft_wrap=True)
        out.print(f"input: {told['input']}", markup=False, soft_wrap=True)
        out.print(f"numbers: {told['formula']}", markup=False, soft_wrap=True)


def _given(net: Network, source: str, resize: Any) -> Given:
    kind, colon, number = source.partition(":")
    if kind == "seed" and colon:
        if not number.isdecimal() or len(number) > 18:
            raise ValueError(f"expected seed:N with a whole number of 0 or more, got {source!r}")
        return given_to(net, int(number))
    path = Path(source)
    if path.suffix.lower() in (".npz", ".npy"):
        return given_to(net, inputs.batch_of(net, [path]))
    return given_to(net, path, resize=resize)


def _write(net: Network, given: Given, output: Path, stages: list[str], golden: bool, quiet: bool) -> list[str]:
    with common.late_progress("running", quiet, of_bytes=False) as progress:
        if not golden:
            return write_dump(net, given, output, stages=stages, progress=progress)
        made = run_dump(net, given, stages=stages, golden=True, progress=progress)
    made.save(output)
    return [step.key for step in made.steps]
