"""What a hypothesis of a convolution, activation, maxpool or upsample gives is that fault as defined in double."""

from __future__ import annotations

import math

import numpy as np
import pytest

from places import Patient, patient

# --- convolution ----------------------------------------------------------------------------------------------------------------


def conv(x, weights, *, stride=1, padding=(1, 1, 1, 1), dilation=1, groups=1):
    """Top, bottom, left, right; in double."""
    wide = np.pad(x, ((0, 0), (0, 0), padding[:2], padding[2:]))
    n, depth, size, _ = weights.shape
    reach = dilation * (size - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(wide, (reach, reach), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    parts = [
        np.einsum(
            "bihwrc,oirc->bohw", windows[:, g * depth : (g + 1) * depth], weights[g * (n // groups) : (g + 1) * (n // groups)]
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, 1)


def conv3(options: str = "stride=1", c: int = 6) -> Patient:
    return patient(f"conv filters=4 size=3 pad=1 activation=linear {options}", kind="convolution", c=c)


@pytest.mark.parametrize(
    ("along", "turned"), [("both axes", (-1, -1)), ("its rows", (-1, 1)), ("its columns", (1, -1))], ids=["both", "rows", "columns"]
)
def test_a_flipped_kernel(along, turned):
    port = conv3()
    port.assert_gives(port.of("convolution.flipped", along=along), conv(port.x, port.weights()[:, :, :: turned[0], :: turned[1]]))


def test_axes_that_are_exchanged_and_floats_that_are_read_in_another_order():
    port = conv3()
    weights = port.weights()
    port.assert_gives(port.of("convolution.axes", axes="out, in, column, row"), conv(port.x, weights.transpose(0, 1, 3, 2)))
    ohwi = weights.ravel().reshape(4, 3, 3, 6).transpose(0, 3, 1, 2)
    port.assert_gives(port.of("convolution.order", axes="out, row, column, in"), conv(port.x, ohwi))
    hwio = weights.ravel().reshape(3, 3, 6, 4).transpose(3, 2, 0, 1)
    found = port.of("convolution.order", axes="row, column, in, out")
    port.assert_gives(found, conv(port.x, hwio))
    assert "Darknet stores (4, 6, 3, 3) as (out, in, row, column)" in found.words
    assert found.local is None


@pytest.mark.parametrize("sides", [(0, 1, 0, 1), (0, 0, 0, 0), (2, 0, 2, 0), (0, 1, 1, 1)])
def test_another_padding(sides):
    port = conv3("stride=2")
    names = dict(zip(("top", "bottom", "left", "right"), sides, strict=True))
    found = [each for each in port.hypotheses() if each.kind == "convolution.padding" and dict(each.values) == names]
    if sides == (0, 0, 0, 0):  # three columns where four are
        assert [port.run(each) for each in found] == [None]
        return
    port.assert_gives(found[0], conv(port.x, port.weights(), stride=2, padding=sides)[:, :, :4, :4])
    assert ("which is what padding='same' does with a stride" in found[0].words) == (sides == (0, 1, 0, 1))
    assert found[0].words.endswith("Darknet pads 1 on each side")
    assert found[0].fix["torch"] == "Conv2d(..., padding=1)"


def test_another_dilation():
    port = conv3("dilation=2")
    found = port.of("convolution.dilation", dilation=1, padding=1)
    port.assert_gives(found, conv(port.x, port.weights()))
    assert found.words == "the convolution's dilation is 1 with a padding of 1; Darknet's is 2"
    assert found.fix["torch"] == "Conv2d(..., dilation=2, padding=2)"


def grouped(x, weights, order=slice(None), **options):
    return conv(x[:, order], weights, groups=2, **options)


GROUPS = {
    "every filter reads the first group": lambda x, w: conv(x[:, :3], w),
    "every filter reads all groups": lambda x, w: conv(x[:, :3] + x[:, 3:], w),
    "each group takes every so many channels": lambda x, w: grouped(x, w, [0, 2, 4, 1, 3, 5]),
    "from the last to the first": lambda x, w: grouped(x, w, [3, 4, 5, 0, 1, 2]),
    "dealt out to the groups in turn": lambda x, w: np.stack(
        [conv(x[:, 3 * (n % 2) :][:, :3], w[n : n + 1])[:, 0] for n in range(4)], 1
    ),
    "shuffled between the groups": lambda x, w: grouped(x, w)[:, [0, 2, 1, 3]],
}


@pytest.mark.parametrize("words", GROUPS)
def test_other_groups(words):
    port = conv3("groups=2")
    found = port.of("convolution.groups", words)
    port.assert_gives(found, GROUPS[words](port.x, port.weights()))
    assert found.words.endswith("; Darknet has 2 groups of neighbors")
    assert found.fix["torch"] == "Conv2d(..., groups=2)"


def test_another_number_of_groups():
    port = conv3("groups=2", c=8)
    x, weights = port.x, port.weights()
    four = port.of("convolution.groups", groups=4)
    port.assert_gives(four, conv(x, weights[:, :2], groups=4))
    one = port.of("convolution.groups", groups=1)
    port.assert_gives(one, conv(x, np.concatenate([weights, weights], 1)))
    assert four.words == "the convolution has 4 groups; Darknet has 2"


def test_a_bias_that_is_kept_and_a_batchnorm_of_the_input():
    def biases(net):
        net.layers[0].biases[...] = [1, -2, 3, 4]

    port = patient("conv batch_normalize=1 filters=4 size=3 pad=1", kind="convolution", c=4, change=biases)
    added = np.array([1.0, -2, 3, 4])[:, None, None]
    port.assert_gives(port.of("batchnorm.bias_kept"), conv(port.x, port.weights()) + added)
    port.assert_gives(port.of("batchnorm.wrong_input"), port.x)
    other = patient("conv batch_normalize=1 filters=4 size=3 pad=1", kind="convolution")
    assert other.run(other.of("batchnorm.wrong_input")) is None  # three channels where four are


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_a_kernel_that_is_rounded(name, bits):
    port = conv3()
    mantissa, exponent = np.frexp(port.weights())
    rounded = np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)  # ties to even, as np.round
    found = [each for each in port.hypotheses() if each.kind == "half.precision" and each.values == {"type": name}]
    assert [each.words.split(" rounded")[0] for each in found] == [
        "the convolution's kernel is",
        "the convolution's kernel and its input are",
    ]
    got = port.run(found[0])
    assert np.abs(got - conv(port.x, rounded)).max() <= 16 * 2.0**-24 * np.abs(got).max()
    assert np.abs(got - port.place.right).max() > 2.0 ** -(bits + 4) * np.abs(got).max()


# --- activation -----------------------------------------------------------------------------------------------------------------


def active(name: str) -> Patient:
    return patient(f"conv filters=4 size=3 pad=1 activation={name}", kind="activation")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


KINDS = {
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "swish": lambda x: x * sigmoid(x),
    "logistic": sigmoid,
    "tanh": np.tanh,
    "hard swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "quick gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "twice": lambda x: np.where(x > 0, x, 0.01 * x),
}


@pytest.mark.parametrize("name", KINDS)
def test_another_activation(name):
    port = active("leaky")
    found = port.of("activation.kind", activation=name)
    port.assert_gives(found, KINDS[name](port.x))
    assert "leaky" in found.words
    assert found.fix["torch"] == "LeakyReLU(0.1)"


def test_another_slope():
    port = active("leaky")
    for slope in (0.01, 0.2, 0.3):
        found = port.of("activation.slope", slope=slope)
        port.assert_gives(found, np.where(port.x > 0, port.x, slope * port.x))
        assert found.words == f"the slope for negative values is {slope}; Darknet's leaky has 0.1"


def test_a_slope_that_nobody_uses_is_recovered():
    port = active("leaky")
    theirs = np.where(port.x > 0, port.x, 0.1734 * port.x)
    (found,) = [each for each in port.hypotheses(theirs) if each.kind == "activation.slope" and each.parameters]
    assert found.values["slope"] == pytest.approx(0.1734, abs=1e-5)
    assert "is 0.1734;" in found.words


MISHES = {
    "x * tanh(exp(x))": lambda x: x * np.tanh(np.exp(x)),
    "x * sigmoid(softplus(x))": lambda x: x * sigmoid(softplus(x)),
    "tanh(softplus(x))": lambda x: np.tanh(softplus(x)),
    "x * softplus(tanh(x))": lambda x: x * softplus(np.tanh(x)),
    "x * tanh(log(1 + exp(x))) with base 2": lambda x: x * np.tanh(np.log2(1 + np.exp(x))),
    "x * softplus(x)": lambda x: x * softplus(x),
    "x * tanh(softplus(2x) / 2)": lambda x: x * np.tanh(softplus(2 * x) / 2),
    "mish with softplus cut at 1": lambda x: x * np.tanh(np.where(x > 1, x, softplus(x))),
    "mish with x * x instead of exp(x)": lambda x: x * np.tanh(np.log1p(x * x)),
    "hard_mish": lambda x: np.where(x > 0, x, x * np.clip(x + 2, 0, 2) / 2),
}


@pytest.mark.parametrize("variant", MISHES)
def test_a_mish_that_is_none(variant):
    port = active("mish")
    found = port.of("activation.mish", variant=variant)
    port.assert_gives(found, MISHES[variant](port.x))
    assert found.words == f"mish is computed as {variant}; Darknet's is x * tanh(log(1 + exp(x)))"


# --- maxpool --------------------------------------------------------------------------------------------------------------------


def pooled(x, before, after, value, *, size=2, stride=1):
    wide = np.pad(x, ((0, 0), (0, 0), (before, after), (before, after)), constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(wide, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def test_a_maxpool_that_pads_zeros_or_on_another_side():
    port = patient("maxpool size=2 stride=1", kind="maxpool")
    zeros = port.of("maxpool.padding")
    port.assert_gives(zeros, pooled(port.x, 0, 1, 0.0).max((4, 5)))
    side = port.of("maxpool.side", before=1, after=0, value=-math.inf)
    port.assert_gives(side, pooled(port.x, 1, 0, -np.inf).max((4, 5)))
    assert side.words == "the maxpool pads 1 before and 0 after each row and column; Darknet pads 0 and 1"
    assert side.fix["onnx"] == "MaxPool with pads = [0, 0, 1, 1] and no Pad node before it"
    port.assert_gives(port.of("maxpool.kind"), pooled(port.x, 0, 1, 0.0).mean((4, 5)))
    assert port.run(port.of("maxpool.side", before=0, after=0, value=-math.inf)) is None  # seven rows where eight are


# --- upsample -------------------------------------------------------------------------------------------------------------------


def line(values, at):
    """Linear interpolation along the last axis, the ends repeated."""
    at = np.clip(at, 0, values.shape[-1] - 1)
    low = np.minimum(at.astype(int), values.shape[-1] - 2)
    return values[..., low] * (1 - (at - low)) + values[..., low + 1] * (at - low)


AT = {
    "bilinear": (np.arange(16) + 0.5) / 2 - 0.5,
    "bilinear with corners aligned": np.arange(16) * 7 / 15,
    "bilinear from the first pixel": np.arange(16) / 2,
    "nearest with rounding to the next pixel": np.floor(np.arange(16) / 2 + 0.5),
}


@pytest.mark.parametrize("mode", AT)
def test_an_upsample_between_the_pixels(mode):
    port = patient("upsample stride=2", kind="upsample")
    found = port.of("upsample.mode", mode=mode)
    port.assert_gives(found, line(line(port.x, AT[mode]).swapaxes(2, 3), AT[mode]).swapaxes(2, 3))
    assert found.fix["torch"] == "Upsample(scale_factor=2, mode='nearest')"


def test_an_upsample_of_another_scale():
    port = patient("upsample stride=2 scale=0.5", kind="upsample")
    right = port.x.repeat(2, 2).repeat(2, 3)
    one = next(each for each in port.hypotheses() if each.kind == "upsample.scale" and each.values == {"scale": 1.0})
    port.assert_gives(one, right)
    assert one.words == "the upsample multiplies values by 1; Darknet's by 0.5"
    (found,) = [each for each in port.hypotheses(right * 1.37) if each.kind == "upsample.scale" and each.parameters]
    assert found.values["scale"] == pytest.approx(1.37, abs=1e-5)
