"""What ports do otherwise in a reorg and a dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..._native import Array
from ..situation import Hypothesis, Place, Trial
from .joining import told_of

__all__ = ["dropout", "reorg"]


# --- reorg ---------------------------------------------------------------------------------------------------------------------


def reorg(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """A space-to-depth in another order, or the other way round."""
    native = place.layer.native
    if native is None or native.flatten:
        return
    stride, kind = int(native.stride_x), place.step.kind
    for words, run in _reorgs(stride).items():
        told = f"the reorg is {words}; Darknet's [{kind}] takes its values in an order of its own"
        fix = f"rebuild Darknet's [{kind}] with reshape and transpose, or take dn.convert.to_torch's"

        def tried(place: Place, run: Callable[[Array], Array | None] = run) -> Array | None:
            made = run(place.inputs[0])
            return None if made is None or made.shape[1:] != tuple(place.step.shape) else np.ascontiguousarray(made)

        yield told_of("reorg.order", kind, told, fix, tried, order=words)


def _reorgs(stride: int) -> Mapping[str, Callable[[Array], Array | None]]:
    """Ways to go from (batch, c, h, w) to (batch, c * stride², h / stride, w / stride)."""
    return {
        "PyTorch's pixel_unshuffle (channel, row, column)": lambda x: _blocks(x, stride, (1, 3, 5)),
        "a space-to-depth of (row, column, channel), as ONNX's and TensorFlow's": lambda x: _blocks(x, stride, (3, 5, 1)),
        "a space-to-depth of (column, row, channel)": lambda x: _blocks(x, stride, (5, 3, 1)),
        "a pixel_unshuffle of (channel, column, row)": lambda x: _blocks(x, stride, (1, 5, 3)),
        "a space-to-depth of (row, channel, column)": lambda x: _blocks(x, stride, (3, 1, 5)),
        "a space-to-depth of (column, channel, row)": lambda x: _blocks(x, stride, (5, 1, 3)),
        "Darknet's first [reorg], which is no space-to-depth": lambda x: _first_reorg(x, stride),
        "a plain reshape": lambda x: _deep(x, stride),
    }


def _deep(x: Array, stride: int) -> Array:
    """The floats in their order, as an image of stride² times the channels."""
    batch, c, h, w = x.shape
    return x.reshape(batch, c * stride * stride, h // stride, w // stride)


def _blocks(x: Array, stride: int, axes: tuple[int, ...]) -> Array | None:
    """A space-to-depth whose channels are in the order of those axes: 1 channel, 3 row and 5 column within a block."""
    batch, c, h, w = x.shape
    if h % stride or w % stride:
        return None
    blocks = x.reshape(batch, c, h // stride, stride, w // stride, stride)
    return _deep(blocks.transpose(0, *axes, 2, 4).reshape(x.shape), stride)


def _first_reorg(x: Array, stride: int) -> Array | None:
    """The image's floats taken as (c / stride², h * stride, w * stride), and that turned into depth."""
    batch, c, h, w = x.shape
    if c % stride**2:
        return None
    wide = x.reshape(batch, c // stride**2, h, stride, w, stride).transpose(0, 3, 5, 1, 2, 4)
    return _deep(wide.reshape(x.shape), stride)


# --- dropout -------------------------------------------------------------------------------------------------------------------


def dropout(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """Active at inference: some values are 0, the others all larger by one factor. The mask is read off the other side."""
    theirs = place.theirs
    x = place.inputs[0]
    if theirs is None or theirs.shape != x.shape:
        return
    alive = (x != 0) & (theirs != 0)
    share = float(alive.sum() / max(1, np.count_nonzero(x)))
    if not 0.01 < share < 0.999:
        return
    factor = float(np.median(theirs[alive] / x[alive]))
    kept = theirs != 0

    def run(place: Place) -> Array | None:
        return None if place.inputs[0].shape != kept.shape else np.asarray(place.inputs[0] * kept * np.float32(factor))

    words = (
        f"the dropout is active: {1 - share:.0%} of the values are 0 and the others {factor:.3g} times as large; "
        "Darknet's passes everything on outside training"
    )
    fix = {"": "switch to inference", "torch": "module.eval()", "keras": "model(x, training=False)", "onnx": "export in eval mode"}
    yield Hypothesis("dropout.active", words, {place.step.kind: run}, fix, {"dropped": 1 - share, "factor": factor}, 1)
