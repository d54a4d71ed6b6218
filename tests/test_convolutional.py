"""The convolutional layer against recorded numbers, a float64 definition and values worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from core import CoreLayer, assert_same_bits, batchnorm, convolutional, recorded, recorded_files
from hosts import check_backward, check_forwards
from oracle import convolution
from pydarknetbn._native import Array
from pydarknetbn.dialect import PROFILES
from pydarknetbn.errors import NumericsError, ShapeError

PARAMS = ("batch", "c", "h", "w", "n", "groups", "size", "stride", "pad", "dilation", "batch_normalize")


def named(path: Path) -> tuple[str, bool]:
    """The activation of a case and whether it has a batchnorm."""
    found = re.fullmatch(r"k\ds\dp\d(?:dw|g2|dil2|c3)?_(\w+)_bn([01])(?:_accdelta)?", path.stem)
    assert found, path.stem
    return found[1], found[2] == "1"


def layer_of(path: Path, params: Array, activation: str) -> CoreLayer:
    options = dict(zip(PARAMS, (int(value) for value in params), strict=True))
    del options["batch"]
    stride = options.pop("stride")
    return convolutional(path.parent.name, activation, stride_x=stride, stride_y=stride, **options)


def computed(path: Path | None) -> bool:
    """Not: one fork's relu6 that is 0, and cases that matter to the backward pass alone."""
    if path is None:
        return True
    return not is_zero(path) and not path.stem.endswith("_accdelta")


def is_zero(path: Path) -> bool:
    """One fork's relu6 gives 0."""
    return named(path)[0] == "relu6" and path.parent.name == "alexeyab-cpu"


CASES = [case for case in recorded_files("conv/*-cpu/*.npz") if computed(case.values[0])]
BACKWARD = [case for case in recorded_files("conv/*-cpu/*.npz") if case.values[0] is None or not is_zero(case.values[0])]


@pytest.mark.parametrize("path", CASES)
def test_forward_is_the_recorded_one(path: Path, threads: int, functions: str) -> None:
    inputs, want, _ = recorded(path)
    check_forwards(lambda activation: layer_of(path, inputs["params"], activation), named(path)[0], inputs, want)


@pytest.mark.parametrize("path", BACKWARD)
def test_backward_and_update_are_the_recorded_ones(path: Path, threads: int, functions: str) -> None:
    inputs, want, _ = recorded(path)
    activation = named(path)[0]
    check_backward(layer_of(path, inputs["params"], activation), activation, inputs, want)


def test_relu6_clips_where_one_fork_gives_zero() -> None:
    x = np.array([-3, -0.5, 0, 0.5, 5.75, 6, 6.25, 1e30], np.float32).reshape(1, 1, 2, 4)
    layer = convolutional("alexeyab-cpu", "relu6", h=2, w=4)
    layer.array("weights")[...] = 1
    assert layer.forward(x).ravel().tolist() == [0, 0, 0, 0.5, 5.75, 6, 6, 6]


# --- by hand ------------------------------------------------------------------------------------------------------------


def test_stride_2_pads_both_sides_and_drops_the_rest_at_the_right() -> None:
    layer = convolutional("pjreddie-cpu", h=4, w=4, size=3, stride_x=2, stride_y=2, pad=1)
    layer.array("weights")[4] = 1
    assert layer.forward(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))[0, 0].tolist() == [[0, 2], [8, 10]]


def test_grouped_weights_are_counted_by_group() -> None:
    layer = convolutional("pjreddie-cpu", c=4, h=3, w=3, n=6, groups=2, size=3, pad=1, batch_normalize=1)
    channels = [layer.array(name) for name in ("biases", "scales", "rolling_mean", "rolling_variance")]
    assert layer.array("weights").size + sum(array.size for array in channels) == 132


def test_filter_f_reads_the_block_of_its_group() -> None:
    layer = convolutional("pjreddie-cpu", c=4, n=6, groups=2)
    layer.array("weights")[...] = 1
    x = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1, 1)
    assert layer.forward(x).ravel().tolist() == [11, 11, 11, 1100, 1100, 1100]


def test_depthwise_filters_see_one_channel_each() -> None:
    layer = convolutional("pjreddie-cpu", c=3, n=3, groups=3)
    layer.array("weights")[...] = [2, 3, 5]
    assert layer.forward(np.ones((1, 3, 1, 1), np.float32)).ravel().tolist() == [2, 3, 5]


