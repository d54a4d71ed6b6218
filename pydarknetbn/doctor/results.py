"""What a comparison found, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .teacher import Segment

__all__ = ["Cause", "Closeup", "Comparison", "Errors", "Row", "SmallVariance"]


@dataclass(frozen=True, slots=True)
class Errors:
    """How far two values of equal shape are apart.

    Args:
        largest: the largest absolute difference, as a share of the reference's range; infinite where one has a number and the
            other none.
        p99: the same of the 99th percentile of the absolute differences.
        cosine: of the angle between the two.
        sqnr: signal to noise in dB; infinite where they are equal.
        flips: how many values have another sign, zeros not counted.
        channel: where the largest difference is.
        nan: place (image, channel, row, column) of the other side's first NaN; None without any.
    """

    largest: float
    p99: float
    cosine: float
    sqnr: float
    flips: int
    channel: int
    nan: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A value of our network and what the other side has for it.

    Args:
        layer, type, line: of the network.
        stage: "sums" before the batchnorm, "normal" after it, "post" the layer's output, "boxes" of a [yolo]; "input" the network's
            input, as layer -1.
        tensor: the other side's name; "" where it shows no such value.
        match: how the two were put together, such as "by name", "by order and shape", "by content"; with the layout where it is
            another, and "(uncertain)".
        certain: whether the match is.
        free: each side ran on its own.
        alone: this side ran on the other's values right before; None where there is no difference in that to `free`.
        noise: what rounding alone is expected to make of `alone.largest`.
        budget: up to where `alone.largest` counts as rounding.
        bad: it is over it.
        cause: number in `Comparison.causes` of what explains it; None.
        multiple: the largest difference of `alone` as a multiple of the rounding noise of its channel.
    """

    layer: int
    type: str
    line: int
    stage: str
    tensor: str
    match: str
    certain: bool
    free: Errors | None
    alone: Errors | None
    noise: float
    budget: float
    bad: bool
    cause: int | None = None
    multiple: float = 0.0

    @property
    def amplification(self) -> float:
        """How many times as large the difference is when earlier ones come through; NaN where one is not known."""
        if self.free is None or self.alone is None or not self.alone.largest:
            return float("nan")
        return self.free.largest / self.alone.largest


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the other side computes something else.

    Args:
        kind: such as "batchnorm.epsilon"; tells what belongs together.
        words: the cause as a sentence, with numbers: what the port does and what Darknet does.
        fix: what to change, in the other framework's words.
        evidence: the number that proves it, as a sentence.
        before, after: the difference as multiples of the rounding noise, as it is and with the cause applied to our side.
        layers: numbers of the layers that it explains.
        values: what was recovered, such as {"epsilon": 0.001}.
        alternatives: words of other causes that explain the values as well.
    """

    kind: str
    words: str
    fix: str
    evidence: str
    before: float
    after: float
    layers: tuple[int, ...]
    values: Mapping[str, float | int | str] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closeup:
    """The first bad value, looked at.

    Args:
        row: its number in `Comparison.rows`.
        error: (channels, pixels), the absolute difference on equal input as a share of the range; where there are more than some
            hundred of either, the largest of each group of neighbours.
        channel_step, pixel_step: how many channels and pixels each entry of `error` stands for.
        shape: (c, h, w) of the value.
        ours, theirs: up to some thousand values of the same places, for a scatter.
    """

    row: int
    error: npt.NDArray[np.float32] = field(repr=False)
    channel_step: int
    pixel_step: int
    shape: tuple[int, int, int]
    ours: npt.NDArray[np.float32] = field(repr=False)
    theirs: npt.NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SmallVariance:
    """A channel whose rolling variance is so small that the epsilon decides what it is multiplied by.

    Args:
        layer, type, line: of the network.
        array: Darknet's name of the variances.
        channel: in it.
        variance: of the channel.
        gains: 1 / root by convention, such as {"√v+1e-06": 999.001}.
    """

    layer: int
    type: str
    line: int
    array: str
    channel: int
    variance: float
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A network of this package and another program, compared.

    Args:
        name: of the cfg.
        profile: that computed our side, `evidence` what that is worth.
        evidence_of_profile: "recorded", "run", "source" or "own".
        source: what computed the other side.
        verdict: one sentence: clean, or the cause, the number that proves it, and the fix; or where the first difference is.
        causes: what was found, the first one in the order of the network first. () for a clean port, or an unknown cause.
        rows: one for each value that the two sides share, in order; the input first, where it is known.
        unmatched: names of the other side's values that were not put to any of ours.
        closeup: of the first bad value.
        notes: sentences on what is worth knowing and is no fault.
        clean: nothing is over its budget.
        small_variances: every channel of ours with a rolling variance below 1e-3.
        first: where the first difference is, for `write_repro`.
    """

    name: str
    profile: str
    evidence_of_profile: str
    source: str
    verdict: str
    causes: tuple[Cause, ...]
    rows: tuple[Row, ...]
    unmatched: tuple[str, ...]
    closeup: Closeup | None
    notes: tuple[str, ...]
    clean: bool
    small_variances: tuple[SmallVariance, ...] = ()
    first: Segment | None = field(default=None, repr=False, compare=False)

    @property
    def cause(self) -> Cause | None:
        """The first cause."""
        return self.causes[0] if self.causes else None

    @property
    def fix(self) -> str:
        """What to change, "" where nothing is known."""
        return self.causes[0].fix if self.causes else ""

    @property
    def evidence(self) -> str:
        """The number that proves the first cause, "" without one."""
        return self.causes[0].evidence if self.causes else ""

    @property
    def layers(self) -> tuple[Row, ...]:
        """The rows of layers' outputs alone."""
        return tuple(row for row in self.rows if row.stage == "post")

    @property
    def exit_code(self) -> int:
        """0 where the port is clean, else 1."""
        return 0 if self.clean else 1

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`; numbers that JSON has no word for are None or text."""
        made = {name: getattr(self, name) for name in ("name", "profile", "evidence_of_profile", "source", "verdict", "clean")}
        rows = [asdict(row) | {"amplification": row.amplification} for row in self.rows]
        rest = {"causes": [asdict(cause) for cause in self.causes], "unmatched": list(self.unmatched), "notes": list(self.notes)}
        small = [asdict(each) for each in self.small_variances]
        plain: dict[str, Any] = _plain(made | rest | {"small_variances": small, "rows": rows})
        return plain

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report, one file that needs nothing else.

        Raises:
            MissingExtraError: plotly or jinja2 is not installed.
        """
        from .report import write_html  # noqa: PLC0415

        write_html(self, path)

    def write_repro(self, directory: str | os.PathLike[str]) -> Path:
        """Writes the smallest cfg, weights, input and expected value that show the first difference into a new folder.

        Raises:
            StateError: there is no difference, or the folder is there.
            UnsupportedError: the difference is of no single layer that takes but the layer before it.
        """
        from .comparing import compare  # noqa: PLC0415
        from .repro import write_repro  # noqa: PLC0415

        return write_repro(self, self.first, directory, compare)


def _plain(value: Any) -> Any:
    """Without what JSON cannot say: an infinity becomes "inf", a NaN None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return value
