"""One step of a small network, and the hypotheses that are made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pydarknetbn as dn
from nets import cfg_of, noise
from pydarknetbn._native import Array
from pydarknetbn.doctor.hypotheses import GENERATORS
from pydarknetbn.doctor.running import Runner
from pydarknetbn.doctor.situation import Hypothesis, Place


@dataclass(frozen=True)
class Patient:
    """A step with its inputs in float32; what a port gives is computed from them in double."""

    place: Place

    @property
    def layer(self) -> Any:
        return self.place.layer

    @property
    def x(self) -> Any:
        """The first input in double."""
        return self.place.inputs[0].astype(np.float64)

    def weights(self) -> Any:
        return self.layer.weights.astype(np.float64)

    def hypotheses(self, theirs: Array | None = None) -> list[Hypothesis]:
        """All for the step; those with a free number fit it to `theirs`."""
        kind = self.place.step.kind

        def trial(hypothesis: Hypothesis) -> float:
            if theirs is None or kind not in hypothesis.runs:
                return 1.0
            made = hypothesis.runs[kind](self.place)
            return float(np.sqrt(np.mean(np.square(made - theirs)))) if made is not None else np.inf

        return list(GENERATORS[kind](self.place, trial))

    def of(self, kind: str, words: str = "", **values: Any) -> Hypothesis:
        """The one hypothesis of a kind whose words hold a part and whose values are those."""
        found = [each for each in self.hypotheses() if each.kind == kind and words in each.words and _holds(each.values, values)]
        assert len(found) == 1, [each.words for each in found]
        return found[0]

    def run(self, hypothesis: Hypothesis) -> Any:
        made = hypothesis.runs[self.place.step.kind](self.place)
        assert made is None or made.dtype == np.float32
        return made

    def assert_gives(self, hypothesis: Hypothesis, want: Any, *, roundings: float = 16) -> None:
        """What it gives is that but for some roundings of the largest value, and is not what Darknet gives."""
        got = self.run(hypothesis)
        assert got is not None, hypothesis.words
        assert got.shape == want.shape == self.place.right.shape, hypothesis.words
        limit = roundings * 2.0**-24 * np.abs(want).max()
        assert np.abs(got - want).max() <= limit, hypothesis.words
        assert np.abs(got - self.place.right).max() > 100 * limit, f"{hypothesis.words}: as Darknet"


def _holds(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in values and values[name] == value for name, value in wanted.items())


def patient(
    *sections: str,
    kind: str,
    layer: int = -1,
    c: int = 3,
    size: int = 8,
    seed: int = 1,
    change: Callable[[dn.Network], None] | None = None,
) -> Patient:
    """The step of that kind in a layer, on a picture of values between -1 and 1."""
    net = dn.load(cfg_of(*sections, c=c, w=size, h=size), None, seed=seed)
    if change:
        change(net)
    runner = Runner(net)
    x = 2 * noise(2, c, size, size, seed=seed) - np.float32(1)
    values = {-1: x} | {step.number: value for step, value in runner.forward(x)}
    index = range(len(net.layers))[layer]
    step = next(each for each in runner.steps if each.layer == index and each.kind == kind)
    earlier = {number: value for number, value in values.items() if number < step.number}
    return Patient(Place(runner, step, [values[number] for number in step.inputs], earlier))
