"""The steps of a network give the bits of its forward, and what is measured on them is what the definitions say."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from nets import CFG, FASTEST, cfg_of, noise, ramp
from pydarknetbn.dialect import EpsilonRule
from pydarknetbn.doctor.arithmetic import Padding, convolve, normalize, pad
from pydarknetbn.doctor.measures import errors, multiple, multiples
from pydarknetbn.doctor.noise import noise_of
from pydarknetbn.doctor.precision import half_of, rounded_to_half
from pydarknetbn.doctor.running import Runner
from pydarknetbn.doctor.steps import INPUT, Step, steps_of
from pydarknetbn.doctor.teacher import Segment, walk

# --- steps are the forward ------------------------------------------------------------------------------------------------------


def assert_steps_are_the_forward(net: dn.Network, batch: int) -> None:
    x = noise(batch, net.c, net.h, net.w, seed=3)
    runner = Runner(net.clone())
    posts = {step.layer: value.copy() for step, value in runner.forward(x) if step.stage == "post"}
    net.forward(x)
    seen = 0
    for layer in net.layers:
        if layer.native is not None and not layer.passes_input:
            assert_same_bits(posts[layer.index], layer.output, f"layer {layer.index} [{layer.type}]")
            seen += 1
    assert seen


@pytest.mark.parametrize("path", sorted(CFG.glob("*.cfg")), ids=lambda path: path.stem)
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_are_the_forward_bit_for_bit(path, batch):
    net = dn.load(path, None, seed=5)
    for layer in net.layers:
        if "rolling_variance" in layer.params:
            layer.rolling_variance[...] = noise(*layer.rolling_variance.shape, seed=layer.index) + np.float32(0.01)
    assert_steps_are_the_forward(net, batch)


@pytest.mark.long
@pytest.mark.parametrize("name", FASTEST)
def test_steps_of_a_real_model_are_its_forward_bit_for_bit(models, name):
    assert_steps_are_the_forward(dn.load(models / f"{name}.cfg", models / f"{name}.weights"), 1)


def test_a_layers_parts_are_steps_and_name_what_they_take():
    net = dn.load(
        cfg_of(
            "conv batch_normalize=1 filters=4 size=3 pad=1 activation=leaky",
            "conv filters=4 size=1 activation=linear",
            "shortcut from=-2 activation=relu",
            "route layers=-1,0",
        ),
        None,
        seed=1,
    )
    got = [(step.layer, step.kind, step.stage, step.inputs) for step in steps_of(net)]
    assert got == [
        (0, "convolution", "sums", (INPUT,)),
        (0, "batchnorm", "normal", (0,)),
        (0, "activation", "post", (1,)),
        (1, "convolution", "sums", (2,)),
        (1, "biases", "post", (3,)),
        (2, "shortcut", "sums", (4, 2)),
        (2, "activation", "post", (5,)),
        (3, "route", "post", (6, 2)),
    ]


# --- arithmetic -----------------------------------------------------------------------------------------------------------------


def convolved(x, weights, stride, padding, dilation, groups):
    """The definition in double: for each output the products of its window."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), padding[:2], padding[2:]))
    n, depth, rows, columns = weights.shape
    out_h = (wide.shape[2] - dilation * (rows - 1) - 1) // stride[0] + 1
    out_w = (wide.shape[3] - dilation * (columns - 1) - 1) // stride[1] + 1
    made = np.zeros((len(x), n, out_h, out_w))
    for filter_, row, column in np.ndindex(n, out_h, out_w):
        first = filter_ // (n // groups) * depth
        top, left = row * stride[0], column * stride[1]
        window = wide[:, first : first + depth, top : top + dilation * rows : dilation, left : left + dilation * columns : dilation]
        made[:, filter_, row, column] = (window[:, :, :rows, :columns] * weights[filter_]).sum((1, 2, 3))
    return made


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0, 0, 0), 1, 1),
        ((2, 1), (0, 1, 2, 0), 1, 2),
        ((1, 3), (3, 0, 1, 2), 2, 1),
        ((2, 2), (1, 2, 0, 3), 2, 4),
    ],
)
def test_a_convolution_is_its_definition(stride, padding, dilation, groups):
    x, weights = noise(2, 8, 7, 9, seed=1) - np.float32(0.5), noise(4, 8 // groups, 3, 3, seed=2) - np.float32(0.5)
    got = convolve(x, weights, stride=stride, padding=Padding(*padding), dilation=dilation, groups=groups)
    want = convolved(x, weights, stride, padding, dilation, groups)
    assert got is not None
    assert got.shape == want.shape
    products = 9 * 8 // groups
    assert np.abs(got - want).max() <= products * 2.0**-24 * products / 4  # each partial sum, below products / 4, rounded once


def test_a_convolution_whose_sizes_do_not_fit_is_none():
    x = noise(1, 4, 5, 5)
    assert convolve(x, noise(4, 3, 3, 3)) is None
    assert convolve(x, noise(4, 4, 7, 7)) is None
    assert convolve(x, noise(3, 2, 3, 3), groups=2) is None
    assert convolve(x, noise(4, 4, 3, 3), dilation=3) is None


def test_padding_has_its_sides_and_cuts_where_it_is_negative():
    x = ramp(1, 2, 2)
    assert pad(x, Padding(1, 0, 0, 2), -7)[0, 0].tolist() == [[-7, -7, -7, -7], [0, 1, -7, -7], [2, 3, -7, -7]]
    assert pad(x, Padding(-1, 0, 0, 0))[0, 0].tolist() == [[2, 3]]
    assert pad(x, Padding(0, 0, 1, -1))[0, 0].tolist() == [[0, 0], [0, 2]]


def test_a_normalization_has_epsilon_on_its_side():
    arrays = [np.array([value], np.float32) for value in (1.0, 4.0, 3.0, 0.5)]  # mean, variance, scale, bias
    x = np.full((1, 1, 1, 1), 5, np.float32)
    inside = normalize(x, *arrays, EpsilonRule(5.0, "inside"))  # root of 9
    outside = normalize(x, *arrays, EpsilonRule(6.0, "outside"))  # 2 + 6
    assert inside.item() == 4.5
    assert outside.item() == 2.0


# --- noise ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True], ids=["pairwise", "backwards"])
@pytest.mark.parametrize("depth", [3, 16, 200])
def test_sums_in_another_order_are_within_the_budget_of_noise(depth, backwards):
    net = dn.load(cfg_of("conv filters=8 size=3 pad=1 activation=linear", c=depth, w=12, h=12), None, seed=2)
    runner = Runner(net)
    x = noise(2, depth, 12, 12, seed=4)
    step = runner.steps[0]
    sums = runner.run(step, [x])
    limit = noise_of(runner, step, [x], sums)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    products = np.einsum("bihwrc,oirc->bohwirc", windows, net.layers[0].weights).reshape(*sums.shape, -1)
    other = products[..., ::-1].cumsum(-1, dtype=np.float32)[..., -1] if backwards else products.sum(-1, dtype=np.float32)
    exact = products.astype(np.float64).sum(-1)
    assert np.abs(other - exact).max() > 0
    for value in (sums, other):
        apart = np.abs(value.astype(np.float64) - exact).max(axis=(0, 2, 3)) / limit
        assert apart.max() < 8  # the factor up to which a difference counts as rounding
    assert limit.max() < 1e-4 * np.abs(sums).max()


def test_what_only_copies_makes_no_noise_but_one_rounding():
    net = dn.load(cfg_of("maxpool size=2 stride=2"), None)
    runner = Runner(net)
    x = ramp(3, 8, 8)
    step = runner.steps[0]
    output = runner.run(step, [x])
    assert noise_of(runner, step, [x], output).tolist() == [63 * 2.0**-24, 127 * 2.0**-24, 191 * 2.0**-24]


# --- measures -------------------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_small_numbers():
    ours = np.array([3, -4, 0, 0], np.float32).reshape(1, 2, 1, 2)
    theirs = np.array([3, 3, 0, -0.0], np.float32).reshape(1, 2, 1, 2)
    got = errors(ours, theirs)
    assert got.largest == 1.0  # 7 of a range from -4 to 3
    assert (got.channel, got.flips, got.nan) == (0, 1, None)
    assert got.cosine == pytest.approx(-3 / (5 * math.sqrt(18)), rel=1e-12)
    assert got.sqnr == pytest.approx(10 * math.log10(25 / 49), rel=1e-12)


def test_errors_of_equal_values_are_none():
    x = noise(2, 3, 4, 4)
    got = errors(x, x.copy())
    assert (got.largest, got.p99, got.sqnr, got.flips) == (0.0, 0.0, math.inf, 0)
    assert got.cosine == pytest.approx(1, abs=1e-12)


def test_a_nan_has_its_place_and_is_infinitely_far_from_a_number():
    ours, theirs = ramp(2, 2, 2), ramp(2, 2, 2)
    theirs[0, 1, 0, 1] = np.nan
    got = errors(ours, theirs)
    assert got.largest == math.inf
    assert (got.nan, got.channel) == ((0, 1, 0, 1), 1)
    ours[0, 1, 0, 1] = np.nan
    assert errors(ours, theirs).largest == 0.0


def test_multiples_are_of_the_noise_of_each_channel():
    ours, theirs = np.zeros((1, 2, 1, 2), np.float32), np.array([0.5, 0, 0, 3], np.float32).reshape(1, 2, 1, 2)
    limit = np.array([0.25, 3.0])
    assert multiple(ours, theirs, limit) == 2.0
    assert multiples(ours, theirs, limit) == (pytest.approx(math.sqrt(5 / 4)), 2.0)


# --- on the other side's values -------------------------------------------------------------------------------------------------

CHAIN = cfg_of("conv batch_normalize=1 filters=4 size=3 pad=1 activation=leaky", "conv filters=3 size=1 activation=linear")


def segments(path: Iterator[Segment | Step]) -> list[Segment]:
    return [each for each in path if isinstance(each, Segment)]


def test_steps_that_the_other_side_does_not_show_are_parts_of_a_segment():
    runner = Runner(dn.load(CHAIN, None, seed=3))
    x = noise(1, 3, 8, 8, seed=4)
    values = {step.number: value for step, value in runner.forward(x)}
    first, second = segments(walk(runner, x, {2: values[2], 4: values[4]}))
    assert [step.number for step in first.steps] == [0, 1, 2]
    assert [step.number for step in second.steps] == [3, 4]
    assert (first.multiple, second.multiple) == (0.0, 0.0)


def test_a_fault_does_not_go_on_through_the_others_values():
    runner = Runner(dn.load(CHAIN, None, seed=3))
    x = noise(1, 3, 8, 8, seed=4)
    values = {step.number: value for step, value in runner.forward(x)}
    wrong = values[2] + np.float32(1)
    after = runner.run(runner.steps[4], [runner.run(runner.steps[3], [wrong])])
    forced = segments(walk(runner, x, {2: wrong, 4: after}))
    assert forced[0].multiple > 1000
    assert forced[1].multiple == 0.0
    free = segments(walk(runner, x, {2: wrong, 4: after}, forced=False))
    assert free[1].multiple > 1000
    assert [step.number for step in free[1].steps] == [0, 1, 2, 3, 4]


def test_a_segment_is_run_again_with_one_step_changed():
    runner = Runner(dn.load(CHAIN, None, seed=3))
    x = noise(1, 3, 8, 8, seed=4)
    values = {step.number: value for step, value in runner.forward(x)}
    relu = np.maximum(values[1], 0)
    (segment,) = segments(walk(runner, x, {2: relu}))
    assert segment.multiple > 1000
    right = segment.rerun({2: lambda step, inputs: np.maximum(inputs[0], 0)})
    assert right is not None
    assert segment.left_over(right) == (0.0, 0.0)
    assert segment.rerun({0: lambda step, inputs: None}) is None
    assert segment.rerun({0: lambda step, inputs: inputs[0]}) is None  # three channels where four are


def test_a_changed_input_is_a_part_of_the_first_segment_where_it_is_unknown():
    runner = Runner(dn.load(CHAIN, None, seed=3))
    x = noise(1, 3, 8, 8, seed=4)
    values = {step.number: value for step, value in runner.forward(x)}
    (segment,) = segments(walk(runner, x, {0: values[0]}, known=False))
    assert [step.number for step in segment.steps] == [INPUT, 0]


# --- half precision -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_half_precision_shows_in_the_values(name, unit):
    arrays = [rounded_to_half(noise(3, 40, 5, seed=seed), name) for seed in range(3)]
    found = half_of(arrays)
    assert found is not None
    assert (found.name, found.unit) == (name, unit)
    assert half_of([arrays[0], noise(3, 40, 5), noise(3, 40, 5, seed=9)]) is None  # most are float32


def test_float32_and_whole_numbers_are_no_half():
    assert half_of([noise(3, 40, 5)]) is None
    assert half_of([np.arange(-100, 100, dtype=np.float32)]) is None
    assert half_of([np.zeros((5, 100), np.float32)]) is None
    assert half_of([]) is None


def test_rounding_to_half_goes_to_the_nearest_and_to_even():
    x = np.array([1 + 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -3.0], np.float32)
    assert rounded_to_half(x, "bfloat16").tolist() == [1.0, 1.0, 1 + 4 * 2.0**-8, 1 + 2 * 2.0**-8, -3.0]
    y = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 70000.0], np.float32)
    assert rounded_to_half(y, "float16").tolist() == [1.0, 1 + 4 * 2.0**-11, math.inf]
