"""Finds for one step after the other which of the other side's values it is.

Each step is computed from the values that the other side has for its inputs. Where the other side computes it as we do, one of its
values is that result. Where it does not, values that may be it are tried: it is the one from which the steps after it come out as
values of the other side again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .._native import Array
from .alignment import Alignment
from .head_values import value_of_head
from .leftovers import Found, with_leftovers
from .operations import families, passes
from .pool import Candidate, Pool, distances
from .precision import half_of
from .running import Runner
from .steps import INPUT, Step, input_step

__all__ = ["Pairing"]

_EQUAL, _CLOSE = 1 / 1000, 1 / 20
"""Up to this share of the spread a value is the expected one, in half precision; another layer's value is far above."""
_SURE, _ORDER, _LEFT_OUT = 0.9, "by order and shape", ("activation", "batchnorm")  # a port may have nothing in their place
_COPIES = ("route", "dropout", "upsample", "reorg", "reorg3d")
_WINDOW, _OPTIONS, _RUNS, _SKIPPED = 24, 9, 30, 4  # values ahead; tried; convolutions for one search; steps left out


@dataclass(frozen=True, slots=True)
class _State:
    """How far the search is, or would be with what it tries.

    Args:
        values: number of a step -> what the other side has for it, ours where it shows nothing.
        found: number of a step -> the other side's value.
        seen: steps that are done with.
        last: place in the trace of the newest one.
        distance: of the value that speaks for what was tried.
        guesses: how many values were tried to come here.
        skipped: how many steps were left without one.
    """

    values: Mapping[int, Array] = field(default_factory=dict)
    found: Mapping[int, Found] = field(default_factory=dict)
    seen: frozenset[int] = frozenset()
    last: int = -1
    distance: float = np.inf
    guesses: int = 0
    skipped: int = 0

    def cost(self, close: float) -> tuple[bool, int, int, float]:
        """What is to be small: of two explanations the one that needs less is the better one, of equal ones the first in order."""
        return self.distance > close, self.guesses, self.skipped, max(self.distance, close)

    def skipping(self, step: Step, value: Array) -> _State:
        """The other side shows no value of a step; it goes on with ours."""
        values, seen = {**self.values, step.number: value}, self.seen | {step.number}
        return replace(self, values=values, seen=seen, skipped=self.skipped + 1)

    def finding(self, step: Step, found: Found, distance: float = np.inf) -> _State:
        """The other side's value of a step is known, or tried."""
        values, seen = {**self.values, step.number: found.candidate.read()}, self.seen | {step.number}
        entries, guessed = {**self.found, step.number: found}, found.how == _ORDER
        last = found.candidate.index
        return replace(self, values=values, seen=seen, found=entries, last=last, distance=distance, guesses=self.guesses + guessed)


