"""Layers that look at one pixel, its channels, or a window: the smallest input that tells right from wrong."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits, same_bits
from nets import cfg_of, noise, ramp, refusal, weights_of
from pydarknetbn._native import Array
from pydarknetbn.dialect import DIALECTS

LATER = ("alexeyab", "hank-ai")
COPY = "upsample stride=1"


def run(x: Array, *sections: str, floats: list[float] | None = None, dialect: str = "alexeyab") -> Array:
    """The last layer's output of a network whose input is `x`."""
    c, h, w = x.shape[1:]
    weights = None if floats is None else weights_of(np.array(floats, np.float32))
    with dn.load(cfg_of(*sections, w=w, h=h, c=c), weights, dialect=dialect) as net:
        return net.forward(x)[0]


def channels(*values: float) -> Array:
    """One pixel."""
    return np.array(values, np.float32).reshape(1, -1, 1, 1)


# --- activations ----------------------------------------------------------------------------------------------------------------


def test_activation_of_its_own_changes_each_value():
    assert run(channels(-2, 0, 3), "activation activation=relu").ravel().tolist() == [0, 0, 3]
    assert run(channels(-2, 0, 3), "activation").ravel().tolist() == [-2, 0, 3]


def test_logistic_is_the_activation_in_double():
    got = run(channels(-2, 0, 3), "logistic", dialect="pjreddie").ravel()
    assert_same_bits(got, (1 / (1 + np.exp(-np.array([-2.0, 0, 3])))).astype(np.float32), "logistic")


HOSTS = {
    "activation": ["activation activation={}"],
    "convolutional": ["conv filters=3 size=1 groups=3 activation={}"],
    "connected": ["connected output=3 activation={}"],
    "shortcut": [COPY, "upsample stride=1 scale=0", "shortcut from=0 activation={}"],
}
IDENTITY = {"convolutional": [0, 0, 0, 1, 1, 1], "connected": [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]}


@pytest.mark.parametrize("dialect", LATER)
@pytest.mark.parametrize("host", ["activation", "convolutional", "connected", "shortcut"])
def test_normalize_channels_shares_out_each_pixel_in_every_layer(host, dialect):
    """x / (1e-4 + sum of the positive), exp(x) / (1e-4 + sum): what a name says, also where a fork gives zeros."""
    if host == "activation" and dialect == "hank-ai":
        pytest.skip("no such section")
    x, floats = channels(1, -2, 3), IDENTITY.get(host)
    exponentials = np.exp([1.0, -2, 3])
    want = {
        "normalize_channels": np.array([1, 0, 3]) / 4.0001,
        "normalize_channels_softmax": exponentials / (exponentials.sum() + 1e-4),
        "normalize_channels_softmax_maxval": exponentials / (exponentials.sum() + 1e-4 * np.exp(3.0)),
    }
    for name, shares in want.items():
        got = run(x, *(section.format(name) for section in HOSTS[host]), floats=floats, dialect=dialect)
        assert got.ravel() == pytest.approx(shares, rel=4e-7)  # five roundings and libm's exp


def test_normalize_channels_looks_at_one_pixel_and_one_image():
    x = noise(2, 3, 2, 4) - np.float32(0.3)
    got = run(x, "activation activation=normalize_channels")
    positive = np.maximum(x.astype(np.float64), 0)
    assert np.allclose(got, positive / (positive.sum(axis=1, keepdims=True) + 1e-4), rtol=4e-7)


# --- over channels --------------------------------------------------------------------------------------------------------------


def test_l2norm_gives_each_pixel_the_length_1():
    x = np.array([[[[3, 0]], [[4, 2]]]], np.float32)
    assert run(x, "l2norm", dialect="pjreddie").ravel().tolist() == [np.float32(0.6), 0, np.float32(0.8), 1]


