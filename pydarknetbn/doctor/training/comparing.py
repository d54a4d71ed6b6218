"""Compares a training step of a PyTorch module with Darknet's, and names what it does otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._native import Array
from ...dialect import Profile
from ...errors import UnsupportedError
from ...network import Network
from ..results import Cause, Comparison, Errors, Row
from .findings import Finding, Quantity
from .pairing import Pair, pairs
from .slopes import judge_batchnorm_gradients, judge_weight_gradients
from .statistics import judge_output, judge_rolling

__all__ = ["compare_training"]

_SEED = 0


def compare_training(
    net: Network, other: Any, x: Array, profile: Profile, names: Any, progress: Callable[[int, int, str], None]
) -> Comparison:
    """A step from the same x and parameters: every layer is judged on the port's own input and delta.

    Args:
        net: computes what is right.
        other: a `torch.nn.Module` with the same parameters.
        x: (batch, c, h, w).
        profile: whose batchnorm is right.
        names: layer -> path of a module.
        progress: called with layers done, their number, and what is being done.

    Raises:
        UnsupportedError: the other side is no module of PyTorch.
        StateError: it raises an error.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(other, torch.nn.Module):
        raise UnsupportedError(f"gradients are compared with a torch.nn.Module, got {type(other).__name__}; use train=False")
    from .watching import watch  # noqa: PLC0415

    step = watch(other, x, _SEED)
    found = pairs(net, step.watched, names if isinstance(names, Mapping) else None)
    judged: list[tuple[Pair, Quantity]] = []
    for done, pair in enumerate(found):
        progress(done, len(found), "layer by layer")
        judged += [(pair, quantity) for quantity in _judge(profile, pair, found)]
    progress(len(found), len(found), "done")
    return _comparison(net, profile, f"{type(other).__name__} in PyTorch {torch.__version__}, a training step", found, judged)


def _judge(profile: Profile, pair: Pair, everyone: Sequence[Pair]) -> Iterator[Quantity]:
    if pair.module.x is None or pair.module.output is None:
        return
    if pair.part == "weights":
        yield from judge_weight_gradients(pair)
        return
    host: Any = pair.layer.type if pair.layer.type in profile.batchnorm else "convolutional"
    rule = profile.rule(host)
    forward = judge_output(rule, pair)
    yield forward.output
    yield from judge_rolling(rule, forward, pair, _sharing(pair, everyone))
    yield from judge_batchnorm_gradients(rule, forward, pair)


def _sharing(pair: Pair, everyone: Sequence[Pair]) -> tuple[str, ...]:
    """Other modules with the same running arrays in memory, where our layers have their own."""
    own = {
        pair.module.storage.get(name, 0) for name in (pair.names.get("rolling_mean", ""), pair.names.get("rolling_variance", ""))
    }
    others = (each for each in everyone if each is not pair and each.part == "batchnorm")
    return tuple(each.module.name for each in others if (own - {0}) & set(each.module.storage.values()))


# --- the result -----------------------------------------------------------------------------------------------------------------


def _comparison(
    net: Network, profile: Profile, source: str, found: Sequence[Pair], judged: Sequence[tuple[Pair, Quantity]]
) -> Comparison:
    findings = _distinct(judged)
    rows = tuple(_row(pair, quantity, findings) for pair, quantity in judged)
    causes = tuple(_cause(finding, judged) for finding in findings)
    made = Comparison(
        name=net.origin.cfg.name,
        profile=profile.name,
        evidence_of_profile=profile.evidence,
        source=source,
        verdict="",
        causes=causes,
        rows=rows,
        unmatched=(),
        closeup=None,
        notes=(),
        clean=bool(rows) and not any(row.bad for row in rows),
    )
    return replace(made, verdict=_verdict(made, found))


def _distinct(judged: Sequence[tuple[Pair, Quantity]]) -> list[Finding]:
    """Each cause once: the same kind with the same values is one."""
    made: list[Finding] = []
    for _, quantity in judged:
        if quantity.finding and not any(_same(quantity.finding, known) for known in made):
            made.append(quantity.finding)
    return made


def _same(one: Finding, other: Finding) -> bool:
    return one.kind == other.kind and one.words == other.words


def _row(pair: Pair, quantity: Quantity, findings: Sequence[Finding]) -> Row:
    number = next((at for at, each in enumerate(findings) if quantity.finding and _same(quantity.finding, each)), None)
    noise = quantity.share / quantity.multiple if quantity.multiple else 0.0
    alone = Errors(quantity.share, quantity.share, 1.0, float("nan"), 0, 0)
    return Row(
        layer=pair.layer.index,
        type=pair.layer.type,
        line=pair.layer.line,
        stage=quantity.stage,
        tensor=pair.module.name,
        match="by values",
        certain=True,
        free=None,
        alone=alone,
        noise=noise,
        budget=8 * noise,
        bad=quantity.bad,
        cause=number,
        multiple=quantity.multiple,
    )


def _cause(finding: Finding, judged: Sequence[tuple[Pair, Quantity]]) -> Cause:
    here = [(pair, quantity) for pair, quantity in judged if quantity.finding and _same(quantity.finding, finding)]
    pair, worst = max(here, key=lambda each: each[1].multiple)
    before = "infinitely often" if np.isinf(worst.multiple) else f"{worst.multiple:.0f} times"
    evidence = f"{worst.stage} of layer {pair.layer.index} differs by {before} the rounding noise; with that {worst.left:.1f} times"
    return Cause(
        kind=finding.kind,
        words=finding.words,
        fix=finding.fix,
        evidence=evidence,
        before=worst.multiple,
        after=worst.left,
        layers=tuple(dict.fromkeys(each.layer.index for each, _ in here)),
        values=finding.values,
    )


def _verdict(comparison: Comparison, found: Sequence[Pair]) -> str:
    if not found:
        return "nothing was compared: no module of the port has parameters of the sizes of ours; give names"
    first = next((row for row in comparison.rows if row.bad), None)
    if first is None:
        worst = max(comparison.rows, key=lambda row: row.multiple, default=None)
        most = f", at most {worst.multiple:.1f} times its noise (layer {worst.layer}, {worst.stage})" if worst else ""
        return f"clean: all {len(comparison.rows)} statistics, rolling arrays and gradients are within rounding{most}"
    where = f"layer {first.layer} [{first.type}] (line {first.line}), {first.stage}"
    if first.cause is None:
        return f"unknown cause, first at {where}, {first.multiple:.0f} times the rounding noise"
    cause = comparison.causes[first.cause]
    more = f" and {len(cause.layers) - 1} more layers" if len(cause.layers) > 1 else ""
    rest = len(comparison.causes) - 1
    others = f"; {rest} further cause{'s' if rest > 1 else ''} below" if rest else ""
    return f"{where}{more}: {cause.words}: {cause.evidence}; fix: {cause.fix}{others}"