@pytest.mark.parametrize(
    ("profile", "want"),
    [("pjreddie-cpu", [[0, 1], [2, 3]]), ("alexeyab-cpu", [[0, 2], [8, 10]]), ("hank-ai-cpu", [[0, 2], [8, 10]])],
)
def test_size_1_with_a_stride_reads_the_first_pixels_under_one_profile(profile: str, want: list[list[float]]) -> None:
    layer = convolutional(profile, h=4, w=4, stride_x=2, stride_y=2)
    layer.array("weights")[...] = 1
    assert layer.forward(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))[0, 0].tolist() == want


@pytest.mark.parametrize("profile", list(PROFILES))
def test_size_1_with_padding_never_reads_past_the_image(profile: str) -> None:
    layer = convolutional(profile, h=2, w=2, pad=1)
    layer.array("weights")[...] = 1
    x = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 1, 2, 2)
    assert layer.forward(x)[0, 0].tolist() == [[0, 0, 0, 0], [0, 1, 2, 0], [0, 3, 4, 0], [0, 0, 0, 0]]


def test_batchnorm_behind_an_identity_equals_the_layer_of_its_own() -> None:
    x = np.random.default_rng(3).normal(2, 3, (3, 2, 4, 4)).astype(np.float32)
    host = convolutional("pjreddie-cpu", c=2, h=4, w=4, n=2, groups=2, batch_normalize=1)
    host.array("weights")[...] = 1
    alone = batchnorm(PROFILES["pjreddie-cpu"].rule("convolutional"), 2, 4, 4)
    for train in (True, True, False):
        assert_same_bits(alone.forward(x, train=train), host.forward(x, train=train), "output")
    for name in ("mean", "variance", "rolling_mean", "rolling_variance", "x", "x_norm"):
        assert_same_bits(alone.array(name), host.array(name), name)


# --- against the definition -----------------------------------------------------------------------------------------------

SHAPES = [
    {"c": 3, "h": 7, "w": 5, "n": 4, "size": 3, "pad": 1},
    {"c": 4, "h": 9, "w": 7, "n": 6, "size": 3, "pad": 1, "groups": 2, "stride_x": 2, "stride_y": 2},
    {"c": 5, "h": 6, "w": 8, "n": 5, "size": 3, "pad": 1, "groups": 5},
    {"c": 2, "h": 11, "w": 9, "n": 3, "size": 3, "pad": 1, "dilation": 2},
    {"c": 8, "h": 13, "w": 13, "n": 9, "size": 1},
    {"c": 2, "h": 10, "w": 12, "n": 1, "size": 5, "pad": 2, "stride_x": 3, "stride_y": 1},
    {"c": 1, "h": 1, "w": 1, "n": 1, "size": 1},
]


@pytest.mark.parametrize("options", SHAPES)
def test_forward_is_the_definition(options: dict[str, int], threads: int) -> None:
    """Bound: a sum of k float products in any order is within k * 2^-24 of the sum of their magnitudes; one more for the bias."""
    rng = np.random.default_rng(7)
    layer = convolutional("alexeyab-cpu", **options)
    x = rng.normal(size=(2, options["c"], options["h"], options["w"])).astype(np.float32)
    for name in ("weights", "biases"):
        layer.array(name)[...] = rng.normal(size=layer.array(name).shape)
    depth = options["c"] // options.get("groups", 1) * options["size"] ** 2
    weights = layer.array("weights").reshape(options["n"], -1, options["size"], options["size"])
    want = convolution(x, weights, options) + layer.array("biases")[:, None, None].astype(np.float64)
    size = convolution(np.abs(x), np.abs(weights), options) + np.abs(layer.array("biases"))[:, None, None]
    got = layer.forward(x)
    assert got.shape == want.shape
    assert np.all(np.abs(got - want) <= (depth + 1) * 2.0**-24 * size)


def test_three_images_equal_three_batches_of_one() -> None:
    rng = np.random.default_rng(11)
    layer = convolutional("pjreddie-cpu", "leaky", c=3, h=9, w=7, n=5, size=3, pad=1, batch_normalize=1)
    layer.array("weights")[...] = rng.normal(size=layer.array("weights").shape)
    layer.array("rolling_mean")[...] = rng.normal(size=5)
    layer.array("rolling_variance")[...] = rng.uniform(0.5, 2, 5)
    x = rng.normal(size=(3, 3, 9, 7)).astype(np.float32)
    together = layer.forward(x)
    for i in range(3):
        assert_same_bits(layer.forward(x[i : i + 1]), together[i : i + 1], f"image {i}")