def lrn(x: Array, size: int, alpha: float, beta: float, kappa: float) -> Array:
    """In float64, with the forks' window: the first has one channel too few, and each later one the same one too few."""
    squares = x.astype(np.float64) ** 2
    c, out = x.shape[1], np.empty(x.shape)
    for k in range(c):
        first = range(min(size // 2, c))
        entered = [channel for channel in range(1 + size // 2, k + size // 2 + 1) if channel < c]
        left = [channel for channel in range(k - (size - 1) // 2) if channel >= 0]
        total = sum(squares[:, channel] for channel in [*first, *entered])
        total = total - sum((squares[:, channel] for channel in left), np.zeros_like(squares[:, 0]))
        out[:, k] = x[:, k] * (kappa + alpha * total) ** -beta
    return out


@pytest.mark.parametrize("size", [1, 2, 4, 5, 13])
def test_normalization_divides_by_the_forks_window(size, threads):
    """Also where the window is wider than the channels, of which the forks read what lies behind them."""
    x = noise(3, 6, 2, 3)
    got = run(x, f"normalization size={size} alpha=.5 beta=.75 kappa=2", dialect="pjreddie")
    assert np.allclose(got, lrn(x, size, 0.5, 0.75, 2), rtol=1e-6)  # a dozen float steps, then one power


def test_normalization_has_the_forks_defaults():
    x = 20 * noise(1, 8, 1, 2)
    assert same_bits(run(x, "lrn"), run(x, "normalization size=5 alpha=.0001 beta=.75 kappa=1"))
    assert not same_bits(run(x, "lrn"), x)


@pytest.mark.parametrize("dialect", LATER)
def test_scale_channels_takes_one_factor_for_each_channel_or_each_pixel(dialect):
    x = ramp(2, 1, 3, batch=2, start=1)
    means = run(x, COPY, "avgpool", "scale_channels from=0", dialect=dialect)
    assert means.reshape(4, 3).tolist() == [[2, 4, 6], [20, 25, 30], [56, 64, 72], [110, 121, 132]]
    one = "conv filters=1 size=1 activation=linear"
    pixels = run(x, COPY, one, "scale_channels from=0 scale_wh=1", floats=[0, 1, 0], dialect=dialect)
    assert pixels.reshape(4, 3).tolist() == [[1, 4, 9], [4, 10, 18], [49, 64, 81], [70, 88, 108]]


@pytest.mark.parametrize("dialect", LATER)
def test_sam_multiplies_value_by_value_and_activates(dialect):
    x = ramp(2, 1, 2, batch=2) - 3
    got = run(x, COPY, "upsample stride=1 scale=-2", "sam from=0 activation=relu", dialect=dialect)
    assert_same_bits(got, np.maximum(-2 * x * x, 0) * np.float32(-0.0), "sam")
    got = run(x, COPY, "upsample stride=1 scale=2", "sam from=-2", dialect=dialect)
    assert_same_bits(got, 2 * x * x, "sam")


def test_implicit_gives_its_weights_whatever_comes_in():
    got = run(noise(2, 3, 4, 4), "implicit filters=2 atoms=3", floats=[1, 2, 3, 4, 5, 6])
    assert got.shape == (2, 2, 3, 1)
    assert got.reshape(2, 6).tolist() == [[1, 2, 3, 4, 5, 6]] * 2


def test_implicit_starts_around_its_mean():
    weights = dn.load(cfg_of("implicit filters=400 mean=2 std=.5"), dialect="alexeyab").layers[0].weights
    assert 1.5 <= weights.min() < 1.6
    assert 2.4 < weights.max() <= 2.5


# --- windows --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", LATER)
@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("size=2 stride=2", [[3.5, 5.5], [11.5, 13.5]]),
        ("size=3 stride=2", [[3.5, 5], [9.5, 11]]),
        ("size=3 stride=1 padding=0", [[6, 7], [10, 11]]),
        ("size=2 stride_x=2 stride_y=3", [[3.5, 5.5], [13.5, 15.5]]),
    ],
)
def test_local_avgpool_is_the_mean_of_what_lies_in_the_image(options, want, dialect):
    """At the lower edge the window of two rows holds one."""
    assert run(ramp(1, 4, 4, start=1), f"local_avgpool {options}", dialect=dialect)[0, 0].tolist() == want


@pytest.mark.parametrize("dialect", LATER)
def test_maxpool_depth_takes_every_nth_channel(dialect):
    x = channels(1, 7, 3, 2, 5, 0).repeat(2, axis=0)
    x[1] = -x[1]
    got = run(x, "maxpool maxpool_depth=1 out_channels=2", dialect=dialect)
    assert got.reshape(2, 2).tolist() == [[5, 7], [-1, 0]]
    assert run(x, "maxpool out_channels=2", dialect=dialect).shape == (2, 6, 1, 1)


@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
def test_crop_takes_the_middle_and_spreads_it_from_minus_1_to_1(dialect):
    x = ramp(1, 4, 5) / 32
    got = run(x, "crop crop_height=2 crop_width=2", dialect=dialect)
    assert got[0, 0].tolist() == [[-0.625, -0.5625], [-0.3125, -0.25]]
    assert run(x, "crop crop_height=2 crop_width=2 noadjust=1", dialect=dialect)[0, 0].tolist() == [
        [6 / 32, 7 / 32],
        [11 / 32, 12 / 32],
    ]
    zero = run(np.full((1, 1, 1, 1), -0.0, np.float32), "crop noadjust=1", dialect=dialect)
    assert not np.signbit(zero).any()  # 1 * -0 + 0


def test_crop_in_training_is_refused():
    net = dn.load(cfg_of("crop crop_height=2 crop_width=2"), dialect="pjreddie")
    with pytest.raises(dn.UnsupportedError, match=r"\[crop\] in training"):
        net.forward(noise(1, 3, 8, 8), train=True)


@pytest.mark.parametrize("name", ["empty", "silence"])
def test_empty_passes_on_and_counts_as_a_layer(name):
    got = run(ramp(1, 2, 2), COPY, "upsample stride=1 scale=3", name, "shortcut from=0")
    assert got.ravel().tolist() == [0, 4, 8, 12]
    assert run(ramp(1, 2, 2), name).ravel().tolist() == [0, 1, 2, 3]


# --- antialiasing ---------------------------------------------------------------------------------------------------------------

BLUR = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]], np.float32) / 16


def blurred(x: Array, stride_x: int, stride_y: int, kind: int = 1) -> Array:
    """Exact for small whole numbers."""
    kernel = np.full((2, 2), 0.25, np.float32) if kind == 2 else BLUR
    pad = 0 if kind == 2 else 1
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape, axis=(2, 3))
    return np.einsum("bchwij,ij->bchw", windows, kernel)[:, :, ::stride_y, ::stride_x].astype(np.float32)


