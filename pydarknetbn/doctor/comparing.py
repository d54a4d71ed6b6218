"""Compares a network with another program that computes it, and names what that computes otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._native import Array, input_array
from ..network import Network
from .closeups import closeup_of
from .diagnosing import Found, diagnose, explains
from .matching import Match, Matching, match
from .measures import errors, spread
from .noise import FACTOR, UNIT, peak
from .precision import Half, half_of
from .results import Cause, Closeup, Comparison, Errors, Row
from .running import Runner
from .sizes import missing_row, padding_cause
from .small_variances import notes_on, small_variances
from .sources import trace_of
from .steps import INPUT, input_step
from .teacher import Segment, walk
from .trace import Trace
from .training import compare_training
from .verdicts import cause_of, half_cause, verdict

__all__ = ["compare"]

Progress = Callable[[int, int, str], None]


def compare(
    net: Network,
    other: Any,
    x: Array,
    *,
    names: Any = None,
    other_input: Array | None = None,
    picture: Array | None = None,
    teacher: bool = True,
    train: bool = False,
    fix_and_go_on: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Finds where another program computes something else than this network, and why.

    Every value that both sides show is compared twice: each side on its own, and this side on the other's values right before it,
    so that one fault does not hide the next. What is more than rounding is explained by hypotheses that are tried on our own layer;
    one is accepted only where nothing but rounding is left over.

    Args:
        net: computes what is right, under its profile. It stays as it is. Where it is on a device, its layers' outputs are that's,
            and a note tells whether they have the CPU's bits; the steps within layers, and ours on the other side's values, are
            the CPU's.
        other: path of an ONNX file or a ModelProto; a `torch.nn.Module`; a dict of arrays or path of an .npz; a callable; a
            Network.
        x: (batch, c, h, w), float32: our input, and the other side's.
        names: layer -> the other side's name, where they are not found by order, shape and content.
        other_input: what the other side is given instead.
        picture: (c, height, width), 0 to 1, of which x was made; then a difference of inputs is explained too.
        teacher: False takes no values of the other side for ours.
        train: a step of training is compared instead: statistics, rolling arrays and gradients of a `torch.nn.Module`.
        fix_and_go_on: look for further faults after the first.
        progress: called with steps done, their number, and what is being done.

    Returns:
        The verdict, causes, and a row for each value.

    Raises:
        ShapeError, DtypeError: x does not fit.
        UnsupportedError: train=True and another side than a `torch.nn.Module`.
        MissingExtraError: what the other side needs is not installed.
    """
    x = input_array(x, "x", ("batch", net.c, net.h, net.w))
    if train:
        net.runner.require_host("a comparison of training")
        given = x if other_input is None else input_array(other_input, "other_input", ("batch", "c", "h", "w"))
        return compare_training(net, other, given, net.arithmetic, names, progress or _silent)
    runner = Runner(net.clone(share=True), on_device=net)
    trace = trace_of(other, x, other_input=other_input)
    with np.errstate(all="ignore"):  # a wrong port's numbers may be any
        return _Doctor(runner, x, trace, names, picture, progress or _silent).compare(teacher, fix_and_go_on)


def _silent(done: int, total: int, what: str) -> None:
    pass


@dataclass(slots=True)
class _Found:
    """A cause while the network is gone through: its layers grow."""

    found: Found
    first: Segment
    layers: list[int] = field(default_factory=list)


