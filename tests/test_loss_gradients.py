"""What a loss sends back against the derivative of its cost, in float64 on a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from oracle import Doubles
from tape import Value, bent, curve, exp, gradients, power, total
from test_gradient_check import FIRST, MARGIN, SINGLE, Case, apart, collected, draw, of, with_values


class Losing(NamedTuple):
    """A network behind which a loss stands, what that costs, and how much of the cost's derivative goes back."""

    case: Case
    cost: Callable[[Value, Doubles], Value]
    share: float = 1


def _log(x: Value) -> Value:
    return curve(x, np.log(x.value), 1 / x.value)


def cross_entropy(x: Value, truth: Doubles) -> Value:
    powers = exp(x)
    return total(_log(powers * power(total(powers, 1, 2, 3), -1)) * -truth, 0, 1, 2, 3)


def squares(x: Value, truth: Doubles) -> Value:
    return total((x - truth) * (x - truth), 0, 1, 2, 3)


def magnitudes(x: Value, truth: Doubles) -> Value:
    off = x.value - truth
    return total(curve(bent(x, np.abs(off).min()), np.abs(off), np.sign(off)), 0, 1, 2, 3)


def smooth(x: Value, truth: Doubles) -> Value:
    """Squares up to 1, then straight lines."""
    off = x.value - truth
    far = np.abs(off) > 1
    return total(curve(x, np.where(far, 2 * np.abs(off) - 1, off**2), 2 * np.where(far, np.sign(off), off)), 0, 1, 2, 3)


# Each fork sends half of the derivative of a sum of squares back, the difference itself.
CASES = {
    "softmax": Losing(of(FIRST, "softmax", h=2, w=1), cross_entropy),
    "squares": Losing(of(FIRST, "cost type=sse", h=2, w=2), squares, 0.5),
    "magnitudes": Losing(of(FIRST, "cost type=L1", h=2, w=2, dialect="pjreddie"), magnitudes),
    "smooth": Losing(of(FIRST, "cost type=smooth", h=2, w=2), smooth, 0.5),
}


@pytest.mark.parametrize("losing", CASES.values(), ids=CASES)
def test_a_loss_sends_minus_its_derivative_back(losing: Losing) -> None:
    before = losing.case._replace(sections=losing.case.sections[:-1])
    for seed in range(100):
        drawn = draw(losing.case, "textbook", seed)
        values = drawn.values()
        output = drawn._replace(case=before).run(values)
        truth = np.random.default_rng(seed).normal(size=output.shape).astype(np.float32)
        if losing.cost is cross_entropy:
            truth = np.eye(truth[0].size, dtype=np.float32)[[1, 3]].reshape(truth.shape)
        cost = losing.cost(output, truth.astype(np.float64))
        if cost.margin > MARGIN:
            break
    net = with_values(drawn)
    told = net.loss(drawn.arrays["x"], truth.reshape(len(truth), -1))
    assert told.layers[0].cost == pytest.approx(cost.value.item(), rel=SINGLE)
    want = gradients(cost, np.full(cost.shape, -losing.share), values)
    far = {name: off for name, off in apart(collected(net, drawn, net.backward()), want) if off > SINGLE}
    assert not far
