"""`pydarknetbn cut`: the first layers of a .weights file as a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import WeightsError
from . import common

__all__ = ["cut"]

LayersArgument = Annotated[int, typer.Argument(metavar="N", help="The layers below this number are kept.", show_default=False)]
OutOption = Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The file to write.", show_default=False)]


def cut(
    cfg: common.CfgArgument,
    weights: common.WeightsArgument,
    n: LayersArgument,
    output: OutOption,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
) -> None:
    """Write the partial .weights file of the layers below N, such as a backbone to start a training from."""
    net = common.load_network(cfg, weights, dialect=dialect, profile=None, threads=None, quiet=quiet or json)
    if not 1 <= n <= len(net.layers):
        raise ValueError(f"{cfg}: has {len(net.layers)} layers, expected N from 1 to {len(net.layers)}, got {n}")
    if output.exists() and output.samefile(weights):
        raise WeightsError(f"{output}: is the file itself that is cut; name another one")
    net.save(output, upto=n)
    size = output.stat().st_size
    if json:
        common.print_json({"file": str(output), "layers": n, "bytes": size})
    elif not quiet:
        kept = "layer 0" if n == 1 else f"layers 0 to {n - 1}"
        common.console().print(f"{output}: {kept}, {size:,} bytes; load it with upto={n}", markup=False, soft_wrap=True)
