"""The command line: one file a verb, and one place where an error becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from ..errors import DarknetError
from .plain import plain_call

__all__ = ["app", "main"]

VERBS = (
    *("demo", "info", "detect", "fold", "convert", "profiles", "check", "lint", "diff", "cut", "dump", "compare"),
    *("calibrate", "stats"),
)


def application(verbs: tuple[str, ...]) -> typer.Typer:
    """The command line with these verbs, each imported from the file of its name."""
    made = typer.Typer(name="pydarknetbn", no_args_is_help=True, pretty_exceptions_enable=False)
    told = "Darknet's numbers: networks of .cfg and .weights, computed exactly as the named fork computes them."
    made.callback(help=told, context_settings={"help_option_names": ["-h", "--help"]})(_no_options)
    for verb in verbs:
        made.command(verb)(_verb(verb))
    return made


def _no_options() -> None:
    """With a callback, a command line of one verb still asks for its name."""


def _run(verb: str, arguments: list[str]) -> None:
    call = plain_call(_verb(verb), arguments) if verb in VERBS else None
    if not call:
        application((verb,) if verb in VERBS else VERBS)()
        return
    try:
        call()
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except typer.BadParameter as wrong:
        sys.stderr.write(f"pydarknetbn: {wrong.message}\n")
        sys.exit(2)
    except BrokenPipeError:  # what reads the output has read enough; Python's own end would write the rest once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _verb(name: str) -> Callable[..., None]:
    found: Callable[..., None] = getattr(import_module(f"{__name__}.{name}"), name)
    return found


def __getattr__(name: str) -> Any:
    if name == "app":
        return application(VERBS)
    raise AttributeError(f"module {__name__} has no {name}")


def main() -> None:
    """Runs the command line; exit code 0 good, 1 a finding, 2 bad use."""
    try:
        _run(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
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
