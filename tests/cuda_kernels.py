"""The batchnorm kernels of pjreddie/darknet and AlexeyAB/darknet src/blas_kernels.cu in NumPy: a block of 512 threads is an array.

Written from the CUDA source, line by line, and from nothing of the package. Products and sums are rounded apart; powf(d, 2) is
d * d, and powf(w, -1.5) is 1 / (w * sqrt(w)). Arrays are (batch, filters, spatial).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
BLOCK = 512
f32 = np.float32


def serial(start: Any, values: Array) -> Any:
    """for(i = 0; i < n; ++i) start += values[i];"""
    return np.add.accumulate(np.concatenate([[f32(start)], values]).astype(f32), dtype=f32)[-1]


def block(terms: Array, start: Any = 0) -> Any:
    """local[id] += (i+id < spatial) ? term : 0; thread 0 adds all of them to start. terms (batch, spatial)."""
    local = np.zeros(BLOCK, f32)
    batch, spatial = terms.shape
    for j in range(batch):
        for i in range(0, spatial, BLOCK):
            row = np.zeros(BLOCK, f32)
            there = terms[j, i : i + BLOCK]
            row[: len(there)] = there
            local = local + row
    return serial(start, local)


def blocks(terms: Array, start: Array | None = None) -> Array:
    """A block for each filter."""
    return np.array([block(terms[:, f], 0 if start is None else start[f]) for f in range(terms.shape[1])], f32)


def of_filter(values: Any) -> Any:
    return values[None, :, None]


def powf_minus_3_halves(w: Array) -> Array:
    return f32(1) / (w * np.sqrt(w))


@dataclass
class Fork:
    """The layer's arrays, and what the forks' kernels have in common."""

    scales: Array
    biases: Array
    rolling_mean: Array
    rolling_variance: Array
    arrays: dict[str, Array] = field(default_factory=dict)

    def forward(self, x: Array) -> Array:
        """forward_batchnorm_layer_gpu with train."""
        batch, _, spatial = x.shape
        mean = blocks(x) / f32(spatial * batch)
        off = x - of_filter(mean)
        variance = blocks(off * off) / f32(self.denominator(spatial * batch))
        self.rolling_mean = self.rolling_mean * f32(0.99) + f32(0.01) * mean
        self.rolling_variance = self.rolling_variance * f32(0.99) + f32(0.01) * variance
        self.arrays |= {"x": x, "mean": mean, "variance": variance, "x_norm": self.normalize(x, mean, variance)}
        return self.scale_and_add(self.arrays["x_norm"])

    def infer(self, x: Array) -> Array:
        return self.scale_and_add(self.normalize(x, self.rolling_mean, self.rolling_variance))

    def normalize(self, x: Array, mean: Array, variance: Array) -> Array:
        return (x - of_filter(mean)) / of_filter(np.sqrt(variance + f32(0.00001)))

    def scale_and_add(self, x_norm: Array) -> Array:
        return x_norm * of_filter(self.scales) + of_filter(self.biases)

    def backward(self, delta: Array, bias_updates: Array, scale_updates: Array) -> Array:
        """backward_batchnorm_layer_gpu with the mean and variance that there are; fills mean_delta and variance_delta."""
        x, mean, variance = (self.arrays[name] for name in ("x", "mean", "variance"))
        bias_updates[...] = self.bias(delta, bias_updates)
        scale_updates[...] = blocks(delta * self.arrays["x_norm"], scale_updates)
        delta = delta * of_filter(self.scales)
        self.arrays["mean_delta"] = blocks(delta) * (f32(-1) / np.sqrt(variance + self.statistics_epsilon))
        power = powf_minus_3_halves(variance + self.statistics_epsilon)
        self.arrays["variance_delta"] = self.times_half(blocks(delta * (x - of_filter(mean))), power)
        return self.delta(delta, x - of_filter(mean), x.shape[0] * x.shape[2])

    def untrained_backward(self, delta: Array, bias_updates: Array, scale_updates: Array) -> Array:
        """The same without train: of the rolling arrays."""
        kept = {name: self.arrays[name] for name in ("mean", "variance")}
        self.arrays |= {"mean": self.rolling_mean.copy(), "variance": self.rolling_variance.copy()}
        result = self.backward(delta, bias_updates, scale_updates)
        self.arrays |= kept if not self.copies else {}
        return result

    statistics_epsilon = f32(0)
    copies = False

    def denominator(self, n: int) -> int:
        raise NotImplementedError

    def bias(self, delta: Array, updates: Array) -> Array:
        raise NotImplementedError

    def times_half(self, sums: Array, power: Array) -> Array:
        raise NotImplementedError

    def delta(self, delta: Array, off: Array, n: int) -> Array:
        raise NotImplementedError


class Pjreddie(Fork):
    statistics_epsilon = f32(0.00001)

    def denominator(self, n):
        return n - 1

    def bias(self, delta, updates):
        """backward_bias_conn_kernel where size is 1"""
        if delta.shape[2] > 1:
            return blocks(delta, updates)
        return updates + np.array([serial(0, delta[:, f, 0]) for f in range(delta.shape[1])], f32)

    def times_half(self, sums, power):
        """variance_delta[filter] *= -.5f * powf(...)"""
        return sums * (f32(-0.5) * power)

    def delta(self, delta, off, n):
        root = of_filter(np.sqrt(self.arrays["variance"] + f32(0.00001)))
        second = of_filter(self.arrays["variance_delta"] * f32(2)) * off / f32(n)
        return delta * f32(1) / root + second + of_filter(self.arrays["mean_delta"] / f32(n))


class AlexeyAB(Fork):
    """And hank-ai, whose kernels are the same."""

    statistics_epsilon = f32(0.000001)
    copies = True

    def denominator(self, n):
        return n

    def bias(self, delta, updates):
        return blocks(delta, updates)

    def times_half(self, sums, power):
        """variance_delta[filter] *= -.5 * powf(...)"""
        return (sums.astype(np.float64) * (-0.5 * power.astype(np.float64))).astype(f32)

    def delta(self, delta, off, n):
        """delta * 1.F/(sqrtf(v) + .000001f) + variance_delta * 2. * (x - mean) / n + mean_delta/n"""
        direct = delta * f32(1) / of_filter(np.sqrt(self.arrays["variance"]) + f32(0.000001))
        second = of_filter(self.arrays["variance_delta"].astype(np.float64) * 2) * off.astype(np.float64) / n
        third = of_filter(self.arrays["mean_delta"] / f32(n))
        return (direct.astype(np.float64) + second + third.astype(np.float64)).astype(f32)


FORKS: dict[str, type[Fork]] = {"pjreddie-cuda": Pjreddie, "alexeyab-cuda": AlexeyAB, "hank-ai-cuda": AlexeyAB}
