"""What ports do otherwise in a convolution: around the image, between the groups, and in the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product

import numpy as np

from ..._native import Array
from ..arithmetic import Padding
from ..precision import rounded_to_half
from ..situation import Hypothesis, Place, Trial
from .grouping import groups_of
from .sums import sums_of

__all__ = ["convolution"]

_DILATIONS = (1, 2, 3, 4)
_AXES = ("out", "in", "row", "column")


def convolution(place: Place, _: Trial) -> Iterator[Hypothesis]:
    """Of the step that gives a convolution's sums."""
    native = place.layer.native
    if native is None:
        return
    if "rolling_mean" in place.layer.shapes:
        yield _biased()
        yield _left_out()
        yield _folded()
    if native.size > 1:
        yield from _flips()
    yield from _orders(place)
    yield from _paddings(place)
    if native.groups > 1:
        yield from groups_of(place)
    if native.size > 1:
        yield from _dilations(place)
    yield from _halves()


def _hypothesis(
    kind: str, words: str, fix: dict[str, str], run: Callable[[Place], Array | None], **values: float | int | str
) -> Hypothesis:
    return Hypothesis(kind, words, {"convolution": run}, fix, values)


def _biased() -> Hypothesis:
    def run(place: Place) -> Array:
        return np.asarray(place.right + place.layer.biases[:, None, None])

    words = "the convolution adds the biases, and its batchnorm adds them again; in Darknet they are the batchnorm's alone"
    fix = {
        "": "give the convolution no bias",
        "torch": "Conv2d(..., bias=False)",
        "keras": "Conv2D(..., use_bias=False)",
        "onnx": "Conv without a third input",
    }
    return _hypothesis("batchnorm.bias_kept", words, fix, run)


def _folded() -> Hypothesis:
    def run(place: Place) -> Array:
        batchnorm = place.runner.steps[place.step.number + 1]
        return place.runner.run(batchnorm, [place.right])

    words = "the batchnorm is folded into the convolution and kept as well, so that it is applied twice"
    fix = {"": "leave out the batchnorm behind a convolution that it is folded into"}
    return _hypothesis("batchnorm.twice", words, fix, run)


def _left_out() -> Hypothesis:
    def run(place: Place) -> Array | None:
        x = place.inputs[0]
        return x if x.shape[1:] == tuple(place.step.shape) else None

    words = "the batchnorm is fed with the convolution's input instead of its output"
    fix = {"": "feed the batchnorm with the convolution's output"}
    return _hypothesis("batchnorm.wrong_input", words, fix, run)


# --- the kernel ----------------------------------------------------------------------------------------------------------------


def _flips() -> Iterator[Hypothesis]:
    turned = {
        "both axes": (slice(None, None, -1), slice(None, None, -1)),
        "its rows": (slice(None, None, -1), slice(None)),
        "its columns": (slice(None), slice(None, None, -1)),
    }
    for name, (rows, columns) in turned.items():

        def run(place: Place, rows: slice = rows, columns: slice = columns) -> Array | None:
            return sums_of(place, place.layer.weights[:, :, rows, columns])

        words = f"the convolution's kernel is flipped along {name}; Darknet's is a cross-correlation, as read from the file"
        fix = {"": "do not flip the kernel", "torch": "weight.flip(2, 3) undoes it; load the kernel as it stands in the file"}
        yield _hypothesis("convolution.flipped", words, fix, run, along=name)


def _orders(place: Place) -> Iterator[Hypothesis]:
    """The file's floats read in another order of axes, and axes of equal size exchanged."""
    shape = place.layer.weights.shape
    seen = {place.layer.weights.tobytes()}
    for axes in permutations(range(4)):
        if axes == (0, 1, 2, 3):
            continue
        names = ", ".join(_AXES[axis] for axis in axes)

        def reordered(weights: Array, axes: tuple[int, ...] = axes) -> Array:
            """The floats taken as an array of those axes, brought back to (out, in, row, column)."""
            read = weights.reshape([weights.shape[axis] for axis in axes])
            return np.ascontiguousarray(read.transpose(np.argsort(axes)))

        def exchanged(weights: Array, axes: tuple[int, ...] = axes) -> Array | None:
            turned = np.ascontiguousarray(weights.transpose(axes))
            return turned if turned.shape == weights.shape else None

        for kind, change in (("convolution.axes", exchanged), ("convolution.order", reordered)):
            weights = change(place.layer.weights)
            if weights is None or weights.tobytes() in seen:
                continue
            seen.add(weights.tobytes())

            def run(place: Place, change: Callable[[Array], Array | None] = change) -> Array | None:
                kernel = change(place.layer.weights)
                return None if kernel is None else sums_of(place, kernel)

            yield _hypothesis(kind, _order_words(kind, names, shape), _order_fix(), run, axes=names)


