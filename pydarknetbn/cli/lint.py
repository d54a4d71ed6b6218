"""`pydarknetbn lint`: what in a .cfg is wrong, and which fork runs it."""

from __future__ import annotations

import typer
from rich.markup import escape

from ..linting import Fork, forks
from ..linting import lint as run_lint
from . import common

__all__ = ["lint"]

_SHOWN = 5


def lint(cfg: common.CfgArgument, json: common.JsonOption = False, quiet: common.QuietOption = False) -> None:
    """Tell what in a .cfg is wrong, doubtful or read by nobody, and which fork runs it."""
    findings, table = run_lint(str(cfg)), forks(str(cfg))
    errors = [finding for finding in findings if finding.severity == "error"]
    if json:
        document = {"findings": [finding.to_json() for finding in findings], "forks": [fork.to_json() for fork in table]}
        common.print_json(document)
        raise typer.Exit(bool(errors))
    out = common.console()
    for finding in errors if quiet else findings:
        out.print(str(finding), markup=False, soft_wrap=True)
    if not quiet:
        out.print(_table(table))
    raise typer.Exit(bool(errors))


def _table(table: tuple[Fork, ...]) -> common.Table:
    made = common.table("fork", "runs it", "line", "because", right=("line",))
    for fork in table:
        rows = [(str(reason.line), reason.message) for reason in fork.reasons[:_SHOWN]] or [("", "")]
        if len(fork.reasons) > _SHOWN:
            rows.append(("", f"and {len(fork.reasons) - _SHOWN} more"))
        for number, (line, message) in enumerate(rows):
            made.add_row(fork.name if not number else "", fork.runs if not number else "", line, escape(message))
    return made
