"""Each of the other side's values is put to the step that it is, whatever its name, layout and faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import CFG, cfg_of, noise, tiny_yolo
from pydarknetbn import convert
from pydarknetbn._native import Array
from pydarknetbn.doctor.matching import Matching, match
from pydarknetbn.doctor.running import Runner
from pydarknetbn.doctor.sources import trace_of
from pydarknetbn.doctor.steps import INPUT
from pydarknetbn.doctor.trace import Tensor, Trace

WEIGHTS = CFG.parent / "pydarknetbn" / "data" / "shapes.weights"


class Side:
    """A network and its values, of which a port's are made."""

    def __init__(self, net: dn.Network, batch: int = 2) -> None:
        self.net, self.runner = net, Runner(net)
        self.x = noise(batch, net.c, net.h, net.w, seed=8)
        self.values = {step.number: value.copy() for step, value in self.runner.forward(self.x)}

    def at(self, layer: int, stage: str = "post") -> int:
        return next(step.number for step in self.runner.steps if (step.layer, step.stage) == (layer, stage))

    def of_stage(self, *stages: str) -> dict[int, Array]:
        return {number: value for number, value in self.values.items() if self.runner.steps[number].stage in stages}

    def match(self, values: Mapping[Any, Array], *, ops: Mapping[Any, str] | None = None, **options: Any) -> Matching:
        """Of values by number; each tensor is called after it."""
        tensors = tuple(Tensor(f"v{key}", np.array(value), (ops or {}).get(key, "")) for key, value in values.items())
        trace = Trace("port", options.pop("framework", "torch"), tensors, options.pop("given", None))
        return match(self.runner, self.x, trace, **options)


def pairs(matching: Matching) -> dict[int, str]:
    return {each.step: each.tensor for each in matching.matches if each.step != INPUT}


@pytest.fixture(scope="module")
def tiny() -> Side:
    return Side(tiny_yolo())


@pytest.fixture(scope="module")
def shapes() -> Side:
    return Side(dn.load(CFG / "shapes.cfg", WEIGHTS), batch=1)


# --- right ports ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", [True, False])
def test_the_packages_own_onnx_is_matched_value_by_value(shapes, fold, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    convert.to_onnx(shapes.net, tmp_path / "shapes.onnx", fold=fold)
    found = pairs(match(shapes.runner, shapes.x, trace_of(tmp_path / "shapes.onnx", shapes.x)))
    normal = {
        shapes.at(layer, "normal"): f"{layer}_convolutional/{'Conv' if fold else 'BatchNormalization'}" for layer in (0, 2, 8)
    }
    outputs = {shapes.at(layer.index): f"{layer.index}_{layer.type}" for layer in shapes.net.layers}
    for number, name in (normal | outputs).items():
        assert found[number].split(":")[0].startswith(name), (number, found[number])
    assert {shapes.at(layer) for layer in range(18)} <= found.keys()
    assert (shapes.at(0, "sums") in found) is not fold
    assert dn.compare(shapes.net, tmp_path / "shapes.onnx", shapes.x).clean


def test_the_packages_own_module_is_matched_value_by_value(shapes):
    pytest.importorskip("torch", reason="torch is not installed")
    module = convert.to_torch(shapes.net)
    found = pairs(match(shapes.runner, shapes.x, trace_of(module, shapes.x)))
    for layer in (0, 2, 4, 8):
        assert [found[shapes.at(layer, stage)] for stage in ("sums", "post")] == [
            f"layers.{layer}: conv",
            f"layers.{layer}: leaky_relu",
        ]
        assert found[shapes.at(layer, "normal")].startswith(f"layers.{layer}: ")
    assert {shapes.at(layer) for layer in range(18)} <= found.keys()


def test_a_bias_that_is_next_to_nothing_does_not_make_the_product_the_sum():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net = dn.load(cfg_of("conv filters=8 size=3 pad=1 activation=leaky", "conv filters=4 size=1 activation=linear"), None, seed=1)
    net.layers[0].biases[...] = 3e-5
    side = Side(net)
    kernel = torch.from_numpy(net.layers[0].weights.copy())

    class Port(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            sums = torch.nn.functional.conv2d(x, kernel, padding=1)
            return torch.nn.functional.leaky_relu(sums + 3e-5, 0.1)

    found = pairs(match(side.runner, side.x, trace_of(Port(), side.x)))
    assert found == {0: "conv", 1: "add", 2: "leaky_relu"}


def test_a_module_written_by_hand_is_matched_by_content():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    sections = ("conv batch_normalize=1 filters=8 size=3 pad=1 activation=leaky", "maxpool size=2 stride=2")
    side = Side(dn.load(cfg_of(*sections, "conv filters=4 size=1 activation=linear"), None, seed=1))
    first, last = side.net.layers[0], side.net.layers[2]
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8, eps=1e-5),
        nn.LeakyReLU(0.1, inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 1),
    ).eval()
    arrays = {
        "0.weight": first.weights, "1.weight": first.scales, "1.bias": first.biases, "1.running_mean": first.rolling_mean,
        "1.running_var": first.rolling_variance, "4.weight": last.weights, "4.bias": last.biases,
    }  # fmt: skip
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, strict=False)
    found = match(side.runner, side.x, trace_of(module, side.x))
    assert pairs(found) == {0: "0: conv", 1: "1: batch_norm", 2: "2: leaky_relu", 3: "3: max_pool2d", 5: "4: conv"}
    assert all(each.certain for each in found.matches)
    assert found.unmatched == ()


