"""Another program against a golden bundle: which value is which, where it differs first, and what is told."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of, noise, tiny_files, tiny_yolo
from pydarknetbn.dumping import write_dump
from pydarknetbn.golden import compare_golden, read_golden

ALL = ("sums", "normal", "post", "boxes")


def activations(net=None, stages=("post",), x=3) -> dict[str, np.ndarray]:
    return {name: array for name, array in dn.dump(net or tiny_yolo(), x, stages=stages).items() if name != "__metadata__"}


@pytest.fixture
def path(tmp_path):
    dn.dump(tiny_yolo(), 3, golden=True, stages=("post",)).save(tmp_path / "golden.npz")
    return tmp_path / "golden.npz"


@pytest.fixture
def full(tmp_path):
    dn.dump(tiny_yolo(), 3, golden=True, stages=ALL).save(tmp_path / "full.npz")
    return tmp_path / "full.npz"


def first_bad(comparison):
    return next(row for row in comparison.rows if row.bad)


# --- clean ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tiny_yolo, lambda: dn.fold(tiny_yolo())[0]], ids=["itself", "folded"])
def test_a_right_network_is_clean(path, make):
    found = compare_golden(path, make())
    assert found.clean
    assert found.exit_code == 0
    assert [row.layer for row in found.rows if row.stage == "post"] == list(range(13))
    assert found.verdict.startswith("clean: the ")
    assert (found.name, found.profile, found.evidence_of_profile) == ("tiny-yolo.cfg", "alexeyab-cpu", "recorded")


def test_a_module_of_pytorch_is_run_on_the_bundle_s_input(full):
    pytest.importorskip("torch", reason="torch is not installed")
    found = compare_golden(full, dn.convert.to_torch(tiny_yolo()))
    assert found.clean
    assert {row.layer for row in found.rows if row.stage == "post"} == set(range(13))


def test_an_onnx_file_is_run_on_the_bundle_s_input(path, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    dn.convert.to_onnx(tiny_yolo(), tmp_path / "net.onnx", verify=False)
    assert compare_golden(path, tmp_path / "net.onnx").clean
    dn.convert.to_onnx(tiny_yolo(profile="keras"), tmp_path / "keras.onnx", verify=False)
    assert not compare_golden(path, tmp_path / "keras.onnx").clean


# --- where it differs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [0, 2, 3, 6, 11])
def test_the_first_wrong_layer_is_named(full, layer):
    other = tiny_yolo()
    other.layers[layer].weights[0] *= np.float32(1.01)
    found = compare_golden(full, other)
    row = first_bad(found)
    assert (row.layer, row.stage, row.certain) == (layer, "sums", True)
    assert row.free.largest > row.budget > row.noise > 0
    assert found.verdict.startswith(f"unknown cause, first at layer {layer} [convolutional] (sums): ")
    assert (found.causes, found.exit_code) == ((), 1)
    assert any("explains it" in note for note in found.notes)


def test_errors_are_shares_of_the_range_of_the_whole_value(path):
    values = activations()
    step = read_golden(path)["3.post"]
    values["3.post"][step.index(9)] += np.float32(0.5 * step.range)
    row = first_bad(compare_golden(path, values))
    assert row.layer == 3
    assert row.free.largest == pytest.approx(0.5, rel=1e-5)
    assert row.free.channel == step.index(9)[1]
    assert row.free.p99 == 0


def test_the_first_nan_is_told(path):
    values = activations()
    values["3.post"][0, 1, 2, 3:] = np.nan
    row = first_bad(compare_golden(path, values))
    assert (row.layer, row.free.nan) == (3, (0, 1, 2, 3))
    assert row.free.largest == np.inf


def test_another_input_is_named_first(path):
    found = compare_golden(path, {"input": noise(1, 3, 32, 32, seed=4), **activations(x=4)})
    assert first_bad(found).stage == "input"
    assert found.verdict == f"arrays was given another input than the golden bundle's: {read_golden(path).about['input']}"


def test_with_the_network_the_cause_is_named(path):
    found = compare_golden(path, tiny_yolo(profile="keras"), net=tiny_yolo())
    assert found.cause.kind == "batchnorm.epsilon"
    assert found.cause.values["epsilon"] == pytest.approx(1e-3, rel=0.01)
    assert f"input: {read_golden(path).about['input']}" in found.notes
    assert compare_golden(path, tiny_yolo(), net=tiny_yolo()).clean


def test_a_network_that_is_not_the_bundle_s_is_refused(path):
    wrong = tiny_yolo()
    wrong.layers[3].weights[0] += np.float32(0.1)
    with pytest.raises(
        dn.DumpError, match=r"was made of another network, tiny-yolo.cfg under profile alexeyab-cpu: layer 3 \[conv"
    ):
        compare_golden(path, tiny_yolo(), net=wrong)
    with pytest.raises(dn.ShapeError, match=r"expected the input of .*golden.npz of shape \(batch, 3, 8, 8\)"):
        compare_golden(path, tiny_yolo(), net=dn.load(cfg_of("conv filters=1 size=1")))


# --- which is which -------------------------------------------------------------------------------------------------------------


def test_values_without_names_are_matched_by_what_they_hold(path):
    values = {f"tensor {at}": array.transpose(0, 2, 3, 1) for at, array in enumerate(reversed(activations().values()))}
    values["more"] = noise(1, 5, 3, 3)
    found = compare_golden(path, values)
    assert found.clean
    assert found.unmatched[-1] == "more"
    assert {row.match for row in found.rows} == {"by content, NHWC"}
    assert [row.layer for row in found.rows] == list(range(13))


def test_values_that_are_all_wrong_are_matched_by_order_and_shape(path):
    other = tiny_yolo()
    other.layers[0].weights[...] = noise(*other.layers[0].weights.shape, seed=9) - np.float32(0.5)
    values = {f"tensor {at}": array for at, array in enumerate(activations(other).values())}
    found = compare_golden(path, values)
    assert [(row.layer, row.tensor) for row in found.rows] == [(at, f"tensor {at}") for at in range(13)]
    assert {row.match for row in found.rows} >= {"by order and shape (uncertain)"}
    assert not first_bad(found).certain
    assert ", if it is that layer" in found.verdict


def test_numbers_as_names_are_no_layers(path):
    values = activations()
    found = compare_golden(path, {"2": values["3.post"], "3": values["2.post"]})  # of equal shape
    assert found.clean
    assert [(row.layer, row.tensor) for row in found.rows] == [(2, "3"), (3, "2")]


def test_names_decide(path):
    values = activations()
    found = compare_golden(path, {"a": values["3.post"], "b": values["2.post"]}, names={"2": "a", "3.post": "b"})
    assert [(row.layer, row.tensor, row.match, row.bad) for row in found.rows] == [
        (2, "a", "by name", True),
        (3, "b", "by name", True),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"77": "a"}, "there is no layer 77"),
        ({"5": "a"}, r"'a' has shape \(1, 8, 8, 8\); 5.post of the golden"),
    ],
)
def test_wrong_names_are_refused(path, names, message):
    with pytest.raises(ValueError, match=message):
        compare_golden(path, {"a": activations()["2.post"]}, names=names)


def test_nothing_that_fits_is_not_clean(path):
    found = compare_golden(path, {"a": noise(1, 5, 3, 3)})
    assert not found.clean
    assert found.verdict.startswith("nothing of arrays could be put to a value of the golden bundle")


# --- what is told ---------------------------------------------------------------------------------------------------------------


def test_how_both_sides_resized_the_picture_is_told(tmp_path):
    _, _, picture = tiny_files(tmp_path)
    net = tiny_yolo()
    dn.dump(net, picture, golden=True, resize="letterbox").save(tmp_path / "golden.npz")
    for how, which in (("letterbox", "the same"), ("stretch", "another one")):
        given = dn.golden.given.given_to(net, picture, resize=how)
        write_dump(net, given, tmp_path / "dump.npz")
        found = compare_golden(tmp_path / "golden.npz", tmp_path / "dump.npz")
        assert "input: picture.png (48 x 32), letterbox to 32 x 32" in found.notes
        assert f"dump.npz: input picture.png (48 x 32), {how} to 32 x 32 ({which}), profile alexeyab-cpu" in found.notes
        assert found.clean == (how == "letterbox")


def test_it_becomes_json(path):
    document = compare_golden(path, tiny_yolo(profile="keras")).to_json()
    assert document["rows"][0]["layer"] == 0
    assert any(note.startswith("numbers: alexeyab-cpu") for note in document["notes"])
