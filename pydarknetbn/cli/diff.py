"""`pydarknetbn diff`: where two .weights files differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..differing import diff as run_diff
from . import common

__all__ = ["diff"]

AArgument = Annotated[Path, typer.Argument(metavar="A", help="A .weights file.", show_default=False)]
BArgument = Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)]


def diff(
    cfg: common.CfgArgument,
    a: AArgument,
    b: BArgument,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
    dialect: common.DialectOption = "auto",
) -> None:
    """Compare two .weights files of one .cfg, layer by layer and bit by bit."""
    found = run_diff(cfg, a, b, dialect=dialect)
    if json:
        common.print_json(found.to_json())
        raise typer.Exit(found.exit_code)
    out = common.console()
    if found.arrays and not quiet:
        right = ("layer", "differ", "of", "largest", "at")
        made = common.table("layer", "type", "array", "differ", "of", "largest", "at", right=right)
        for array in found.arrays:
            counts = f"{array.differ:,}", f"{array.size:,}"
            made.add_row(str(array.layer), array.type, array.name, *counts, f"{array.largest:.3g}", str(array.at))
        out.print(made)
    out.print(found.verdict, markup=False, soft_wrap=True)
    raise typer.Exit(found.exit_code)
