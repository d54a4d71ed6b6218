"""Judges gradients: those of a port's batchnorm, and those of its convolutions and matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...dialect import BatchNormRule
from ...layers import Layer
from ..noise import FACTOR
from .findings import Finding, Quantity, multiple_of, rounding
from .formulas import Doubles, gradients, normalize, root, rows_of
from .pairing import Pair
from .statistics import Forward

__all__ = ["judge_batchnorm_gradients", "judge_weight_gradients"]

_WHOLE = 1e-3  # a recovered factor that is so near to a number of its own is that
_OF = {
    "scales": "the gradient of gamma",
    "biases": "the gradient of beta",
    "x": "the delta of the input",
    "weights": "the gradient",
}


def judge_batchnorm_gradients(rule: BatchNormRule, forward: Forward, pair: Pair) -> list[Quantity]:
    """Gradients of scales, biases and input, each for the delta that arrived at the port's own output."""
    if pair.module.output_gradient is None:
        return []
    delta = rows_of(pair.module.output_gradient)
    arguments = forward.x, delta, forward.scales, forward.mean, forward.variance
    ours = gradients(forward.rule, *arguments, constant=forward.constant)
    made = [_parameter("scales", ours.scales, rounding(ours.scales_size), pair)]
    if rule.bias_gradient:
        made.append(_parameter("biases", ours.biases, rounding(ours.biases_size), pair))
    else:
        made.append(_without_bias_gradient(ours.biases, pair))
    if pair.module.input_gradient is not None:
        made.append(_input(forward, ours.x, delta, rows_of(pair.module.input_gradient)))
    return [each for each in made if each is not None]


def _input(forward: Forward, ours: Doubles, delta: Doubles, theirs: Doubles) -> Quantity:
    x_norm = normalize(forward.x, forward.mean, forward.variance, forward.rule.forward)
    size = np.abs(delta).max(axis=1) * np.abs(forward.scales) / root(forward.variance, forward.rule.direct_term)
    noise = rounding(size * (1 + np.abs(x_norm).max(axis=1)))[:, None]
    plain = Quantity("delta of the input", ours, theirs, multiple_of(ours, theirs, noise))
    if not plain.bad:
        return plain
    arguments = forward.x, delta, forward.scales, forward.mean, forward.variance
    exact = gradients(forward.rule, *arguments, constant=forward.constant, exact=True).x
    direct = gradients(forward.rule, *arguments, constant=True).x
    for finding, other in ((forward.output.finding or _EXACT, exact), (_DETACHED, direct)):
        left = multiple_of(other, theirs, noise)
        if left <= FACTOR:
            return replace(plain, left=left, finding=finding)
    return _by_factor(plain, ours, theirs, noise, _OF["x"])


_EXACT = Finding(
    "training.exact_derivative",
    "the port's backward is the derivative of its forward, Darknet's is not: it takes other epsilons than its forward, and divides "
    "by n where that divided by n-1",
    "nothing, unless the gradients have to be Darknet's own: then write the backward as its profile says",
)
_DETACHED = Finding(
    "training.constant_statistics",
    "the port's backward takes mean and variance for constants, Darknet's goes through them",
    "do not detach mean and variance of the batch, and compute them outside torch.no_grad()",
)


def _parameter(name: str, ours: Doubles, noise: Doubles, pair: Pair) -> Quantity | None:
    """A gradient of one of the module's parameters; None where it has no such parameter."""
    own = pair.names.get(name)
    if own is None:
        return None
    found = pair.gradient(name)
    stage = f"gradient of {name}"
    theirs = np.zeros_like(ours) if found is None else np.asarray(found, np.float64).reshape(ours.shape)
    plain = Quantity(stage, ours, theirs, multiple_of(ours, theirs, noise))
    if not plain.bad:
        return plain
    if found is None or not theirs.any():
        return replace(plain, finding=_missing(name, own, pair))
    return _by_factor(plain, ours, theirs, noise, _OF[name])


def _missing(name: str, own: str, pair: Pair) -> Finding:
    parameter = getattr(pair.module.module, own, None)
    if parameter is not None and not parameter.requires_grad:
        words = f"the port's {own} is frozen (requires_grad=False), Darknet trains its {name}"
        return Finding("training.frozen_parameters", words, f"{pair.module.name}.{own}.requires_grad_(True)")
    words = f"nothing arrives at the port's {own}: its gradient is 0, Darknet's is not"
    kind = "training.bias_gradient" if name == "biases" else "training.missing_gradient"
    return Finding(kind, words, f"let {own} take part in the forward that the loss is computed from")


