"""What `check` found out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..weights import Header

__all__ = ["Forecast", "Place", "Report"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies in the file.

    Args:
        layer, type, line: of the layer in the cfg.
        name: Darknet's name of the array.
        shape: of the array.
        offset, nbytes: in the file.
        held: whether the file holds all of it.
    """

    layer: int
    type: str
    line: int
    name: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    held: Literal["whole", "part", "missing"]

    def __str__(self) -> str:
        return f"layer {self.layer} [{self.type}] {self.name} (line {self.line}, byte {self.offset:,})"


@dataclass(frozen=True, slots=True)
class Forecast:
    """How a batchnorm's inference would change under other epsilons.

    Args:
        layer, type: that it belongs to.
        channels: how many it has.
        shares: share of the channels whose factor would be off by more than a thousandth, by convention.
    """

    layer: int
    type: str
    channels: int
    shares: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A `.weights` file held against its `.cfg`.

    Args:
        cfg, weights: how messages call them.
        findings: sentences on what is wrong, the first one first.
        notes: sentences on what is worth knowing.
        header: as stored; None where the file has none.
        dialect, profile, why: what the files were taken for.
        nbytes: of the file.
        used, left_over, missing: bytes that the network takes of it, that it does not, and that are not there.
        places: every array in file order.
        forecast: of every batchnorm whose variances the file holds.
    """

    cfg: str
    weights: str
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    header: Header | None
    dialect: str
    profile: str
    why: tuple[str, ...]
    nbytes: int
    used: int
    left_over: int
    missing: int
    places: tuple[Place, ...]
    forecast: tuple[Forecast, ...]

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def exit_code(self) -> int:
        """0 good, 1 a finding."""
        return 0 if self.good else 1

    @property
    def verdict(self) -> str:
        """The first finding, or that there is none."""
        if self.findings:
            return self.findings[0]
        version = f"version {self.header.version}" if self.header else "no version"
        return f"{self.weights}: fits {self.cfg}: all {self.nbytes:,} bytes are used, {version}, every value is plausible"

    def to_json(self) -> dict[str, Any]:
        """All of it, for `json.dumps`."""
        header = asdict(self.header) | {"nbytes": self.header.nbytes} if self.header else None
        return asdict(self) | {"header": header, "good": self.good, "verdict": self.verdict}
