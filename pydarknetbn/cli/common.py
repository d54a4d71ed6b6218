"""What the verbs share: options, loading, and output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from .._native import set_num_threads
from ..dialect import DIALECTS
from ..loading import load, load_structure
from ..network import Network

__all__ = [
    "CfgArgument",
    "DeviceOption",
    "DialectOption",
    "JsonOption",
    "ProfileOption",
    "QuietOption",
    "Table",
    "ThreadsOption",
    "WeightsArgument",
    "console",
    "late_progress",
    "load_network",
    "print_json",
    "progress",
    "table",
    "warn",
]

CfgArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="CFG", help="The network's .cfg file.", show_default=False)]
WeightsArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="WEIGHTS", help="Its .weights file.", show_default=False)]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
QuietOption: TypeAlias = Annotated[bool, typer.Option("-q", "--quiet", help="No warnings and no progress.")]
DialectOption: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help=f"What the files mean: auto, {', '.join(DIALECTS)}.")]
ProfileOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="How floats are computed, see `pydarknetbn profiles`. Default: the dialect's.")
]
ThreadsOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", help="Threads to use; the result is the same. Default: all processors.")
]

DeviceOption: TypeAlias = Annotated[str, typer.Option(metavar="DEVICE", help="Where the network runs: cpu, cuda or cuda:N.")]

_NARROW = 100
Item = TypeVar("Item")


def console() -> Console:
    """Where tables go. Into a pipe or file nothing is cut to 80 columns."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=False, emoji=False)


def table(*columns: str, right: tuple[str, ...] = (), gap: int = 2) -> Table:
    """An empty table with these columns, those in `right` aligned to the right, and a gap between them."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return made


def is_narrow(out: Console) -> bool:
    """Whether only what is essential fits."""
    return out.width < _NARROW


def load_network(
    cfg: Path,
    weights: Path | None,
    *,
    dialect: str,
    profile: str | None,
    threads: int | None,
    quiet: bool,
    initial: bool = True,
    device: str = "cpu",
) -> Network:
    """The network of two files, its warnings told on standard error; initial: without weights it has its initial values."""
    if threads is not None:
        set_num_threads(threads)
    if weights is None and not initial:
        net = load_structure(cfg, dialect=dialect, profile=profile).to(device)
    else:
        net = load(cfg, weights, dialect=dialect, profile=profile, device=device)
    if not quiet:
        warn(net.warnings)
    return net


def warn(warnings: tuple[str, ...]) -> None:
    """One line each on standard error."""
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")


def progress(items: Sequence[Item], description: str, *, quiet: bool) -> Iterator[Item]:
    """The items, with a bar on standard error where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield from items
    else:
        from rich.progress import track  # noqa: PLC0415 takes as long to import as all of rich that tables need

        yield from track(items, description=description, console=Console(stderr=True), transient=True)


@contextmanager
def late_progress(description: str, quiet: bool, *, of_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A function to call with bytes or steps done and in all; what takes over a second gets a bar on standard error."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import DownloadColumn, MofNCompleteColumn, Progress  # noqa: PLC0415

    begin = time.monotonic()
    counted = (DownloadColumn() if of_bytes else MofNCompleteColumn(),)
    bar = Progress(*Progress.get_default_columns(), *counted, console=Console(stderr=True), transient=True)
    task = bar.add_task(description)

    def tell(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - begin > 1:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def print_json(document: Any) -> None:
    """One document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