# --- refused ------------------------------------------------------------------------------------------------------------

HUGE = 2**62


@pytest.mark.parametrize("name", ["c", "h", "w", "n", "groups", "size", "stride_x", "stride_y", "dilation"])
def test_a_size_of_0_is_refused(name: str) -> None:
    with pytest.raises(ShapeError):
        convolutional("pjreddie-cpu", **{name: 0})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"c": 4, "n": 6, "groups": 3}, "4 channels and 6 filters do not both divide into 3 groups"),
        ({"c": 4, "n": 5, "groups": 2}, "4 channels and 5 filters do not both divide into 2 groups"),
        ({"h": 2, "w": 2, "size": 3}, "a kernel of 3 x 3 is larger than an image of 2 x 2 with a padding of 0"),
    ],
)
def test_options_that_make_no_layer_are_refused_with_numbers(options: dict[str, int], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        convolutional("pjreddie-cpu", **options)


@pytest.mark.parametrize("batch_normalize", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {"c": HUGE},
        {"n": HUGE},
        {"h": HUGE},
        {"w": 2**40},
        {"size": 2**40, "h": 5},
        {"pad": 2**40},
        {"pad": 2**31, "dilation": 2**31},
        {"dilation": 2**40, "size": 3},
        {"size": 2**31, "pad": 2**30},
        {"c": 2**40, "h": 2**20, "w": 2**20},
        {"c": 2**32, "n": 2**32, "size": 3, "pad": 1},
        {"n": 2**50},
        {"c": 2**25, "n": 2**25},
    ],
)
def test_sizes_beyond_the_address_space_are_errors(options: dict[str, int], batch_normalize: int) -> None:
    with pytest.raises((ShapeError, MemoryError)):
        convolutional("pjreddie-cpu", **options, batch_normalize=batch_normalize)


@pytest.mark.parametrize("stride", [2**32, 2**63])
def test_a_stride_over_the_whole_image_takes_one_pixel(stride: int) -> None:
    layer = convolutional("alexeyab-cpu", h=3, w=3, stride_x=stride, stride_y=stride)
    layer.array("weights")[...] = 1
    assert layer.forward(np.full((1, 1, 3, 3), 5, np.float32)).ravel().tolist() == [5]


def test_one_value_in_a_channel_cannot_be_normalised_in_training() -> None:
    layer = convolutional("pjreddie-cpu", batch_normalize=1)
    with pytest.raises(NumericsError, match="one value in each channel"):
        layer.forward(np.ones((1, 1, 1, 1), np.float32), train=True)


# --- what follows the sums ----------------------------------------------------------------------------------------------

FINISHED = [
    {"c": 3, "h": 19, "w": 23, "n": 7, "size": 3, "pad": 1},
    {"c": 8, "h": 13, "w": 13, "n": 40, "size": 1},
    {"c": 6, "h": 9, "w": 11, "n": 6, "groups": 6, "size": 3, "pad": 1, "stride_x": 2, "stride_y": 2},
    {"c": 4, "h": 40, "w": 40, "n": 12, "groups": 2, "size": 3, "pad": 1},
    {"c": 5, "h": 3, "w": 3, "n": 9, "size": 3, "pad": 1},  # planes too small for a call each
]


@pytest.mark.parametrize("batch_normalize", [0, 1])
@pytest.mark.parametrize("activation", ["linear", "leaky", "mish", "normalize_channels"])
@pytest.mark.parametrize("options", FINISHED)
def test_finishing_at_once_has_the_bits_of_pass_after_pass(
    options: dict[str, int], activation: str, batch_normalize: int, threads: int
) -> None:
    """A forward that keeps x for a backward goes over memory once for each step."""
    rng = np.random.default_rng(11)
    for profile in ("pjreddie-cpu", "alexeyab-cpu", "hank-ai-cpu"):
        layer = convolutional(profile, activation, batch_normalize=batch_normalize, **options)
        for name in ("weights", "biases", *(("scales", "rolling_mean") if batch_normalize else ())):
            layer.array(name)[...] = rng.normal(size=layer.array(name).shape)
        if batch_normalize:
            layer.array("rolling_variance")[...] = rng.uniform(0.2, 3, options["n"])
        x = rng.normal(size=(2, options["c"], options["h"], options["w"])).astype(np.float32)
        assert_same_bits(layer.forward(x), layer.forward(x, cache=True), profile)