def test_channels_last_are_read_as_ours(tiny):
    found = tiny.match(
        {number: value.transpose(0, 2, 3, 1) for number, value in tiny.values.items()}, given=tiny.x.transpose(0, 2, 3, 1)
    )
    assert pairs(found) == {number: f"v{number}" for number in tiny.values}
    assert {each.how for each in found.matches} == {"by name, NHWC", "by content, NHWC"}
    assert all(np.array_equal(each.array, tiny.values[each.step]) for each in found.matches if each.step != INPUT)


# --- what a port does not show, or shows besides --------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [("normal", "post"), ("post",), ("sums", "post")], ids=["folded", "outputs", "merged"])
def test_values_that_are_not_shown_are_left_out(tiny, stages):
    shown = tiny.of_stage(*stages)
    found = tiny.match(shown)
    assert pairs(found) == {number: f"v{number}" for number in shown}
    assert found.unmatched == ()


def test_layers_that_change_nothing_may_be_missing():
    sections = (
        "conv filters=6 size=3 pad=1 activation=relu",
        "dropout probability=.5",
        "route layers=-1",
        "conv filters=4 size=1 activation=linear",
    )
    side = Side(dn.load(cfg_of(*sections), None, seed=1))
    shown = {side.at(layer): side.values[side.at(layer)] for layer in (0, 3)}
    assert pairs(side.match(shown)) == {number: f"v{number}" for number in shown}


def test_sums_whose_biases_are_zero_are_the_layers_output_where_they_are_shown_once():
    side = Side(dn.load(cfg_of("conv filters=6 size=3 pad=1 activation=linear"), None, seed=1))
    sums, post = side.values[0], side.values[1]
    assert np.array_equal(sums, post)
    assert pairs(side.match({"conv": sums})) == {1: "vconv"}
    assert pairs(side.match({"conv": sums, "add": post})) == {0: "vconv", 1: "vadd"}


def test_a_mish_that_is_written_out_is_one_activation():
    sections = ("conv batch_normalize=1 filters=6 size=3 pad=1 activation=mish", "conv filters=4 size=1 activation=linear")
    net = dn.load(cfg_of(*sections), None, seed=1)
    net.layers[0].rolling_variance[...] = 1
    side = Side(net)
    normal = side.values[1]
    extra = np.log1p(np.exp(normal))
    shown = {
        0: side.values[0],
        1: normal,
        "exp": np.exp(normal),
        "softplus": extra,
        "tanh": np.tanh(extra),
        2: side.values[2],
        4: side.values[4],
    }
    found = side.match(shown)
    assert pairs(found) == {0: "v0", 1: "v1", 2: "v2", 4: "v4"}
    assert found.unmatched == ("vexp", "vsoftplus", "vtanh")


# --- wrong ports ----------------------------------------------------------------------------------------------------------------


def test_a_port_with_a_wrong_kernel_is_matched_in_every_value(tiny):
    wrong = tiny_yolo()
    wrong.layers[2].weights[...] = wrong.layers[2].weights[:, :, ::-1, ::-1].copy()
    values = {step.number: value.copy() for step, value in Runner(wrong).forward(tiny.x)}
    assert not np.allclose(values[4], tiny.values[4])
    found = tiny.match(values)
    assert pairs(found) == {number: f"v{number}" for number in values}
    assert found.by_step[4].how == "by order and shape"
    assert found.by_step[5].how == "by content"


