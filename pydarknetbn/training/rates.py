"""The learning rate of an iteration, in the types of the profile's program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _native
from .._native import CData, ffi, lib
from ..dialect import RateRule
from .settings import TrainSettings

__all__ = ["Rates"]


@dataclass(frozen=True, slots=True)
class Rates:
    """The learning rates of a training.

    constant  the learning rate
    step      learning_rate * scale**(iteration // step)
    steps     times each scale whose step is reached
    exp       learning_rate * gamma**iteration
    poly      learning_rate * (1 - iteration / max_batches)**power
    random    learning_rate * (a number from 0 to 1)**power
    sigmoid   learning_rate / (1 + exp(gamma * (iteration - step)))
    sgdr      from learning_rate down to learning_rate_min along a cosine, again and again, each cycle sgdr_mult times as long

    In the first burn_in iterations it is learning_rate * (iteration / burn_in)**power instead. pow, exp and cos are the machine's.

    Args:
        settings: policy and its numbers.
        rule: of the profile.
    """

    settings: TrainSettings
    rule: RateRule

    def at(self, iteration: int, generator: np.random.Generator | None = None) -> float:
        """The learning rate of an iteration, a float32.

        Args:
            iteration: from 0.
            generator: whose next number `random` takes; without one it takes 1.
        """
        draws = self.settings.policy == "random" and iteration >= self.settings.burn_in
        random = float(generator.random(dtype=np.float32)) if draws and generator is not None else 1.0
        steps, scales = ffi.new("long long[]", self.settings.steps or [0]), ffi.new("float[]", self.settings.scales or [0])
        options = self._options(steps, scales)
        return float(lib.learning_rate(_native.rule("rate_rule", self.rule), options, iteration, random))

    def _options(self, steps: CData, scales: CData) -> CData:
        options = ffi.new("rate_options *")
        options.policy = _native.enum("policy", self.settings.policy)
        for name in ("learning_rate", "learning_rate_min", "power", "gamma", "scale"):
            setattr(options, name, getattr(self.settings, name))
        for name in ("burn_in", "max_batches", "step", "cycle", "cycle_multiplier"):
            setattr(options, name, getattr(self.settings, name))
        options.n_steps, options.steps, options.scales = len(self.settings.steps), steps, scales
        return options