def _order_words(kind: str, names: str, shape: tuple[int, ...]) -> str:
    if kind == "convolution.axes":
        return f"the kernel's axes are permuted to ({names}); Darknet's are (out, in, row, column)"
    return f"the file's kernel is read as ({names}); Darknet stores {shape} as (out, in, row, column)"


def _order_fix() -> dict[str, str]:
    return {
        "": "read the floats as (out, in, row, column), then transpose",
        "torch": "read as (out, in / groups, row, column), which is Conv2d's own order",
        "keras": "reshape to (out, in, row, column), then transpose(2, 3, 1, 0)",
        "onnx": "Conv takes (out, in / groups, row, column), the order of the file",
    }


# --- around the image ----------------------------------------------------------------------------------------------------------


def _paddings(place: Place) -> Iterator[Hypothesis]:
    """Every border that leaves the output's size as it is, rows and columns alike first."""
    native = place.layer.native
    assert native is not None
    border, most = int(native.pad * native.dilation), int(native.size * native.dilation)
    sides = sorted(product(range(most + 1), repeat=2), key=lambda pair: (abs(pair[0] - pair[1]), pair))
    wrong = [pair for pair in sides if pair != (border, border)]
    for before, after in wrong:
        yield _padding(Padding(before, after, before, after), border, int(native.stride_x))
    if not (place.layer.out_shape.w == 1 and place.layer.out_shape.h == 1):
        for before, after in [pair for pair in wrong if sum(pair) <= 2 * border + native.stride_x]:
            yield _padding(Padding(before, after, border, border), border, int(native.stride_x))
            yield _padding(Padding(border, border, before, after), border, int(native.stride_x))


def _padding(padding: Padding, border: int, stride: int) -> Hypothesis:
    def run(place: Place) -> Array | None:
        made = sums_of(place, place.layer.weights, padding=padding)
        h, w = place.step.shape[1:]
        if made is None or made.shape[2] < h or made.shape[3] < w:
            return None
        return np.ascontiguousarray(made[:, :, :h, :w])

    top, bottom, left, right = padding
    same = " (which is what padding='same' does with a stride)" if (top, left) == (border - 1, border - 1) and stride > 1 else ""
    words = (
        f"the convolution pads {top} rows above, {bottom} below, {left} columns left and {right} right{same}; "
        f"Darknet pads {border} on each side"
    )
    fix = {
        "": f"pad {border} on each side",
        "torch": f"Conv2d(..., padding={border})",
        "keras": f"ZeroPadding2D({border}), then Conv2D(padding='valid')",
        "onnx": f"pads = [{border}, {border}, {border}, {border}]",
    }
    return _hypothesis("convolution.padding", words, fix, run, top=top, bottom=bottom, left=left, right=right)


def _dilations(place: Place) -> Iterator[Hypothesis]:
    native = place.layer.native
    assert native is not None
    size, own = int(native.size), int(native.dilation)
    for dilation in _DILATIONS:
        if dilation == own:
            continue
        for border in sorted({int(native.pad) * own, int(native.pad) * dilation, (size - 1) * dilation // 2}):

            def run(place: Place, dilation: int = dilation, border: int = border) -> Array | None:
                padding = Padding(border, border, border, border)
                made = sums_of(place, place.layer.weights, padding=padding, dilation=dilation)
                return made if made is not None and made.shape[1:] == tuple(place.step.shape) else None

            words = f"the convolution's dilation is {dilation} with a padding of {border}; Darknet's is {own}"
            fix = {
                "": f"dilation {own}, padding {native.pad * own}",
                "torch": f"Conv2d(..., dilation={own}, padding={native.pad * own})",
            }
            yield _hypothesis("convolution.dilation", words, fix, run, dilation=dilation, padding=border)


# --- half precision ------------------------------------------------------------------------------------------------------------


def _halves() -> Iterator[Hypothesis]:
    for name in ("float16", "bfloat16"):

        def weights_alone(place: Place, name: str = name) -> Array | None:
            return sums_of(place, rounded_to_half(place.layer.weights, name))

        def both(place: Place, name: str = name) -> Array | None:
            return sums_of(place, rounded_to_half(place.layer.weights, name), x=rounded_to_half(place.inputs[0], name))

        for what, run in (("kernel", weights_alone), ("kernel and its input", both)):
            words = (
                f"the convolution's {what} are rounded to {name}"
                if "and" in what
                else f"the convolution's {what} is rounded to {name}"
            )
            fix = {"": "keep float32", "torch": "module.float()", "onnx": "export with float32"}
            yield _hypothesis("half.precision", f"{words}; Darknet computes in float32", fix, run, type=name)