class _Doctor:
    """One comparison."""

    def __init__(self, runner: Runner, x: Array, trace: Trace, names: Any, picture: Array | None, progress: Progress) -> None:
        self.runner, self.x, self.trace, self.picture, self.progress = runner, x, trace, picture, progress
        self.matching: Matching = match(runner, x, trace, names=names)
        self.by_step: dict[int, Match] = self.matching.by_step
        self.theirs: Mapping[int, Array] = {number: each.array for number, each in self.by_step.items() if number != INPUT}
        self.half: Half | None = half_of(self.theirs.values())
        if self.half:  # what is too large for it says nothing
            self.theirs = {number: array for number, array in self.theirs.items() if np.isfinite(array).all()}
        self.unit = self.half.unit if self.half else UNIT
        self.rows: list[Row] = []
        self.causes: list[_Found] = []
        self.closeup: Closeup | None = None
        self.first: Segment | None = None

    def compare(self, teacher: bool, go_on: bool) -> Comparison:
        """Both passes, and the verdict."""
        free = self._free()
        given = self._input(go_on)
        total = len(self.runner.steps)
        path = walk(self.runner, given, self.theirs, unit=self.unit, forced=teacher, known=INPUT in self.by_step)
        for done, each in enumerate(path):
            self.progress(total + done, 2 * total, "layer by layer")
            if isinstance(each, Segment):
                self._look_at(each, free[each.step.number], go_on)
        self.progress(2 * total, 2 * total, "done")
        return self._result(self._sizes(given))

    def _sizes(self, given: Array) -> list[Cause]:
        """What has another size on the other side; looked for where an output is not among its values."""
        missing = missing_row(self.runner, self.theirs) if self.trace.outputs else None
        if missing is None:
            return []
        left = [tensor for tensor in self.trace.tensors if tensor.name in self.matching.unmatched]
        found = padding_cause(self.runner, given, self.theirs, left)
        self.rows.append(found[0] if found else missing)
        return [found[1]] if found else []

    def _free(self) -> dict[int, Errors]:
        made = {}
        total = len(self.runner.steps)
        for step, ours in self.runner.forward(self.x):
            self.progress(step.number, 2 * total, "each side on its own")
            if step.number in self.theirs:
                made[step.number] = errors(ours, self.theirs[step.number])
        return made

    def _input(self, go_on: bool) -> Array:
        """The other side's input in our layout, after it was compared with ours."""
        matched = self.by_step.get(INPUT)
        if matched is None:
            return self.x
        step = input_step(self.runner.net)
        noise = 2 * self.unit * np.maximum(peak(self.x), np.finfo(np.float32).tiny)
        segment = Segment(self.runner, (step,), {INPUT: self.x}, matched.array, self.x, noise)
        self._look_at(segment, errors(self.x, matched.array), go_on)
        return matched.array

    def _look_at(self, segment: Segment, free: Errors, go_on: bool) -> None:
        apart = segment.multiple
        bad = not apart <= FACTOR
        cause = self._cause_of(segment, go_on) if bad else None
        note = cause is not None and self.causes[cause].found.hypotheses[-1].kind == "input.decoder"
        self.rows.append(self._row(segment, free, apart, bad and not note, cause))
        if bad and not note and self.closeup is None:
            self.closeup, self.first = closeup_of(len(self.rows) - 1, segment), segment

    def _row(self, segment: Segment, free: Errors, apart: float, bad: bool, cause: int | None) -> Row:
        step, matched = segment.step, self.by_step[segment.step.number]
        layer = self.runner.net.layers[step.layer] if step.layer >= 0 else None
        noise = float(segment.noise.max()) / spread(segment.ours)
        return Row(
            layer=step.layer,
            type=layer.type if layer else "net",
            line=layer.line if layer else self.runner.net.origin.cfg.net.line,
            stage=step.stage,
            tensor=matched.tensor,
            match=matched.how,
            certain=matched.certain,
            free=free,
            alone=errors(segment.ours, segment.theirs),
            noise=noise,
            budget=FACTOR * noise,
            bad=bad,
            cause=cause,
            multiple=apart,
        )

    def _cause_of(self, segment: Segment, go_on: bool) -> int | None:
        """Number of the cause of a difference: one that is known already, or a new one."""
        for number, known in enumerate(self.causes):
            if explains(segment, known.found.hypotheses, picture=self.picture) or self._alike(segment, known):
                known.layers.append(segment.step.layer)
                return number
        unknown = any(row.bad and row.cause is None for row in self.rows)
        if (self.causes or unknown) and not go_on:
            return None
        found = diagnose(segment, picture=self.picture)
        if found is None:
            return None
        self.causes.append(_Found(found, segment, [segment.step.layer]))
        return len(self.causes) - 1

    def _alike(self, segment: Segment, known: _Found) -> bool:
        """Whether a fault of the same kind with other numbers explains the difference, such as another count of pixels."""
        kinds = frozenset(each.kind for each in known.found.hypotheses if each.parameters or each.local is not None)
        return bool(kinds) and diagnose(segment, picture=self.picture, kinds=kinds) is not None

    def _result(self, of_sizes: list[Cause]) -> Comparison:
        net = self.runner.net
        causes: list[Cause] = [
            cause for each in self.causes for cause in cause_of(each.found, each.first, tuple(each.layers), self.trace.framework)
        ]
        rows = self._renumbered()
        if of_sizes:
            rows = (*rows[:-1], replace(rows[-1], cause=len(causes)))
            causes += of_sizes
        clean = not any(row.bad for row in rows)
        if self.half:
            causes.append(half_cause(self.half, self.trace.framework, rows))
        small = tuple(small_variances(net.layers))
        made = Comparison(
            name=net.origin.cfg.name,
            profile=net.profile,
            evidence_of_profile=self.runner.profile.evidence,
            source=self.trace.source,
            verdict="",
            causes=tuple(causes),
            rows=rows,
            unmatched=self.matching.unmatched,
            closeup=self.closeup,
            notes=(*(self.runner.there.notes() if self.runner.there else ()), *notes_on(small)),
            clean=clean,
            small_variances=small,
            first=self.first,
        )
        return replace(made, verdict=verdict(made))

    def _renumbered(self) -> tuple[Row, ...]:
        """The rows with their causes' numbers in the final list, where two together were found as one."""
        first, count = [], 0
        for each in self.causes:
            first.append(count)
            count += len(each.found.hypotheses)
        return tuple(row if row.cause is None else replace(row, cause=first[row.cause]) for row in self.rows)
