"""`check`: a `.weights` file held against its `.cfg`, with a sentence for what is wrong instead of an exception."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._native import Array
from ..building import build_layers
from ..dialect import PROFILES, Profile, profile_named
from ..errors import WeightsError
from ..layers import Layer
from ..loading import CfgSource, Decision, WeightsSource, decide, room_for
from ..options import Section
from ..weights import Header, Source, check_size, entries, open_weights, read_header
from . import values
from .report import Forecast, Place, Report
from .sizes import explanations

__all__ = ["Forecast", "Place", "Report", "check"]

Progress = Callable[[int, int], None]


def check(cfg: CfgSource, weights: WeightsSource, *, dialect: str = "auto", progress: Progress | None = None) -> Report:
    """What a `.weights` file is, whether it fits a `.cfg`, and whether its values are those of a trained network.

    Args:
        cfg: as `load` takes it.
        weights: likewise.
        dialect: likewise.
        progress: called with bytes done and bytes in all while the values are looked at.

    Returns:
        The report; whatever is wrong with the bytes of the weights is a finding in it.

    Raises:
        CfgError, UnsupportedError: the cfg makes no network.
        WeightsError: the weights cannot be opened.
        ValueError: there is no such dialect.
    """
    text = cfg.read() if hasattr(cfg, "read") else cfg
    source = open_weights(weights)
    with source.stream:
        data = source.stream.read()
    source = Source(source.name, io.BytesIO(data), len(data))
    with room_for(None):
        decision = _decision(text, source, dialect)
        profile = profile_named(decision.dialect.profile)
        layers = build_layers(decision.cfg, decision.dialect, profile).layers
    examined = _Examined(source, data, decision, profile, layers)
    examined.look(progress or (lambda *_: None))
    return examined.report()


def _decision(text: CfgSource, source: Source, dialect: str) -> Decision:
    try:
        decision = decide(text, source, dialect)  # type: ignore[arg-type]
    except WeightsError:  # the report will say it
        decision = decide(text, None, dialect)  # type: ignore[arg-type]
    source.stream.seek(0)
    return decision


@dataclass(slots=True)
class _Examined:
    source: Source
    data: bytes
    decision: Decision
    profile: Profile
    layers: Sequence[Layer]
    header: Header | None = None
    places: tuple[Place, ...] = ()
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    forecast: list[Forecast] = field(default_factory=list)

    def look(self, progress: Progress) -> None:
        """From the outside in: kind, header, size, values."""
        name, cfg = self.source.name, self.decision.cfg
        try:
            self.header = read_header(self.source, self.decision.dialect)
        except WeightsError as reason:
            self.findings.append(str(reason))
        self.places = tuple(self._lay_out(self.header.nbytes if self.header else 0))
        if self.header is None:
            return
        try:
            check_size(self.source, self.header, list(entries(self.layers)), 0, cfg.name)
        except WeightsError as reason:
            self.findings.append(str(reason))
            self.findings += [f"{name}: {sentence}" for sentence in explanations(self.layers, self.header, len(self.data))]
        if not np.frombuffer(self.data, np.uint8).any():
            self.findings.insert(0, f"{name}: is all zeros, {len(self.data):,} bytes of them; download or copy it again")
        else:
            self._look_at_values(progress)
            self._look_at_training(cfg.net)

    def _lay_out(self, offset: int) -> Iterator[Place]:
        for layer, name, array in entries(self.layers):
            end, have = offset + array.nbytes, len(self.data) if self.header else 0
            held = "whole" if end <= have else "part" if offset < have else "missing"
            yield Place(layer.index, layer.type, layer.line, name, array.shape, offset, array.nbytes, held)  # type: ignore[arg-type]
            offset = end

    def values(self, place: Place, later: int = 0) -> Array | None:
        """The floats of an array in the file, or of the same place so many floats later."""
        start, count = place.offset + 4 * later, place.nbytes // 4
        if start < 12 or start + place.nbytes > len(self.data):
            return None
        return np.frombuffer(self.data, "<f4", count, start).astype(np.float32, copy=False)

    def _look_at_values(self, progress: Progress) -> None:
        suspicious: list[tuple[Place, str]] = []
        for place in self.places:
            found = self.values(place)
            if found is None:
                continue
            progress(place.offset + place.nbytes, len(self.data))
            if reason := values.suspicion(place, found, self.profile):
                suspicious.append((place, reason))
            elif note := values.oddities(place, found):
                self.notes.append(note)
            if place.name.endswith("rolling_variance"):
                self.forecast.append(values.forecast(place, found, self.profile))
        if suspicious:
            self._tell_suspicion(suspicious)
        if initial := list(values.initial(self.places, self.values)):
            told = ", ".join(str(place.layer) for place in initial[:5]) + (" …" if len(initial) > 5 else "")
            self.findings.append(
                f"{self.source.name}: the rolling arrays of {len(initial)} layers (layer {told}) are as before any training; "
                "the statistics were never stored, or are another framework's start"
            )

    def _tell_suspicion(self, suspicious: list[tuple[Place, str]]) -> None:
        (first, reason), others = suspicious[0], len(suspicious) - 1
        more = f"; {others} arrays after it look wrong too" if others else ""
        self.findings.append(f"{self.source.name}: the first array that looks wrong is {first}: {reason}{more}")
        later = [place for place in self.places if place.offset >= first.offset and self.values(place) is not None]
        by = values.shift(later, self.values)
        if by is not None:
            where = f"{abs(by)} float{'s' if abs(by) > 1 else ''} {'later' if by > 0 else 'earlier'}"
            self.findings.append(
                f"{self.source.name}: read {where} from there on, every variance would be positive; "
                "the header or an array before has another size than the cfg says"
            )

    def _look_at_training(self, net: Section) -> None:
        if not self.forecast or self.header is None:
            return
        batch, subdivisions = (net.integer(key, 1, minimum=1) for key in ("batch", "subdivisions"))
        images, seen = max(batch // subdivisions, 1), self.header.seen
        programs = (profile for profile in PROFILES.values() if profile.evidence == "recorded")  # frameworks write no such files
        keep = max(rule.rolling_keep for profile in programs for rule in profile.batchnorm.values())
        left = keep ** (max(seen, 0) / images)
        self.notes.append(
            f"{self.source.name}: {seen:,} images seen leave {left:.2%} of the start in the rolling arrays, assuming {keep:g} kept "
            f"at each update, batch/subdivisions = {batch}/{subdivisions} = {images} images for one, and a training from the start"
        )

    def report(self) -> Report:
        used = sum(place.nbytes for place in self.places if place.held == "whole")
        header = self.header.nbytes if self.header else 0
        end = header + sum(place.nbytes for place in self.places)
        return Report(
            cfg=self.decision.cfg.name,
            weights=self.source.name,
            findings=tuple(self.findings),
            notes=tuple(self.notes),
            header=self.header,
            dialect=self.decision.dialect.name,
            profile=self.profile.name,
            why=(self.decision.why,),
            nbytes=len(self.data),
            used=header + used,
            left_over=max(len(self.data) - end, 0),
            missing=max(end - len(self.data), 0),
            places=self.places,
            forecast=tuple(self.forecast),
        )
