"""One place where a fork crashes or reads what it should not; all of them stand in `faults.py`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One replaced fault.

    Args:
        dialects: the forks concerned.
        where: file and function.
        there: what happens in the fork.
        here: what happens in this package.
        golden: patterns of the recorded files that hold the fault, or lack the case for it.
    """

    dialects: tuple[str, ...]
    where: str
    there: str
    here: str
    golden: tuple[str, ...] = ()
