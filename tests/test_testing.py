"""assert_matches: what passes, and what the message says of what does not."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, tiny_yolo
from pydarknetbn.golden import read_golden
from pydarknetbn.testing import assert_matches, golden_input

ALL = ("sums", "normal", "post", "boxes")


def activations(net=None, stages=ALL, x=3) -> dict[str, np.ndarray]:
    return {name: array for name, array in dn.dump(net or tiny_yolo(), x, stages=stages).items() if name != "__metadata__"}


@pytest.fixture
def path(tmp_path):
    dn.dump(tiny_yolo(), 3, golden=True, stages=ALL).save(tmp_path / "golden.npz")
    return tmp_path / "golden.npz"


def failure(acts, path, **options) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_matches(acts, path, **options)
    return str(caught.value)


# --- what passes ----------------------------------------------------------------------------------------------------------------


def test_the_input_is_the_bundle_s(path):
    assert np.array_equal(golden_input(path), np.random.default_rng(3).random((1, 3, 32, 32), np.float32))


def test_equal_values_pass_with_any_tolerance(path):
    for tolerance in (None, 0, 1e-6):
        assert_matches(activations(), path, tolerance=tolerance)


def test_another_order_of_rounding_passes_but_not_bit_for_bit(path):
    folded = activations(dn.fold(tiny_yolo())[0], ("post",))
    assert_matches(folded, path)
    assert "SHA-256 of all values: another one" in failure(folded, path, tolerance=0)


def test_another_epsilon_does_not_pass(path):
    other = tiny_yolo(profile="keras")
    assert failure(activations(other), path).startswith(
        "Layer 0 [convolutional], normal (given as '0.normal'), is not as it should be!"
    )


@pytest.mark.parametrize("name", ["2.post", "2_convolutional", "2_convolutional.post", "2 [convolutional] post", "2", 2])
def test_a_layer_may_be_called_in_each_of_these_ways(path, name):
    value = activations()["2.post"]
    assert_matches({name: value}, path)
    assert f"(given as {str(name)!r})" in failure({name: value + 1}, path)


@pytest.mark.parametrize("names", [{"2": "conv"}, {"2.post": "conv"}, {2: "conv"}])
def test_a_map_names_layers(path, names):
    value = activations()["2.post"]
    assert_matches({"conv": value}, path, names=names)
    assert "Layer 2 [convolutional], post (given as 'conv')" in failure({"conv": value + 1}, path, names=names)


def test_a_map_may_be_a_file(path, tmp_path):
    (tmp_path / "names.txt").write_text("# layer = name\n2 = conv\n0.sums = first\n")
    values = activations()
    assert_matches({"conv": values["2.post"], "first": values["0.sums"]}, path, names=tmp_path / "names.txt", tolerance=0)


def test_a_map_wins_over_a_name(path):
    values = activations()
    assert_matches({"3.post": values["2.post"]}, path, names={"2": "3.post"})


@pytest.mark.parametrize("form", ["NCHW", "NHWC", "CHW", "HWC", "float64", "torch", "torch half"])
def test_layouts_and_types_are_read(path, form):
    value = activations()["4.post"]
    made = {
        "NCHW": value,
        "NHWC": value.transpose(0, 2, 3, 1),
        "CHW": value[0],
        "HWC": value[0].transpose(1, 2, 0),
        "float64": value.astype(np.float64),
    }.get(form)
    if made is None:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        made = torch.from_numpy(value.copy()).requires_grad_()
        made = made.bfloat16() if form == "torch half" else made
    assert_matches({"4.post": made}, path, tolerance=1e-2 if form == "torch half" else 0)
    assert "Layer 4 [shortcut], post" in failure({"4.post": made + 1}, path)


def test_a_value_whose_sides_are_all_equal_is_read_in_the_layout_that_fits(tmp_path):
    net = dn.load(cfg_of("conv filters=4 size=1 activation=linear", w=4, h=4, c=3), seed=2)
    dn.dump(net, 0, golden=True).save(tmp_path / "golden.npz")
    value = activations(net, ("post",), 0)["0.post"]
    assert_matches({"0.post": value}, tmp_path / "golden.npz")
    assert_matches({"0.post": np.ascontiguousarray(value.transpose(0, 2, 3, 1))}, tmp_path / "golden.npz")


def test_a_vector_needs_no_sides(tmp_path):
    net = dn.load(cfg_of("connected output=5 activation=leaky", w=2, h=2, c=1), seed=2)
    dn.dump(net, 0, golden=True).save(tmp_path / "golden.npz")
    assert_matches({0: activations(net, ("post",), 0)["0.post"].reshape(1, 5)}, tmp_path / "golden.npz", tolerance=0)


def test_nan_where_there_is_nan_passes(tmp_path):
    net = dn.load(cfg_of("conv filters=1 size=1 batch_normalize=1 activation=linear", w=2, h=2, c=1), profile="alexeyab-cpu")
    net.layers[0].rolling_variance[...] = -1
    dn.dump(net, 0, golden=True).save(tmp_path / "golden.npz")
    value = activations(net, ("post",), 0)["0.post"]
    assert np.isnan(value).all()
    assert_matches({0: value}, tmp_path / "golden.npz")
    assert "Mismatched elements: 4 / 4 sampled" in failure({0: np.zeros_like(value)}, tmp_path / "golden.npz")


# --- what is told ---------------------------------------------------------------------------------------------------------------


def test_the_first_layer_that_differs_is_named_with_numbers(path):
    values = activations(stages=("post",))
    step = read_golden(path)["3.post"]
    values["3.post"][step.index(7)] += 0.25
    values["5.post"] += 1
    del values["1.post"]
    lines = failure(dict(reversed(values.items())), path).splitlines()
    assert lines[0] == "Layer 3 [convolutional], post (given as '3.post'), is not as it should be!"
    assert lines[2] == "Mismatched elements: 1 / 240 sampled (0.4%)"
    expected = step.samples[7]
    assert lines[3].startswith(
        f"Greatest absolute difference: {np.float64(expected + np.float32(0.25)) - expected:.9g} at index {step.index(7)} (up to "
    )
    assert lines[3].endswith(f"allowed): expected {expected:.9g}, got {expected + np.float32(0.25):.9g}")
    assert lines[4].startswith("Greatest relative difference: ")
    assert f"at index {step.index(7)}: expected" in lines[4]
    assert lines[-4] == "After it 1 more of the 12 compared differ: 5.post"
    assert lines[-3] == "Not given, so not compared: 0.sums, 0.normal, 1.post, 2.sums, 2.normal, 3.sums and 5 more"
    assert "√(v+1e-05)" in lines[-2]
    assert lines[-1] == "Input: seed 3: numpy.random.default_rng(3).random((1, 3, 32, 32), numpy.float32)"


def test_a_change_of_any_step_is_named(path):
    for key, value in activations().items():
        changed = activations()
        at = read_golden(path)[key].index(0)
        changed[key][at] += 0.01 * np.ptp(value)
        assert f"(given as {key!r}), is not as it should be!" in failure(changed, path), key
        assert "After it" not in failure(changed, path)


def unsampled(step) -> tuple[int, ...]:
    """Index of a value that is none of the samples."""
    at = next(at for at in range(10**6) if at not in set(step.places.tolist()))
    return tuple(int(axis) for axis in np.unravel_index(at, step.shape))


def test_one_value_between_the_samples_is_seen_by_mean_extremes_and_hash(path):
    step = read_golden(path)["0.post"]
    value = activations()["0.post"]
    value[unsampled(step)] += 100
    told = failure({"0.post": value}, path)
    assert "Mismatched elements: 0 / 240 sampled (0.0%)" in told
    for words in ("Mean of channel 0: expected", "Mean of all: expected", "Standard deviation of all", "Largest value of all"):
        assert words in told
    assert "Smallest value of all" not in told
    value[unsampled(step)] -= 200
    assert "Smallest value of all: expected" in failure({"0.post": value}, path)


def test_a_channel_s_mean_is_seen_where_that_of_all_is_right(path):
    step = read_golden(path)["0.post"]
    value = activations()["0.post"]
    kept = value.reshape(-1)[step.places].copy()
    value[0, 0] += 0.01
    value[0, 1] -= 0.01
    value.reshape(-1)[step.places] = kept
    told = failure({"0.post": value}, path)
    assert "Mean of channel 1: expected" in told or "Mean of channel 0: expected" in told
    assert told.splitlines()[3].endswith(", and of 1 more")
    assert "Mean of all" not in told


def test_the_last_bit_between_the_samples_is_seen_with_tolerance_0(path):
    step = read_golden(path)["0.post"]
    value = activations()["0.post"]
    at = unsampled(step)
    value[at] = np.nextafter(value[at], np.float32(9))
    assert_matches({"0.post": value}, path)
    assert "at least one bit differs" in failure({"0.post": value}, path, tolerance=0)


def test_tolerance_is_a_share_of_the_range(path):
    value = activations()["0.post"]
    off = value + np.float32(0.01 * np.ptp(value))
    assert_matches({"0.post": off}, path, tolerance=0.0101)
    assert "Layer 0" in failure({"0.post": off}, path, tolerance=0.0099)


def test_nan_and_infinity_are_told(path):
    value = activations()["0.post"]
    value[0, 2, 3, 4] = np.nan
    assert "First NaN at index (0, 2, 3, 4)" in failure({"0.post": value}, path)
    value = activations()["0.post"] * np.float32(np.inf)
    assert "Greatest absolute difference: inf at index" in failure({"0.post": value}, path)


def test_another_shape_is_told(path):
    told = failure({"4.post": np.zeros((1, 8, 8, 9), np.float32)}, path)
    shape = read_golden(path)["4.post"].shape
    assert f"another shape: expected {shape} or as (batch, h, w, c), got (1, 8, 8, 9)" in told


def test_nothing_that_is_known_fails(path):
    assert "None of the activations ('conv1', 'conv2') is a layer of" in failure({"conv1": 1, "conv2": 2}, path)
    assert "None of the activations (nothing)" in failure({}, path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"99": "conv"}, r"names: there is no layer 99; the network's are 0 to 12"),
        ({"2": "other"}, r"names: 2 is called 'other', which is no value of the other side; it has 1, such as conv"),
    ],
)
def test_a_map_that_names_nothing_is_refused(path, names, message):
    with pytest.raises(dn.CfgError, match=message):
        assert_matches({"conv": np.zeros(1)}, path, names=names)


def test_wrong_arguments_are_refused(path, tmp_path):
    with pytest.raises(ValueError, match="expected a tolerance of 0 or more, got -1"):
        assert_matches({}, path, tolerance=-1)
    with pytest.raises(TypeError, match=r"expected '2.post' to be an array of numbers, got str"):
        assert_matches({"2.post": "text"}, path)
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(dn.DumpError, match=r"text.npz: cannot be read"):
        assert_matches({}, tmp_path / "text.npz")
