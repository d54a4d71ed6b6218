"""What `lint` says, and which fork's program runs a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "Fork", "Severity"]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a cfg.

    Args:
        file, line: where, the line counted from 1.
        severity: an *error* makes no network; a *warning* is read in one of several ways or not at all; a *note* is worth knowing.
        message: one sentence.
        key: the option concerned, None for a section.
    """

    file: str
    line: int
    severity: Severity
    message: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Fork:
    """Whether a fork's program runs a file.

    Args:
        name: of the dialect.
        runs: *yes*; *differently*: an option that changes the result has no effect there; *no*: it refuses the file, crashes, or
            makes another network of it.
        reasons: in the order in which the program would meet them.
    """

    name: str
    runs: Literal["yes", "differently", "no"]
    reasons: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        return {"name": self.name, "runs": self.runs, "reasons": [reason.to_json() for reason in self.reasons]}