def test_where_nothing_tells_a_match_is_uncertain():
    side = Side(dn.load(cfg_of("conv filters=4 size=3 pad=1 activation=linear"), None, seed=1))
    found = side.match({"noise": noise(2, 4, 8, 8, seed=99)}, ops={"noise": "conv"})
    assert [(each.tensor, each.certain) for each in found.matches] == [("vnoise", False)]
    assert found.matches[0].how == "by order and shape (uncertain)"


def test_a_value_of_another_size_is_none_of_ours(tiny):
    found = tiny.match({"other": noise(2, 5, 7, 7)})
    assert pairs(found) == {}
    assert found.unmatched == ("vother",)


# --- heads ----------------------------------------------------------------------------------------------------------------------

ORDERS = {
    "(batch, anchors, entries, h, w)": (0, 1, 2, 3, 4),
    "(batch, anchors, h, w, entries)": (0, 1, 3, 4, 2),
    "(batch, h, w, anchors, entries)": (0, 3, 4, 1, 2),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_head_may_have_its_axes_in_another_order(tiny, order):
    numbers = [tiny.at(layer) for layer in (7, 12)]
    values = tiny.of_stage("post")
    for number in numbers:
        value = values[number]
        values[number] = value.reshape(2, 2, -1, *value.shape[2:]).transpose(order)
    found = tiny.match(values)
    assert pairs(found) == {number: f"v{number}" for number in values}
    for number in numbers:
        assert np.array_equal(found.by_step[number].array, tiny.values[number])


@pytest.mark.parametrize("pixels", [False, True], ids=["shares", "pixels"])
def test_a_table_of_boxes_is_read_in_shares_or_pixels(pixels):
    head = "yolo mask=0,1 anchors=10,14,23,27 classes=3 num=2"
    side = Side(dn.load(cfg_of("conv filters=16 size=3 pad=1 activation=linear", head, w=24, h=8), None, seed=1))
    boxes = side.at(1, "boxes")
    rows = side.values[boxes].reshape(2, 2, 8, -1).transpose(0, 1, 3, 2).reshape(2, -1, 8).copy()
    if pixels:
        rows[..., [0, 2]] *= 24
        rows[..., [1, 3]] *= 8
    found = side.match({side.at(0): side.values[side.at(0)], side.at(1): side.values[side.at(1)], boxes: rows})
    assert found.by_step[boxes].tensor == f"v{boxes}"
    assert ("in pixels" in found.by_step[boxes].how) is pixels
    np.testing.assert_allclose(found.by_step[boxes].array, side.values[boxes], rtol=2.0**-23)  # times and by the size


def test_one_table_may_hold_the_boxes_of_all_heads(tiny):
    numbers = [tiny.at(7, "boxes"), tiny.at(12, "boxes")]
    parts = [tiny.values[number].reshape(2, 2, 8, -1).transpose(0, 1, 3, 2).reshape(2, -1, 8) for number in numbers]
    values = {number: value for number, value in tiny.values.items() if number not in numbers}
    found = tiny.match({**values, "all": np.concatenate(parts, 1)})
    for number, rows in zip(numbers, ("rows 0 to 31", "rows 32 to 159"), strict=True):
        assert found.by_step[number].tensor == "vall"
        assert rows in found.by_step[number].how
        assert np.array_equal(found.by_step[number].array, tiny.values[number])


# --- names ----------------------------------------------------------------------------------------------------------------------


def test_what_the_user_names_comes_first(tiny):
    values = tiny.of_stage("post")
    copy = values[tiny.at(4)]
    found = tiny.match({**values, "copy": copy}, names={"4": "vcopy", "12.post": f"v{tiny.at(12)}", 0: f"v{tiny.at(0)}"})
    assert (found.by_step[tiny.at(4)].tensor, found.by_step[tiny.at(4)].how) == ("vcopy", "by name")
    assert found.by_step[tiny.at(12)].how == "by name"
    with pytest.raises(
        dn.ShapeError, match=r"^names: layer 4 is 8 x 8 x 8, v2 is \(2, 4, 16, 16\), which cannot be the same values$"
    ):
        tiny.match(values, names={4: "v2"})
