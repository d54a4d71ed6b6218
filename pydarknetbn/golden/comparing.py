"""Another program against a golden bundle, as the doctor tells it; without the weights it tells where, not why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .._native import input_array
from ..doctor.measures import errors
from ..doctor.names import NameMap
from ..doctor.noise import FACTOR
from ..doctor.results import Comparison, Errors, Row
from ..doctor.running import Runner
from ..doctor.trace import Trace
from ..errors import DumpError
from ..network import Network
from ..npz import read_metadata
from .bundle import Golden, GoldenStep
from .checking import Checked, as_array, check_value, layouts
from .filing import read_golden
from .pairing import Pair, pairs_of

__all__ = ["compare_golden"]

_UNKNOWN = (
    "without the network's weights a difference is found but not explained; `pydarknetbn compare CFG WEIGHTS OTHER` explains it"
)


def compare_golden(
    path: str | os.PathLike[str],
    other: Any,
    *,
    names: NameMap | None = None,
    other_input: Any = None,
    net: Network | None = None,
    **options: Any,
) -> Comparison:
    """Holds another program against a golden bundle; neither Darknet nor cfg nor weights are needed.

    Args:
        path: of the bundle.
        other: what `compare` takes: an ONNX file, a module of PyTorch, a callable, arrays by name …; the bundle's input is what it
            is run on.
        names: layer -> the other side's name, as in `compare`; what it does not name is matched by content, order and shape.
        other_input: what the other side is fed with instead of the bundle's input, in its own layout.
        net: the network of which the bundle was made; with it `compare` runs on the bundle's input, and looks for the cause.
        options: of `compare` then.

    Returns:
        Rows with the errors of the sampled values. Each side ran on its own, so a wrong layer shows in those behind it as well.

    Raises:
        DumpError: the file is no golden bundle, damaged, or made of another network than `net`.
        CfgError, ValueError: `names` names what is not there.
        As `compare` for what the other side cannot do.
    """
    from ..doctor.sources import trace_of  # noqa: PLC0415

    golden = read_golden(path)
    if net is not None:
        return _explained(golden, os.fspath(path), net, other, {"names": names, "other_input": other_input} | options)
    trace = trace_of(other, golden.input, other_input=other_input)
    pairs = pairs_of(golden, trace.tensors, names)
    rows = [*_input_row(golden, trace), *_rows(pairs)]
    taken = {pair.tensor.name for pair in pairs}
    return Comparison(
        name=golden.about.get("cfg", ""),
        profile=golden.about.get("profile", ""),
        evidence_of_profile=golden.about.get("evidence", ""),
        source=trace.source,
        verdict=_verdict(golden, trace, rows),
        causes=(),
        rows=tuple(rows),
        unmatched=tuple(tensor.name for tensor in trace.tensors if tensor.name not in taken),
        closeup=None,
        notes=tuple(_notes(golden, Path(path).name, other, rows, len(pairs))),
        clean=bool(pairs) and not any(row.bad for row in rows),
    )


def _explained(golden: Golden, where: str, net: Network, other: Any, options: Mapping[str, Any]) -> Comparison:
    """The doctor's comparison, once the network is known to be the bundle's."""
    from ..doctor.comparing import compare  # noqa: PLC0415

    steps = {step.key: step for step in golden.steps}
    for step, value in Runner(net).forward(input_array(golden.input, f"the input of {where}", ("batch", net.c, net.h, net.w))):
        held = steps.pop(f"{step.layer}.{step.stage}", None)
        checked = None if held is None else check_value(held, held.key, value)
        if held and (checked is None or checked.bad):
            made = f"{golden.about.get('cfg', '')} under profile {golden.about.get('profile', '')}"
            raise DumpError(f"{where}: was made of another network, {made}: {held.title} is another one in {net!r}")
    if steps:
        raise DumpError(f"{where}: was made of another network: {net!r} has no {next(iter(steps))}")
    found = compare(net, other, golden.input, **options)
    return replace(found, notes=(*found.notes, f"input: {golden.about.get('input', '')}"))


def _rows(pairs: Sequence[Pair]) -> Iterator[Row]:
    for pair in pairs:
        step = pair.step
        checked = check_value(step, pair.tensor.name, as_array(pair.tensor.array, pair.tensor.name))
        assert checked is not None
        noise = float(step.noise.max()) / step.range
        yield Row(
            layer=step.layer,
            type=step.type,
            line=step.line,
            stage=step.stage,
            tensor=pair.tensor.name,
            match=pair.how if checked.layout == "NCHW" else f"{pair.how}, {checked.layout}",
            certain=pair.certain,
            free=_errors(step, checked),
            alone=None,
            noise=noise,
            budget=FACTOR * noise,
            bad=checked.bad,
        )


def _errors(step: GoldenStep, checked: Checked) -> Errors:
    """Of the samples, as shares of the whole value's range."""
    ours, theirs = (side.reshape(-1, 1, 1, 1) for side in (step.samples, checked.samples))
    found = errors(np.ascontiguousarray(ours), np.ascontiguousarray(theirs))
    return replace(
        found,
        largest=float(checked.apart.max(initial=0)) / step.range,
        p99=float(np.quantile(checked.apart, 0.99, method="lower")) / step.range if checked.apart.size else 0.0,
        channel=int(step.channels[int(checked.apart.argmax())]) if checked.apart.size else 0,
        nan=checked.nan,
    )


