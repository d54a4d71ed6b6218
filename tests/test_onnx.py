"""ONNX files: every layer as this package computes it, boxes, metadata, refusals. onnxruntime is the other program."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pydarknetbn as dn
from core import recorded_files
from nets import TINY, cfg_of, load_recorded, noise, ramp, tiny_files, tiny_yolo
from pydarknetbn import _native
from pydarknetbn._native import Array
from pydarknetbn.cli import app
from pydarknetbn.layers import BUILDERS

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'pydarknetbn[onnx]'")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'pydarknetbn[onnx]'")

from pydarknetbn.convert import onnx_export  # noqa: E402
from pydarknetbn.convert.onnx_activations import ACTIVATIONS  # noqa: E402
from pydarknetbn.convert.onnx_layers import LAYERS  # noqa: E402
from pydarknetbn.convert.onnx_verify import verify_onnx  # noqa: E402


def run(model: Any, x: Array) -> list[Array]:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"input": x})


def verification(model: Any) -> dict[str, Any]:
    return json.loads({entry.key: entry.value for entry in model.metadata_props}["verification"])


def assert_sound(model: Any) -> None:
    """The checker passes, and strict inference finds the shape that every value has already."""
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    assert {name for node in model.graph.node for name in node.output} <= known


def assert_agrees(net: dn.Network, **options: Any) -> Any:
    """A layer that is further apart would be a warning, which is an error here."""
    model = dn.convert.to_onnx(net, verify=True, **options)
    assert_sound(model)
    assert len(verification(model)["layers"]) == len(net.layers)
    return model


# --- every layer ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", [True, False], ids=["folded", "unfolded"])
@pytest.mark.parametrize("path", [*recorded_files("nets/*/*.weights"), *recorded_files("layers/*/*.weights")])
def test_recorded_networks_are_the_same_in_onnxruntime(path: Path, fold: bool) -> None:
    assert_agrees(load_recorded(path), fold=fold)


SECTIONS = {
    "a maxpool of a large padding": ("maxpool size=2 stride=1 padding=6",),
    "a shortcut from a larger image": ("conv filters=4", "maxpool size=2 stride=2", "shortcut from=-2 alpha=.5 beta=2"),
    "a shortcut from a smaller image": ("maxpool size=2 stride=2", "upsample stride=2", "shortcut from=-2 alpha=.5 beta=2"),
    "a shortcut from fewer channels": ("conv filters=2", "conv filters=5", "shortcut from=-2"),
    "a shortcut from more channels": ("conv filters=5", "conv filters=2", "shortcut from=-2"),
    "sums of weights of each channel": (
        "conv filters=3",
        "conv filters=3",
        "shortcut from=-2,-1 weights_type=per_channel weights_normalization=softmax",
    ),
    "a convolution in groups, dilated": ("conv filters=6 size=3 pad=1 groups=3 dilation=2 activation=mish",),
    "strides of their own": ("conv filters=2 size=3 padding=2 stride_x=2 stride_y=3 activation=swish",),
    "blurred": ("conv filters=4 size=3 stride=2 pad=1 antialiasing=1", "maxpool size=2 stride=2 antialiasing=2"),
    "one group of each source": ("conv filters=4", "conv filters=6", "route layers=-1,-2 groups=2 group_id=1"),
    "scaled channels": ("conv filters=4", "avgpool", "scale_channels from=-2", "sam from=-3 activation=logistic"),
    "a maxpool over channels": ("conv filters=5", "maxpool maxpool_depth=1 out_channels=2"),
    "implicit": ("conv filters=2", "implicit filters=4", "route layers=-2"),
    "an old reorg and back": ("conv filters=4", "reorg stride=2", "reorg stride=2 reverse=1"),
    "signs": ("conv filters=4 size=3 pad=1 xnor=1", "conv filters=3 size=3 padding=1 xnor=1 activation=linear"),
    "shared weights": (
        "conv filters=3 batch_normalize=1 activation=linear",
        "conv filters=3 batch_normalize=1 share_index=0 activation=linear",
        "batchnorm",
    ),
    "a softmax in groups": ("connected output=6 activation=linear", "softmax groups=2 temperature=2"),
}


@pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)
@pytest.mark.parametrize("batch", ["dynamic", 3])
def test_sections_are_the_same_in_onnxruntime(sections: tuple[str, ...], batch: Any) -> None:
    net = dn.load(cfg_of(*sections), dialect="alexeyab", seed=4)
    assert_agrees(net, batch=batch)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_the_same_in_onnxruntime(name: str) -> None:
    net = dn.load(cfg_of("conv filters=8 activation=linear", "activation activation=linear"), seed=1)
    net.layers[0].weights *= 12
    net.layers[1].native.activation = _native.enum("activation", name)
    assert net.forward(noise(1, 3, 8, 8))[0].size
    assert net.layers[0].output.min() < -6
    assert net.layers[0].output.max() > 6
    assert_agrees(net, fold=False)  # which would build the layers anew from the cfg


def test_every_activation_and_every_section_has_nodes() -> None:
    assert ACTIVATIONS.keys() == _native.choices("activation").keys()
    assert set(BUILDERS) == set(LAYERS)


# --- numbers --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(
    ("profile", "root"), [("pjreddie-cpu", np.sqrt(1e-6) + 1e-6), ("alexeyab-cpu", np.sqrt(1e-6 + 1e-5))], ids=["outside", "inside"]
)
def test_the_epsilon_is_the_profiles_on_its_side_of_the_root(profile: str, root: float, fold: bool) -> None:
    net = dn.load(cfg_of("conv filters=1 batch_normalize=1 activation=linear", w=2, h=1, c=1), profile=profile)
    net.layers[0].weights, net.layers[0].rolling_variance, net.layers[0].rolling_mean = (
        np.full(shape, value, np.float32) for shape, value in (((1, 1, 1, 1), 1), (1, 1e-6), (1, 0.5))
    )
    (got,) = run(dn.convert.to_onnx(net, fold=fold), np.asarray([[[[0.5, 0.75]]]], np.float32))
    np.testing.assert_allclose(got.ravel(), [0, 0.25 / root], rtol=1e-5)


LITERAL = {
    "maxpool": (["maxpool size=2 stride=2"], -ramp(1, 3, 3), [0, -2, -6, -8]),
    "a maxpool of stride 1": (["maxpool size=2 stride=1"], ramp(1, 2, 2), [3, 3, 3, 3]),
    "upsample": (["upsample stride=2"], ramp(1, 1, 2), [0, 0, 1, 1, 0, 0, 1, 1]),
    "route groups": (["upsample stride=1", "route layers=-1 groups=2 group_id=1"], ramp(4, 1, 1), [2, 3]),
    "true reorg": (["reorg3d stride=2"], ramp(1, 2, 4), [0, 2, 1, 3, 4, 6, 5, 7]),
    "shortcut of fewer channels": (["upsample stride=1", "route layers=-1 groups=2", "shortcut from=-2"], ramp(4, 1, 1), [0, 2]),
    "crop": (["crop crop_width=1 crop_height=1"], ramp(1, 3, 3), [7]),
}


@pytest.mark.parametrize(("sections", "x", "want"), LITERAL.values(), ids=LITERAL)
def test_values_go_where_darknet_puts_them(sections: list[str], x: Array, want: list[float]) -> None:
    _, c, h, w = x.shape
    net = dn.load(cfg_of(*sections, c=c, h=h, w=w), dialect="alexeyab")
    (got,) = run(dn.convert.to_onnx(net), x)
    assert got.ravel().tolist() == want


@pytest.mark.parametrize("batch", ["dynamic", 1])
def test_the_heads_outputs_are_those_of_forward(batch: Any) -> None:
    net, x = tiny_yolo(), noise(1, 3, 32, 32)
    model = dn.convert.to_onnx(net, batch=batch)
    assert [output.name for output in model.graph.output] == [f"{head.index}_yolo" for head in net.heads]
    for got, want in zip(run(model, x), net.forward(x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


RECURRENT = {
    "rnn": "rnn output=3 hidden=4 batch_normalize=1 shortcut=1",
    "gru": "gru output=3 tanh=1",
    "lstm": "lstm output=3 batch_normalize=1",
    "conv_lstm": "conv_lstm output=3 size=3 pad=1 peephole=1",
    "crnn": "crnn output=3 hidden=4 size=3 pad=1",
}


@pytest.mark.parametrize("section", RECURRENT.values(), ids=RECURRENT)
def test_recurrent_layers_hand_on_their_state(section: str) -> None:
    net = dn.load(cfg_of(section, h=2, w=2), dialect="alexeyab", seed=2)
    for name, array in net.layers[0].params.items():
        if name.endswith("rolling_variance"):
            array[...] = 0.5
    model = assert_agrees(net)
    xs, states = noise(3, 1, 3, 2, 2), {}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in model.graph.output]
    for put in list(model.graph.input)[1:]:
        states[put.name] = np.zeros([1, *(dim.dim_value for dim in list(put.type.tensor_type.shape.dim)[1:])], np.float32)
    assert states
    for x in xs:
        got = dict(zip(names, session.run(None, {"input": x} | states), strict=True))
        states = {name: got[f"{name}_next"] for name in states}
        np.testing.assert_allclose(got[names[0]], net.forward(x)[0], rtol=1e-4, atol=1e-6)


# --- boxes ----------------------------------------------------------------------------------------------------------------------


def expected_rows(net: dn.Network, x: Array) -> dict[int, Any]:
    """Row of the table -> what `detect` finds without suppression."""
    found, start, rows = net.detect(x[0], thresh=0.01, nms=1, resize="stretch"), 0, {}
    for head in net.heads:
        cells, anchors = head.native.side**2 or head.in_shape.h * head.in_shape.w, head.native.n
        by_cell = head.type == "detection" or (head.type == "region" and net.profile != "pjreddie-cpu")
        for row in found[found["layer"] == head.index]:
            place = row["cell"] * anchors + row["anchor"] if by_cell else row["anchor"] * cells + row["cell"]
            rows[start + int(place)] = row
        start += cells * anchors
    return rows


def assert_decoded(net: dn.Network) -> None:
    x = noise(1, net.c, net.h, net.w)
    model = dn.convert.to_onnx(net, boxes="decoded", verify=False)
    assert_sound(model)
    (table,) = run(model, x)
    expected = expected_rows(net, x)
    assert expected
    for place, row in expected.items():
        np.testing.assert_allclose(table[0, place, :4] * [net.w, net.h, net.w, net.h], row["box"], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(np.where(row["probs"] > 0, table[0, place, 5:], 0), row["probs"], atol=1e-5)


HEADS = ["layers/*/region*.weights", "layers/*/gaussian_yolo*.weights", "layers/*/detection*.weights", "nets/*/yolo*.weights"]


@pytest.mark.parametrize("path", [case for pattern in HEADS for case in recorded_files(pattern)])
def test_decoded_boxes_are_those_of_detect(path: Path) -> None:
    net = load_recorded(path)
    undecoded = any(head.type == "region" and head.native.background for head in net.heads)
    if undecoded or any(head.head and head.head.tree for head in net.heads):
        with pytest.raises(dn.UnsupportedError, match="take boxes='raw'"):
            dn.convert.to_onnx(net, boxes="decoded")
        return
    assert_decoded(net)


def test_decoded_boxes_of_two_heads_have_each_its_anchors() -> None:
    assert_decoded(tiny_yolo())


def test_suppression_leaves_what_detect_leaves() -> None:
    net, x = tiny_yolo(), noise(1, 3, 32, 32)
    model = dn.convert.to_onnx(net, boxes="nms")
    assert_sound(model)
    table, chosen = run(model, x)
    found = net.detect(x[0], thresh=0.25, nms=0.45, resize="stretch")
    want = sorted(float(prob) for row in found for prob in row["probs"] if prob > 0)
    assert want
    np.testing.assert_allclose(sorted(table[image, row, 5 + kind] for image, kind, row in chosen), want, rtol=1e-5)


# --- names, metadata, types -----------------------------------------------------------------------------------------------------


def test_nodes_and_outputs_are_called_after_their_layers() -> None:
    net = tiny_yolo()
    model = dn.convert.to_onnx(net, fold=False)
    names = {node.name for node in model.graph.node}
    assert {f"{layer.index}_{layer.type}" for layer in net.layers} <= names
    assert {name.split("/")[0] for name in names} == {f"{layer.index}_{layer.type}" for layer in net.layers}
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 13)]


def test_the_file_says_what_it_was_made_of(tmp_path: Path) -> None:
    cfg, weights, _ = tiny_files(tmp_path)
    dn.convert.to_onnx(dn.load(cfg, weights, dialect="alexeyab"), tmp_path / "out.onnx")
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "out.onnx").metadata_props}
    assert json.loads(told["classes"]) == cfg.with_suffix(".names").read_text().split()
    assert told["cfg_sha256"] == hashlib.sha256(cfg.read_bytes()).hexdigest()
    assert told["weights_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert (told["profile"], told["dialect"]) == ("alexeyab-cpu", "alexeyab")
    anchors = json.loads(told["anchors"])
    assert [head["layer"] for head in anchors] == [head.index for head in tiny_yolo().heads]
    assert json.loads(told["verification"])["agrees"] is True


def test_the_written_file_is_the_model(tmp_path: Path) -> None:
    model = dn.convert.to_onnx(tiny_yolo(), tmp_path / "out.onnx", verify=False)
    assert onnx.load(tmp_path / "out.onnx") == model
    assert "verification" not in {entry.key for entry in model.metadata_props}


@pytest.mark.parametrize(("batch", "axis"), [("dynamic", "batch"), (3, 3)])
def test_the_batch_is_free_or_fixed(batch: Any, axis: Any) -> None:
    first = dn.convert.to_onnx(tiny_yolo(), batch=batch).graph.input[0].type.tensor_type.shape.dim[0]
    assert (first.dim_param or first.dim_value) == axis


def test_half_precision_is_compared_as_well() -> None:
    model = assert_agrees(tiny_yolo(), dtype="float16")
    wide = {constant.name for constant in model.graph.initializer if constant.data_type == onnx.TensorProto.FLOAT}
    assert wide == {"9_upsample.scales"}, "the factors of Resize have one type only"


def test_a_weight_that_half_precision_cannot_hold_is_named() -> None:
    net = tiny_yolo()
    net.layers[6].weights[0, 0, 0, 0] = 1e5
    with pytest.raises(dn.NumericsError, match=r"6_convolutional: weights holds 100000, which float16 cannot hold"):
        dn.convert.to_onnx(net, dtype="float16")


# --- the comparison -------------------------------------------------------------------------------------------------------------


def test_the_comparison_finds_the_layer_that_differs() -> None:
    net, other = tiny_yolo(), tiny_yolo()
    other.layers[3].biases[2] += 1
    found = verify_onnx(other, dn.convert.to_onnx(net, verify=False), 1, "float32")
    assert not found.agrees
    assert "layer 3 [convolutional]" in found.fault
    assert [layer.relative < 1e-5 for layer in found.layers[:4]] == [True, True, True, False]


# --- refusals -------------------------------------------------------------------------------------------------------------------


def test_sections_without_nodes_are_all_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "LAYERS", {kind: layer for kind, layer in LAYERS.items() if kind not in ("rnn", "gru")})
    net = dn.load(cfg_of("rnn output=3", "connected output=2", "gru output=3", w=1, h=1))
    target = tmp_path / "out.onnx"
    target.write_text("old")
    with pytest.raises(dn.UnsupportedError, match=r"no counterpart of \[rnn\], layer 0 \(line 5\), \[gru\], layer 2"):
        dn.convert.to_onnx(net, target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(dn.WeightsError, match=r"none/out\.onnx: cannot be written, and is as it was"):
        dn.convert.to_onnx(tiny_yolo(), tmp_path / "none" / "out.onnx", verify=False)


REFUSED = {
    "boxes": ({"boxes": "all"}, ValueError, "'raw', 'decoded' or 'nms', got 'all'"),
    "batch": ({"batch": 0}, ValueError, "'dynamic' or 1 or more, got 0"),
    "dtype": ({"dtype": "bfloat16"}, ValueError, "float32 or float16, got 'bfloat16'"),
}


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_other_arguments_are_refused(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        dn.convert.to_onnx(tiny_yolo(), **options)


def test_boxes_without_a_head_are_refused() -> None:
    with pytest.raises(dn.UnsupportedError, match="has no head"):
        dn.convert.to_onnx(dn.load(cfg_of("avgpool")), boxes="decoded")


def test_another_suppression_than_onnxs_is_refused() -> None:
    net = dn.load(TINY.read_bytes().replace(b"[yolo]", b"[yolo]\nnms_kind=diounms"), dialect="alexeyab")
    with pytest.raises(dn.UnsupportedError, match=r"nms_kind=diounms.*take boxes='decoded'"):
        dn.convert.to_onnx(net, boxes="nms")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_package_the_error_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(dn.MissingExtraError, match=rf"{package} is not installed.*pip install 'pydarknetbn\[onnx\]'"):
        dn.convert.to_onnx(tiny_yolo(), verify=True)


# --- the command line -----------------------------------------------------------------------------------------------------------


def convert(folder: Path, *options: str) -> Any:
    cfg, weights, _ = tiny_files(folder)
    return CliRunner().invoke(app, ["convert", str(cfg), str(weights), *options])


def test_the_verb_writes_the_file_and_prints_each_layer(tmp_path: Path) -> None:
    done = convert(tmp_path, str(tmp_path / "out.onnx"), "--batch", "2", "--boxes", "decoded")
    assert done.exit_code == 0
    assert onnx.load(tmp_path / "out.onnx").graph.output[0].name == "detections"
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(tiny_yolo().layers)]] == [str(n) for n in range(len(tiny_yolo().layers))]
    assert "every layer within" in " ".join(done.output.split())


def test_the_verb_gives_json(tmp_path: Path) -> None:
    document = json.loads(convert(tmp_path, str(tmp_path / "out.onnx"), "--json").output)
    assert document["verification"]["agrees"] is True
    assert document["bytes"] == (tmp_path / "out.onnx").stat().st_size
    assert "verification" not in json.loads(convert(tmp_path, str(tmp_path / "out.onnx"), "--json", "--no-verify").output)


def test_a_name_without_a_known_ending_is_refused(tmp_path: Path) -> None:
    done = convert(tmp_path, "out.txt")
    assert isinstance(done.exception, dn.UnsupportedError)
    assert "out.txt: expected a file of " in str(done.exception)