@pytest.mark.parametrize("dialect", LATER)
@pytest.mark.parametrize(("options", "strides"), [("stride=2", (2, 2)), ("stride=1", (1, 1)), ("stride_x=2 stride_y=3", (2, 3))])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_antialiasing_blurs_with_the_stride_what_was_made_without(options, strides, kind, dialect, threads):
    x = np.random.default_rng(3).integers(-64, 64, (2, 2, 7, 8)).astype(np.float32)
    cases = {
        "conv filters=2 size=1 groups=2 activation=relu": ([0, 0, 1, -1], np.maximum(x * np.array([[[1]], [[-1]]], np.float32), 0)),
        "maxpool size=1 padding=0": (None, x),
    }
    for section, (floats, sharp) in cases.items():
        plain = section if floats is None else f"{section} pad=1"
        got = run(x, f"{plain} {options} antialiasing={kind}", floats=floats, dialect=dialect)
        assert np.array_equal(got, blurred(sharp, *strides, kind))


def test_layer_after_an_antialiased_one_and_a_route_to_it_have_its_output():
    x = ramp(1, 4, 4)
    got = run(x, "maxpool size=1 stride=2 antialiasing=1", "upsample stride=1 scale=2", "route layers=0,1")
    want = blurred(x, 2, 2)
    assert_same_bits(got, np.concatenate([want, 2 * want], axis=1), "route")


def test_blur_wider_than_the_image_is_refused():
    message = refusal(dn.CfgError, cfg_of("max size=8 padding=0 antialiasing=2"))
    assert "a kernel of 2 x 2 is larger than an image of 1 x 1" in message


# --- what has no effect, and what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", ["coordconv=1", "reverse=1", "sway=1", "rotate=1", "stretch=1", "stretch_sway=1", "assisted_excitation=1"]
)
@pytest.mark.parametrize("dialect", LATER)
def test_option_that_only_gpu_code_or_training_reads_changes_nothing_and_is_no_warning(option, dialect):
    plain = "conv filters=2 size=3 pad=1 activation=linear"
    nets = [dn.load(cfg_of(section), dialect=dialect) for section in (plain, f"{plain} {option}")]
    assert nets[1].warnings == ()
    assert same_bits(*(net.forward(noise(1, 3, 8, 8))[0] for net in nets))


WRONG = {
    "two deformations": (["conv size=3 sway=1 rotate=1"], 8, "has sway=1 and rotate=1; take one of"),
    "a deformation of one pixel": (["conv sway=1"], 6, "has sway=1 and size=1"),
    "a crop of more than there is": (["crop crop_height=9 crop_width=2"], 5, "a crop of 2 x 9 is larger than 8 x 8"),
    "a scale for too few channels": (
        ["max", "avgpool", "conv filters=2", "scale_channels from=0"],
        9,
        "1 x 1 x 2 cannot scale each channel",
    ),
    "a scale of pixels with channels": (["max", "scale_channels from=0 scale_wh=1"], 6, "8 x 8 x 3 cannot scale each pixel"),
    "a sam of another size": (["max", "max size=2 stride=2", "sam from=0"], 9, "8 x 8 x 3 cannot be multiplied by 4 x 4 x 3"),
    "a sam of nothing": (["max", "sam"], 6, "needs from="),
    "no channels to pool": (["max maxpool_depth=1 out_channels=0"], 7, "out_channels='0', expected 1 or more"),
    "a window of no size": (["normalization size=0"], 6, "size='0', expected 1 or more"),
}


@pytest.mark.parametrize(("sections", "line", "words"), WRONG.values(), ids=WRONG)
def test_options_that_make_no_layer_are_refused_with_their_line(sections, line, words):
    message = refusal(dn.CfgError, cfg_of(*sections), dialect="alexeyab")
    assert message.startswith(f"<bytes>:{line}: ")
    assert words in message


def test_dialects_know_their_own_sections():
    for section, known in {"l2norm": {"pjreddie"}, "sam from=0": {"alexeyab", "hank-ai"}, "implicit": {"alexeyab"}}.items():
        for dialect in DIALECTS:
            text = cfg_of("max", section)
            if dialect in known:
                dn.load(text, dialect=dialect)
            else:
                assert section.split()[0] in refusal(dn.CfgError, text, dialect=dialect)


@pytest.mark.parametrize("section", ["maxpool", "local_avgpool"])
def test_window_far_larger_than_the_image_looks_at_the_image_alone(section):
    """2,000,000,000 rows of padding are no work."""
    got = run(ramp(1, 2, 2), f"{section} size=2000000000", dialect="alexeyab")
    assert got.shape == (1, 1, 2, 2)
    assert got.ravel().tolist() == [3.0 if section == "maxpool" else 1.5] * 4