def _input_row(golden: Golden, trace: Trace) -> Iterator[Row]:
    """Where the other side says what it was given, that is held against the bundle's input first."""
    x = golden.input
    if trace.input is None or trace.input is x:
        return
    given = as_array(trace.input, "input")
    batch, c, h, w = x.shape
    views = [(layout, np.ascontiguousarray(view)) for layout, view in layouts((batch, c, h, w), given)]
    if not views:
        return
    layout, view = min(views, key=lambda each: float(np.abs(each[1] - x).max()))
    found = errors(x, view)
    how = "its input" if layout == "NCHW" else f"its input, {layout}"
    yield Row(-1, "input", 0, "input", "input", how, True, found, None, 0.0, 0.0, found.largest > 0)


def _verdict(golden: Golden, trace: Trace, rows: Sequence[Row]) -> str:
    if not any(row.layer >= 0 for row in rows):
        return f"nothing of {trace.source} could be put to a value of the golden bundle; tell which is which with names"
    bad = [row for row in rows if row.bad]
    if not bad:
        return f"clean: the {len(rows)} values of {trace.source} differ from {golden.about.get('profile', '')} by rounding alone"
    first = bad[0]
    if first.stage == "input":
        return f"{trace.source} was given another input than the golden bundle's: {golden.about.get('input', '')}"
    apart = first.free.largest if first.free else float("nan")
    stage = "" if first.stage == "post" else f" ({first.stage})"
    doubt = "" if first.certain else ", if it is that layer"
    place = f"layer {first.layer} [{first.type}]{stage}"
    off = f"is off by {apart:.1e} of its range, where rounding makes {first.noise:.1e}"
    return f"unknown cause, first at {place}: {trace.source} has it as {first.tensor!r}{doubt} and {off}"


def _notes(golden: Golden, file: str, other: Any, rows: Sequence[Row], count: int) -> Iterator[str]:
    yield f"{file}: {count} of its {len(golden.steps)} values compared, each by samples, channel means and extremes"
    yield f"numbers: {golden.about.get('formula', '')}"
    yield f"input: {golden.about.get('input', '')}"
    if isinstance(other, str | os.PathLike) and Path(other).suffix.lower() == ".npz":
        theirs = read_metadata(other)
        if "resize" in theirs:
            same = "the same" if theirs.get("input_sha256") == golden.about.get("input_sha256") else "another one"
            yield f"{Path(other).name}: input {theirs.get('input', '')} ({same}), profile {theirs.get('profile', '')}"
    if any(row.bad for row in rows):
        yield _UNKNOWN
