"""The command line: one file a verb, and one place where an error becomes a sentence and an exit code."""

from __future__ import annotations

import sys

import typer

from ..errors import DarknetError
from . import check, compare, convert, cut, demo, detect, diff, dump, fold, info, lint, profiles

__all__ = ["app", "main"]

app = typer.Typer(
    name="pydarknetbn",
    help="Darknet's numbers: networks of .cfg and .weights, computed exactly as the named fork computes them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("info")(info.info)
app.command("detect")(detect.detect)
app.command("fold")(fold.fold)
app.command("convert")(convert.convert)
app.command("profiles")(profiles.profiles)
app.command("check")(check.check)
app.command("lint")(lint.lint)
app.command("diff")(diff.diff)
app.command("cut")(cut.cut)
app.command("dump")(dump.dump)
app.command("compare")(compare.compare)


def main() -> None:
    """Runs the command line; exit code 0 good, 1 a finding, 2 bad use."""
    try:
        app()
    except (DarknetError, OSError, ValueError, MemoryError) as error:
        sys.stderr.write(f"pydarknetbn: {_sentence(error)}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("pydarknetbn: interrupted\n")
        sys.exit(130)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and not isinstance(error, DarknetError):
        return f"{error.filename}: {error.strerror}"
    return str(error) or "out of memory"
