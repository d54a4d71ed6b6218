"""Batch normalization as functions on arrays, without a layer and its state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import _native
from .._native import Array, lib
from ..dialect import BatchNormRule
from ..errors import NumericsError
from .settings import Settings
from .shapes import checked

__all__ = ["Backward", "Forward", "backward", "forward"]


class Forward(NamedTuple):
    """What a forward gives.

    Args:
        output: of x's shape.
        mean: that it normalised with, (C).
        variance: likewise, (C).
        kept: the variance that a rolling array would take up, (C), which in many profiles is over n-1 while the other is over n;
            NaN of one value over n-1. None where mean and variance were given.
    """

    output: Array
    mean: Array
    variance: Array
    kept: Array | None


class Backward(NamedTuple):
    """What a backward gives: minus the gradients for a delta that is minus the gradient, and the gradients for a gradient.

    Args:
        delta: of the input, of x's shape.
        scale_updates: of the scales, (C).
        bias_updates: of the biases, (C); 0 in a profile whose fork leaves them out.
    """

    delta: Array
    scale_updates: Array
    bias_updates: Array


def forward(
    x: Array,
    *,
    scales: Array | None = None,
    biases: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    profile: str = "textbook",
    epsilon: float | None = None,
) -> Forward:
    """(x - mean) / root * scales + biases for each channel, as a profile computes it.

    With the batch's own mean and variance it is the training of `torch.nn.functional.batch_norm`, with given ones its inference:
    `bn.forward(x, scales=weight, biases=bias, mean=running_mean, variance=running_var, profile="torch")`. Nothing is moved: what
    rolling arrays take up is given back.

    Args:
        x: (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), float32, C order.
        scales: (C); None: 1.
        biases: (C); None: 0.
        mean: (C), with variance; None: both are the batch's.
        variance: (C).
        profile: name of a profile, see `profiles()`.
        epsilon: replaces the profile's, on its side of the root.

    Raises:
        DtypeError, ShapeError: an array is not as told.
        NumericsError: one value for each channel, where the profile divides by n-1.
        ValueError: mean without variance or the reverse, no such profile, or an epsilon below 0.
    """
    job = _Pass(x, scales, mean, variance, profile, epsilon)
    output = np.empty_like(job.x)
    kept = job.normalize(output, np.zeros(job.channels, np.float32) if biases is None else job.channel(biases, "biases"))
    return Forward(output, job.mean, job.variance, kept)


def backward(
    delta: Array,
    x: Array,
    *,
    scales: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    profile: str = "textbook",
    epsilon: float | None = None,
) -> Backward:
    """Carries the delta of a forward's output through it.

    Args:
        delta: of x's shape: minus the gradient of the loss, as Darknet has it, or the gradient itself.
        x: what went into the forward.
        scales: as there.
        mean: as there. Given ones do not depend on x, and no delta goes through them; the batch's own do.
        variance: as there.
        profile: as there. In the forks the delta of the input is not the exact gradient, see `BatchNorm.backward`.
        epsilon: replaces the values of all of the profile's.

    Raises:
        The same as `forward`.
    """
    job = _Pass(x, scales, mean, variance, profile, epsilon)
    delta = _native.input_array(delta, "delta", job.x.shape)
    result, updates = np.empty_like(delta), np.zeros((4, job.channels), np.float32)
    job.normalize(result, updates[0])
    p, rule = job.p, job.rule
    pointers = [_native.floats(array) for array in (delta, result, job.x, *updates)]
    p.input, p.output, p.x, p.scale_updates, bias_updates, p.mean_delta, p.variance_delta = pointers
    p.bias_updates = bias_updates if rule.bias_gradient else _native.ffi.NULL
    p.kept, p.constant = _native.ffi.NULL, job.given
    lib.batchnorm_backward(p)
    return Backward(result, updates[0], updates[1])


class _Pass:
    """Checked arrays, and the struct of the core that points to them."""

    def __init__(
        self,
        x: Array,
        scales: Array | None,
        mean: Array | None,
        variance: Array | None,
        profile: str,
        epsilon: float | None,
    ) -> None:
        self.rule: BatchNormRule = Settings(profile=profile, epsilon=epsilon).rule
        self.x = checked(x, "x")
        self.channels = self.x.shape[1]
        self.given = mean is not None
        if (mean is None) != (variance is None):
            alone = "variance" if mean is None else "mean"
            raise ValueError(f"expected mean and variance together, or neither for the batch's own, got {alone} alone")
        one = np.ones(self.channels, np.float32)
        self.scales = one if scales is None else self.channel(scales, "scales")
        self.mean = np.empty_like(one) if mean is None else self.channel(mean, "mean")
        self.variance = np.empty_like(one) if variance is None else self.channel(variance, "variance")
        self._native_rule = _native.rule("batchnorm_rule", self.rule)
        p = self.p = _native.ffi.new("batchnorm_pass *")
        p.batch, p.c, p.spatial = self.x.shape[0], self.channels, self.x.size // (self.x.shape[0] * self.channels)
        p.rule, p.scales = self._native_rule, _native.floats(self.scales)
        p.mean, p.variance = _native.floats(self.mean), _native.floats(self.variance)

    def channel(self, array: Array, name: str) -> Array:
        return _native.input_array(array, name, (self.channels,))

    def normalize(self, output: Array, biases: Array) -> Array | None:
        """Fills output and, where they are the batch's, mean and variance. Gives the variance to keep."""
        p = self.p
        p.input, p.output, p.biases = _native.floats(self.x), _native.floats(output), _native.floats(biases)
        if self.given:
            lib.batchnorm_infer(p)
            return None
        if p.batch * p.spatial == 1 and self.rule.normalize_variance == "n-1":
            raise NumericsError(
                f"x of shape {self.x.shape} has one value in each channel, which has no variance over n-1 = 0; give a larger batch"
            )
        kept = np.empty(self.channels, np.float32)
        p.kept = _native.floats(kept)
        lib.batchnorm_train(p)
        return kept