def _without_bias_gradient(would_be: Doubles, pair: Pair) -> Quantity | None:
    """Where Darknet's program gives biases no gradient."""
    found = pair.gradient("biases")
    if found is None:
        return None
    theirs = np.asarray(found, np.float64).reshape(-1)
    words = "the port trains its biases, Darknet's program gives those behind a convolution no gradient on the CPU"
    finding = Finding("training.bias_gradient", words, f"{pair.module.name}.{pair.names['biases']}.requires_grad_(False)")
    apart = 0.0 if not theirs.any() else float("inf")
    ours = np.zeros_like(would_be)
    return Quantity("gradient of biases", ours, theirs, apart, finding=finding if apart else None)


def _by_factor(plain: Quantity, ours: Doubles, theirs: Doubles, noise: Doubles, what: str) -> Quantity:
    """A gradient that is ours but for a number."""
    power = float(np.vdot(ours, ours))
    factor = float(np.vdot(ours, theirs)) / power if power else 0.0
    near = [whole for whole in (-1.0, 2.0, 0.5) if abs(factor - whole) <= _WHOLE]
    factor = near[0] if near else factor
    left = multiple_of(factor * ours, theirs, np.maximum(abs(factor), np.finfo(np.float32).tiny) * noise)
    if not left <= FACTOR:
        return plain
    if factor == -1.0:
        finding = Finding("training.sign", f"{what} has the opposite sign in the port", "negate it in the port's backward")
    else:
        words = f"{what} is {factor:.6g} times Darknet's, which is the sum over the batch"
        finding = Finding(
            "training.factor", words, "sum over the batch instead of taking a mean, or the other way round", {"factor": factor}
        )
    return replace(plain, left=left, finding=finding)


# --- weights --------------------------------------------------------------------------------------------------------------------


def judge_weight_gradients(pair: Pair) -> list[Quantity]:
    """Gradients of a convolution or a matrix, and of its biases, for the delta that arrived at its own output."""
    module, layer = pair.module, pair.layer
    if module.x is None or module.output_gradient is None or (layer.native is not None and layer.native.xnor):
        return []
    delta = module.output_gradient
    ours, size = _weight_gradient(layer, module.x, delta)
    if ours is None:
        return []
    made = [_parameter("weights", ours, rounding(size), pair)]
    rows = rows_of(delta)
    made.append(_parameter("biases", rows.sum(axis=1), rounding(np.abs(rows).sum(axis=1)), pair))
    return [each for each in made if each is not None]


def _weight_gradient(layer: Layer, x: NDArray[np.float32], delta: NDArray[np.float32]) -> tuple[Doubles | None, Doubles]:
    """(filters, channels of a group, size, size) or (outputs, inputs), and what its terms amount to; None: of another geometry."""
    if layer.type == "connected":
        d, flat = delta.reshape(len(delta), -1).astype(np.float64), x.reshape(len(x), -1).astype(np.float64)
        return d.T @ flat, np.sqrt(np.outer(np.square(d).sum(0), np.square(flat).sum(0)))
    own = layer.native
    assert own is not None
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((own.pad * own.dilation,) * 2,) * 2))
    if delta.shape[2:] != tuple(layer.out_shape[1:]) or x.shape[1] != own.c or delta.shape[1] != own.n:
        return None, np.zeros(0)
    made = np.zeros((own.n, own.c // own.groups, own.size, own.size))
    sizes = np.zeros_like(made)
    for row, column, patch in _patches(own, padded, delta.shape[2:]):
        for group in range(own.groups):
            filters = slice(group * (own.n // own.groups), (group + 1) * (own.n // own.groups))
            d, rows = rows_of(delta[:, filters]), patch[group]
            made[filters, :, row, column] = d @ rows.T
            sizes[filters, :, row, column] = np.sqrt(np.outer(np.square(d).sum(1), np.square(rows).sum(1)))
    return made, sizes


def _patches(own: object, padded: Doubles, out: tuple[int, ...]) -> Iterator[tuple[int, int, list[Doubles]]]:
    """For each kernel element, the pixels under it, (channels of a group, batch * pixels) for each group."""
    size, step, groups = own.size, own.dilation, own.groups  # type: ignore[attr-defined]
    stride_y, stride_x = own.stride_y, own.stride_x  # type: ignore[attr-defined]
    for row in range(size):
        for column in range(size):
            top, left = row * step, column * step
            under = padded[:, :, top : top + stride_y * out[0] : stride_y, left : left + stride_x * out[1] : stride_x]
            under = under[:, :, : out[0], : out[1]]
            parts = np.split(under, groups, axis=1)
            yield row, column, [part.transpose(1, 0, 2, 3).reshape(part.shape[1], -1) for part in parts]