class Pairing:
    """The search.

    Args:
        runner: of our network.
        pool: the other side's values.
        x: our input.
        named: number of a step -> index of the tensor that it is by name.
        outputs: names of the tensors that the other side calls its outputs.
    """

    def __init__(self, runner: Runner, pool: Pool, x: Array, *, named: Mapping[int, int], outputs: Collection[str] = ()) -> None:
        self.runner, self.pool, self.named, self.outputs = runner, pool, named, outputs
        self._x = x
        self._reserved = {index: number for number, index in named.items()}
        self._alignment: Alignment | None = None
        self._families = families(pool.tensors)
        self._close = _CLOSE if half_of(tensor.array for tensor in pool.tensors) else _EQUAL
        self._runs = 0
        self._users = {
            step.number: [each for each in runner.steps if step.number in each.inputs]
            for step in (input_step(runner.net), *runner.steps)
        }

    def run(self, given: Array) -> dict[int, Found]:
        """What every step is.

        Args:
            given: (batch, c, h, w), the other side's input.
        """
        state = _State({INPUT: given})
        last_use = {number: step.number for step in self.runner.steps for number in step.inputs}
        for step in self.runner.steps:
            if step.number not in state.seen:
                state = self._placed(step, state)
            held = {number: value for number, value in state.values.items() if last_use.get(number, -1) > step.number}
            state = replace(state, values=held)
        return with_leftovers(self.runner, self.pool, self._families, state.found)

    # --- one step ---------------------------------------------------------------------------------------------------------------

    def _placed(self, step: Step, state: _State) -> _State:
        state = replace(state, guesses=0, skipped=0)
        expected = self._expected(step, state)
        done = self._known(step, expected, state)
        if done and self._is_output(step, expected, done):
            return state.skipping(step, expected)
        if done is None and INPUT in step.inputs and state.last < 0:
            done = self._other_input(step, state)
        if done is None and passes(self.runner.layer_of(step)):
            return state.skipping(step, expected)
        return done or self._revised(step, state) or self._tried(step, expected, state) or self._guessed(step, expected, state)

    def _is_output(self, step: Step, expected: Array, done: _State) -> bool:
        """Whether sums whose biases are all 0 are shown once: then as what comes after the biases."""
        after = self.runner.steps[step.number + 1] if step.stage == "sums" and step.number not in self.named else None
        if after is None or after.kind != "biases" or self.runner.layer_of(step).biases.any():
            return False
        return self._known(after, expected, done) is None

    def _revised(self, step: Step, state: _State) -> _State | None:
        """Takes another value for the step before, as the second of two batch normalizations, if this step comes out of that."""
        before = self.runner.steps[step.number - 1]
        if before.layer != step.layer or before.number not in state.found or before.number in self.named:
            return None
        left = {number: found for number, found in state.found.items() if number != before.number}
        older = replace(state, found=left, last=state.last - 1)
        expected = state.values[before.number]
        for candidate in self._options(before, expected, older):
            if self._computed_further(state.found[before.number].candidate.index, candidate.index):
                trial = older.finding(before, Found(candidate, _ORDER))
                done = self._known(step, self._expected(step, trial), trial)
                if done and done.found[step.number].certain:
                    return done
        return None

    def _computed_further(self, index: int, other: int) -> bool:
        """Whether a value comes out of another without a convolution between them, as far as operations are known."""
        between = self._families[index + 1 : other + 1]
        return 0 < len(between) <= _WINDOW and not {"convolution", "folded", "matrix"} & set(between)

    def _expected(self, step: Step, state: _State) -> Array:
        self._runs += step.kind in ("convolution", "connected")
        return self.runner.run(step, [state.values[number] for number in step.inputs])

    def _known(self, step: Step, expected: Array, state: _State) -> _State | None:
        """By name, or because one of their values is what is expected."""
        candidates = self.pool.of(step)
        apart, _ = distances(candidates, expected)
        if step.number in self.named:
            named = [place for place, each in enumerate(candidates.all) if each.index == self.named[step.number]]
            place = min(named, key=lambda place: (apart[place], candidates.all[place].layout.rank))
            found = Found(candidates.all[place], "by name")
            return state.finding(step, found, float(apart[place]))
        free = self._free(step, state)
        within = _EQUAL if passes(self.runner.layer_of(step)) else self._close  # what comes after it would do else
        close = [place for place in free if apart[place] <= within]
        if not close:
            return None
        limit = max(2 * min(apart[place] for place in close), _EQUAL / 10_000)
        near = [candidates.all[place] for place in close if apart[place] <= limit]
        best = min(near, key=lambda each: (each.index < state.last, each.layout.rank, each.index))
        sure = bool(np.isfinite(candidates.sample(expected)).any())
        return state.finding(step, Found(best, "by content", sure), float(min(apart[place] for place in close)))

    def _free(self, step: Step, state: _State) -> list[int]:
        """Places of the candidates that no other step is."""
        used = {_key(found.candidate) for found in state.found.values()}
        return [
            place
            for place, candidate in enumerate(self.pool.of(step).all)
            if _key(candidate) not in used and self._reserved.get(candidate.index, step.number) == step.number
        ]

    def _other_input(self, step: Step, state: _State) -> _State | None:
        """The model may prepare its input itself: the first step tells what it was really given."""
        first = input_step(self.runner.net)
        for candidate in self.pool.of(first).all[:_WINDOW]:
            trial = state.finding(first, Found(candidate, "by content"))
            done = self._tried(step, self._expected(step, trial), trial, guesses=(0,))
            if done:
                return done
        return None

    # --- trying -----------------------------------------------------------------------------------------------------------------

    def _tried(self, step: Step, expected: Array, state: _State, *, guesses: tuple[int, ...] = (1, 2)) -> _State | None:
        """The state after the attempt from which later steps come out best; None where they do from none."""
        for count in guesses:
            self._runs = 0
            best = self._best(step, expected, state, count)
            if best:
                return best
        return None

    def _best(self, step: Step, expected: Array, state: _State, guesses: int) -> _State | None:
        best: _State | None = None
        for attempt in self._attempts(step, expected, state, guesses):
            left = guesses - (attempt.guesses - state.guesses)
            done = self._confirmed(step, attempt, left)
            if done and (best is None or done.cost(self._close) < best.cost(self._close)):
                best = done
            skipped = attempt.skipped > state.skipped  # after which the next value has to have its turn
            if (best and best.distance <= self._close and best.guesses == state.guesses) or (self._runs > _RUNS and not skipped):
                break
        return best

    def _attempts(self, step: Step, expected: Array, state: _State, guesses: int) -> Iterator[_State]:
        """The step is known; the other side does not show it; it is one of those that come next."""
        known = self._known(step, expected, state)
        if known:
            yield known
            return
        if state.skipped < _SKIPPED:
            yield state.skipping(step, expected)
            if step.kind in _LEFT_OUT:
                yield state.skipping(step, state.values[step.inputs[0]])
        if guesses:
            for candidate in self._options(step, expected, state):
                yield state.finding(step, Found(candidate, _ORDER))

    def _options(self, step: Step, expected: Array, state: _State) -> list[Candidate]:
        """The next ones in order, and those that are most alike."""
        candidates = self.pool.of(step)
        _, correlation = distances(candidates, expected)
        free = self._free(step, state)
        following = [place for place in free if state.last < candidates.all[place].index <= state.last + _WINDOW]
        following = sorted(following, key=lambda place: candidates.repeats[place])[:_OPTIONS]  # what was there before comes last
        alike = sorted((place for place in free if abs(correlation[place]) > 0.5), key=lambda place: -abs(correlation[place]))[:2]
        return [candidates.all[place] for place in dict.fromkeys([*following, *alike])]

    def _confirmed(self, step: Step, state: _State, guesses: int) -> _State | None:
        """The state after the first step that takes this one's value and is known."""
        for user in self._users[step.number][:2]:
            if user.number in state.seen or any(number not in state.values for number in user.inputs):
                continue
            expected = self._expected(user, state)
            known = self._known(user, expected, state)
            if known and user.kind not in _COPIES:  # which say nothing of what they copy
                return known if known.found[user.number].certain else None
            layer = self.runner.layer_of(user)
            same = user.layer == step.layer
            done = self._best(user, expected, state, guesses if same and not passes(layer) else 0)
            if done:
                return done
        return None

    # --- guessing ---------------------------------------------------------------------------------------------------------------

    def _head(self, step: Step, expected: Array, state: _State) -> Candidate | None:
        """Of a [yolo]: among the values before the next convolution."""
        candidates, head = self.pool.of(step), self.runner.layer_of(step).head
        later = range(state.last + 1, len(self._families))
        end = next((index for index in later if self._families[index] in ("convolution", "folded")), len(self._families))
        behind = [place for place in self._free(step, state) if state.last < candidates.all[place].index < end]
        given, anchors = state.values[step.inputs[0]], len(head.mask) if head else 1
        return value_of_head(candidates, behind, expected=expected, given=given, anchors=anchors, outputs=self.outputs)

    def _guessed(self, step: Step, expected: Array, state: _State) -> _State:
        """By the order of all values, where nothing after the step tells."""
        if step.kind == "yolo" and step.inputs[0] in state.values:
            head = self._head(step, expected, state)
            if head:
                return state.finding(step, Found(head, _ORDER, False))
        if self._alignment is None:
            self._alignment = Alignment(self.runner, self.pool, self._x)
        known = {number: found.candidate.index for number, found in state.found.items()}
        candidate = self._alignment.pairs({**known, **self.named}).get(step.number)
        candidates, free = self.pool.of(step), self._free(step, state)
        keys = {_key(candidates.all[place]) for place in free}
        if candidate is None or _key(candidate) not in keys:
            return state.skipping(step, expected)
        _, correlation = distances(candidates, expected)
        alike = abs(correlation[candidates.all.index(candidate)]) > _SURE
        if step.kind == "boxes" and not alike and candidate.tensor.name not in self.outputs:  # most programs show none
            return state.skipping(step, expected)
        return state.finding(step, Found(candidate, _ORDER, bool(alike)))


def _key(candidate: Candidate) -> tuple[int, str]:
    """A value of several heads is several values."""
    words = candidate.layout.words
    return candidate.index, words.split(",")[0] if words.startswith("rows") else ""
