"""What layers compute that move, pool, join and scale values, in float64 on a tape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from definitions import Section, activated, blurred, finished, lead, places
from tape import Value, bent, einsum, exp, joined, power, put, take, total

START = 0.0001  # of the sum of a shortcut's weights


def _flat(x: Value) -> Value:
    return x.reshape(x.shape[0], -1)


# --- pooling --------------------------------------------------------------------------------------------------------------------


def _windows(s: Section, *, step: int | None = None) -> NDArray[np.intp]:
    """(c, size * size, out_h, out_w): places in the image, -1 outside. The padding is of both sides together."""
    _, c, h, w = s.input.shape
    stride = s.number("stride", 1)
    step_y, step_x = (step or s.number(name, stride) for name in ("stride_y", "stride_x"))
    size = s.number("size", stride)
    padding = s.number("padding", size - 1)
    k, dy, dx = np.ogrid[:c, :size, :size]
    row, column = np.ogrid[: (h + padding - size) // step_y + 1, : (w + padding - size) // step_x + 1]
    y = row * step_y + dy[..., None, None] - padding // 2
    x = column * step_x + dx[..., None, None] - padding // 2
    inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
    at = np.where(inside, (k[..., None, None] * h + y) * w + x, -1)
    return at.reshape(c, size * size, *at.shape[3:])


def _largest(x: Value, at: NDArray[np.intp], axis: int) -> Value:
    """Of each window along an axis of the places."""
    image = np.concatenate([_flat(x).value, np.full((x.shape[0], 1), -np.inf)], 1)
    inside = image[:, at]
    x = bent(x, lead(inside, axis + 1))
    winners = inside.argmax(axis + 1)
    rows = []
    for b in range(x.shape[0]):  # the winners of each image are its own
        chosen = np.take_along_axis(at, np.expand_dims(winners[b], axis), axis).squeeze(axis)
        rows.append(take(_flat(x[b : b + 1]), chosen))
    return joined(rows, 0)


def maxpool(s: Section) -> Value:
    if s.number("maxpool_depth"):
        _, c, h, w = s.input.shape
        n = s.number("out_channels", 1)
        at = np.arange(c * h * w).reshape(c // n, n, h, w)
        return _largest(s.input, at, 0)
    if not s.number("antialiasing"):
        return _largest(s.input, _windows(s), 1)
    return blurred(_largest(s.input, _windows(s, step=1), 1), s)


def local_avgpool(s: Section) -> Value:
    at = _windows(s)
    return total(take(_flat(s.input), at), 2).reshape(s.input.shape[0], len(at), *at.shape[2:]) * (1 / (at >= 0).sum(1))


def avgpool(s: Section) -> Value:
    return total(s.input, 2, 3) * (1 / np.prod(s.input.shape[2:]))


# --- moving ---------------------------------------------------------------------------------------------------------------------


def upsample(s: Section) -> Value:
    batch, c, h, w = s.input.shape
    stride, scale = s.number("stride", 2), s.real("scale", 1)
    if stride < 0:
        blocks = s.input.reshape(batch, c, h // -stride, -stride, w // -stride, -stride)
        return total(blocks, 3, 5).reshape(batch, c, h // -stride, w // -stride) * scale
    at = np.arange(c * h * w).reshape(c, h, w).repeat(stride, 1).repeat(stride, 2)
    return take(_flat(s.input), at) * scale


def _blocks(c: int, h: int, w: int, stride: int) -> NDArray[np.intp]:
    """For each value of (c, h, w), its place in the image that is stride times as high and wide."""
    few = c // stride**2
    k, row, column = np.ogrid[:c, :h, :w]
    x, y = column * stride + k // few % stride, row * stride + k // few // stride
    return x + w * stride * (y + h * stride * (k % few))


def reorg(s: Section) -> Value:
    """The first fork's order: as if the input had the output's sizes."""
    batch, c, h, w = s.input.shape
    stride, back = s.number("stride", 1), s.number("reverse")
    if s.number("extra"):
        return joined([s.input.reshape(batch, -1, 1, 1), Value(np.zeros((batch, s.number("extra"), 1, 1)))], 1)
    large, small = (c * stride**2, h // stride, w // stride), (c // stride**2, h * stride, w * stride)
    shape = small if back else large
    if s.number("flatten"):
        at = np.arange(c * h * w).reshape((h * w, c) if back else (c, h * w)).T
    elif s.type == "reorg3d":
        at = np.argsort(_blocks(*small, stride), None) if back else _blocks(*large, stride)
    else:
        at = np.argsort(_blocks(c, h, w, stride), None) if back else _blocks(c, h, w, stride)
    return take(_flat(s.input), at.ravel()).reshape(batch, *shape)


def route(s: Section) -> Value:
    groups, number = s.number("groups", 1), s.number("group_id")
    parts = []
    for source in s.sources("layers"):
        _, c, h, w = source.shape
        n = c // groups
        at = np.arange(n * number * h * w, n * (number + 1) * h * w).reshape(n, h, w)
        parts.append(take(_flat(source), at))
    return joined(parts, 1)


def kept(*shape: int) -> NDArray[np.bool_]:
    """What a [dropout] keeps here: two of three values."""
    return np.arange(np.prod(shape)).reshape(shape) % 3 > 0


def dropout(s: Section) -> Value:
    return s.input * (kept(*s.input.shape) / (1 - s.real("probability", 0.5)))


# --- joining --------------------------------------------------------------------------------------------------------------------


def shortcut(s: Section) -> Value:
    sources, x = s.sources("from"), s.input
    if "weights" not in s.arrays and len(sources) == 1:
        return activated(_scaled_sum(x, sources[0], s.real("alpha", 1), s.real("beta", 1)), s.options.get("activation", "linear"))
    layers = [x, *(_fitted(source, x) for source in sources)]
    if "weights" in s.arrays:
        weights = _shares(s, len(layers))
        layers = [layer * weights[i : i + 1].reshape(1, -1, 1, 1) for i, layer in enumerate(layers)]
    out = layers[0]
    for layer in layers[1:]:
        out = out + layer
    return activated(out, s.options.get("activation", "linear"))


def _fitted(source: Value, to: Value) -> Value:
    """The channels in common, with zeros for the others."""
    floats, wanted = int(np.prod(source.shape[1:])), int(np.prod(to.shape[1:]))
    at = np.where(np.arange(wanted) < floats, np.arange(wanted), -1)
    return take(_flat(source), at).reshape(*to.shape)


def _shares(s: Section, layers: int) -> Value:
    weights = s.arrays["weights"].reshape(layers, -1)
    kind = s.options.get("weights_normalization", "none")
    if kind == "none":
        return weights
    if kind == "softmax":
        winners = weights.value.argmax(0)
        weights = bent(weights, lead(weights.value, 0))
        powers = exp(weights - total(weights * (np.arange(layers)[:, None] == winners), 0))
    else:
        powers = bent(weights, np.abs(weights.value).min()) * (weights.value > 0)
    return powers * power(total(powers, 0) + START, -1)


def _scaled_sum(x: Value, source: Value, alpha: float, beta: float) -> Value:
    """alpha * x + beta * source where they meet, with a stride where one is larger."""
    (_, c, h, w), (_, c2, h2, w2) = x.shape, source.shape
    stride, sample = max(w2 // w, 1), max(w // w2, 1)
    met = (slice(None), slice(0, min(c, c2)), slice(0, min(h, h2) * sample, sample), slice(0, min(w, w2) * sample, sample))
    own = np.ones(x.shape)
    own[met] = alpha
    k, row, column = np.indices((c, h, w))
    inside = (k < c2) & (row % sample == 0) & (column % sample == 0) & (row // sample < h2) & (column // sample < w2)
    at = np.where(inside, (k * h2 + row // sample * stride) * w2 + column // sample * stride, -1)
    return x * own + take(_flat(source), at) * beta


def scale_channels(s: Section) -> Value:
    (source,) = s.sources("from")
    scales = s.input if s.number("scale_wh") else s.input.reshape(*s.input.shape[:2], 1, 1)
    return activated(source * scales, s.options.get("activation", "linear"))


def sam(s: Section) -> Value:
    (source,) = s.sources("from")
    return activated(source * s.input, s.options.get("activation", "linear"))


def implicit(s: Section) -> Value:
    batch = s.input.shape[0]
    rows = np.zeros((batch, s.number("filters"), s.number("atoms", 1), 1))
    return s.arrays["weights"].reshape(1, s.number("filters"), s.number("atoms", 1), 1) + rows


# --- over channels --------------------------------------------------------------------------------------------------------------


def l2norm(s: Section) -> Value:
    return s.input * power(total(s.input * s.input, 1), -0.5)


def normalization(s: Section) -> Value:
    """norms[0] is kappa + alpha * (squares of the channels below size/2); each later one takes and loses what its window does."""
    batch, c, h, w = s.input.shape
    size, alpha = s.number("size", 5), s.real("alpha", 0.0001)
    square = _flat(s.input * s.input)
    counted = np.zeros((c, c))  # how often channel j counts for channel k
    counted[0, : size // 2] = 1
    for k in range(1, c):
        counted[k] = counted[k - 1]
        leaves, enters = k - ((size - 1) // 2 + 1), k + size // 2
        if leaves >= 0:
            counted[k, leaves] -= 1
        if enters < c:
            counted[k, enters] += 1
    sums = einsum("bjp,kj->bkp", square.reshape(batch, c, h * w), Value(counted)).reshape(batch, c, h, w)
    return s.input * power(sums * alpha + s.real("kappa", 1), -s.real("beta", 0.75))


# --- weights of their own -------------------------------------------------------------------------------------------------------


def local(s: Section) -> Value:
    batch, c, h, w = s.input.shape
    stride, weights = s.number("stride", 1), s.arrays["weights"]
    at = places(c, h, w, size=weights.shape[3], step=(stride, stride), pad=s.number("pad"))
    columns = take(_flat(s.input), at).reshape(batch, at.shape[0], -1)
    out = einsum("bkp,pfk->bfp", columns, weights.reshape(weights.shape[0], weights.shape[1], -1))
    out = out + s.arrays["biases"].reshape(1, weights.shape[1], -1)
    return activated(out.reshape(batch, -1, *at.shape[1:]), s.options["activation"])


def deconvolutional(s: Section) -> Value:
    batch, c, h, w = s.input.shape
    weights, stride = s.arrays["weights"], s.number("stride", 1)
    n, size = weights.shape[1], weights.shape[2]
    pad = size // 2 if s.number("pad") else s.number("padding")
    out_h, out_w = ((side - 1) * stride + size - 2 * pad for side in (h, w))
    at = places(n, out_h, out_w, size=size, step=(stride, stride), pad=pad)
    columns = einsum("bcp,ck->bkp", s.input.reshape(batch, c, -1), weights.reshape(c, -1))
    laid = put(columns.reshape(batch, *at.shape), at, n * out_h * out_w).reshape(batch, n, out_h, out_w)
    return finished(laid, s, "convolutional", s.options["activation"])


PLANES: dict[str, Callable[[Section], Value]] = {
    "avgpool": avgpool,
    "deconvolutional": deconvolutional,
    "dropout": dropout,
    "implicit": implicit,
    "l2norm": l2norm,
    "local": local,
    "local_avgpool": local_avgpool,
    "maxpool": maxpool,
    "normalization": normalization,
    "reorg": reorg,
    "reorg3d": reorg,
    "route": route,
    "sam": sam,
    "scale_channels": scale_channels,
    "shortcut": shortcut,
    "upsample": upsample,
}
