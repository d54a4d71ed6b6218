"""`check`: whatever bytes stand under the name of a .weights, a report says what they are and why they do not fit."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest

import pydarknetbn as dn
from nets import CFG, FASTEST, cfg_of, numbered, tiny_yolo, weights_of

# 62 floats with batchnorm, 54 without.
TWO = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1 activation=leaky", "conv filters=18 size=1 activation=linear")
HEAD = ("yolo classes=1 num=3 mask=0,1,2 anchors=1,1,2,2,3,3",)
DETECTOR = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1 activation=leaky", "conv filters=18 activation=linear", *HEAD)


def trained(count: int) -> np.ndarray:
    """Floats from a seed, none of them 0 or negative, so that every one may be a variance."""
    return np.random.default_rng(1).uniform(0.5, 1.5, count).astype(np.float32)


# --- files of another kind ------------------------------------------------------------------------------------------------------


def zip_of(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, "x" * 100)
    return stream.getvalue()


SAFETENSORS = b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

FOREIGN = {
    "an HTML page": (b"<!DOCTYPE html>\n<html><body>moved</body></html>", "is an HTML page"),
    "text": (b"[net]\nwidth=8\nheight=8\n", "is text"),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "is a git-lfs pointer"),
    "a pickle": (pickle.dumps({"weight": [1.0] * 10}, 2), "is a Python pickle"),
    "PyTorch's zip": (zip_of("archive/data.pkl"), "is a zip archive, as PyTorch's .pt"),
    "NumPy's zip": (zip_of("weight.npy"), "NumPy's .npz"),
    "gzip": (gzip.compress(b"x" * 100), "is a gzip archive"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "is an HDF5 file"),
    "safetensors": (struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + bytes(4), "is a safetensors file"),
    "ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x031.9:\x10", "is an ONNX model"),
    "an array of NumPy": (b"\x93NUMPY\x01\x00" + bytes(100), "is a NumPy array"),
}


@pytest.mark.parametrize(("data", "words"), FOREIGN.values(), ids=FOREIGN)
def test_file_of_another_kind_is_named_by_check_and_by_load(data, words):
    report = dn.check(TWO, data)
    assert words in report.verdict
    assert (report.header, report.exit_code) == (None, 1)
    assert [place.held for place in report.places] == ["missing"] * 7
    with pytest.raises(dn.WeightsError, match=words.replace("(", r"\(")):
        dn.load(TWO, data)


@pytest.mark.parametrize("version", [(0, 1, 0), (0, 2, 0), (0, 2, 5), (1, 0, 0), (2000, 1, 0), (0, 0, 0)])
def test_no_header_of_weights_is_taken_for_another_kind(version):
    assert dn.check(TWO, weights_of(trained(116), version, 32013312, 4 if version < (0, 2) else 8)).header is not None


def test_all_zeros_are_told_before_all_else():
    assert "is all zeros, 484 bytes" in dn.check(TWO, bytes(20 + 4 * 116)).verdict


# --- sizes ----------------------------------------------------------------------------------------------------------------------


def test_good_file_is_accounted_for_to_the_last_byte():
    report = dn.check(TWO, weights_of(trained(116), seen=6400))
    assert report.good
    assert report.verdict == "<bytes>: fits <bytes>: all 484 bytes are used, version 0.2.5, every value is plausible"
    assert (report.used, report.left_over, report.missing, report.exit_code) == (484, 0, 0, 0)
    table = [(place.layer, place.name, place.shape, place.offset, place.nbytes) for place in report.places]
    assert table == [
        (0, "biases", (2,), 20, 8),
        (0, "scales", (2,), 28, 8),
        (0, "rolling_mean", (2,), 36, 8),
        (0, "rolling_variance", (2,), 44, 8),
        (0, "weights", (2, 3, 3, 3), 52, 216),
        (1, "biases", (18,), 268, 72),
        (1, "weights", (18, 2, 1, 1), 340, 144),
    ]


@pytest.mark.parametrize(("floats", "filters", "numbers"), [(134, 24, (484, 72, 0)), (107, 15, (340, 0, 36))])
def test_filters_that_would_fit_are_computed(floats, filters, numbers):
    report = dn.check(TWO, weights_of(trained(floats)))
    assert f"it fits exactly with filters={filters} in layer 1 [convolutional] (line 11)" in report.findings[1]
    assert (report.used, report.left_over, report.missing) == numbers


@pytest.mark.parametrize(("classes", "filters"), [(3, 24), (80, 255)])
def test_classes_that_would_fit_are_computed_and_do(classes, filters):
    data = weights_of(trained(62 + 3 * filters))
    report = dn.check(DETECTOR, data)
    assert f"classes={classes} in every head and filters={filters} in the convolution before each (line 11)" in report.findings[1]
    mended = DETECTOR.replace(b"filters=18", b"filters=%d" % filters).replace(b"classes=1", b"classes=%d" % classes)
    assert dn.check(mended, data).good


def test_two_heads_share_the_classes_that_would_fit():
    text = (CFG / "tiny-yolo.cfg").read_bytes()
    net = tiny_yolo()
    heads = [layer for layer in net.layers if layer.head]
    more = sum(len(head.head.mask) * (net.layers[head.index - 1].weights[0].size + 1) for head in heads)
    total = sum(array.size for layer in net.layers for array in layer.params.values())
    wanted = heads[0].head.classes + 2
    findings = dn.check(text, weights_of(trained(total + 2 * more))).findings
    assert any(f"classes={wanted} in every head" in finding for finding in findings), findings


def test_file_without_a_header_is_told():
    report = dn.check(TWO, trained(116).tobytes())
    assert any("it fits exactly with no header at all" in finding for finding in report.findings)


@pytest.mark.parametrize(("version", "size"), [((0, 2, 0), 4), ((0, 1, 0), 8)])
def test_counter_of_the_other_size_is_told(version, size):
    report = dn.check(TWO, weights_of(trained(116), version, 5, size))
    assert f"seen_bytes={size}" in report.verdict
    assert f"it fits exactly with a counter of {size} bytes" in report.findings[1]


@pytest.mark.parametrize(("kept", "words"), [(0, "is empty"), (10, "after 10 of 16 bytes"), (17, "17 of 20"), (20, "zero param")])
def test_file_without_values_is_told(kept, words):
    assert words in dn.check(TWO, weights_of(trained(116))[:kept]).verdict


def test_file_of_the_first_layers_is_recognised():
    report = dn.check(TWO, weights_of(trained(62)))
    assert "upto=1" in report.verdict
    assert [place.held for place in report.places] == ["whole"] * 5 + ["missing"] * 2


# --- values ---------------------------------------------------------------------------------------------------------------------


def changed(index: int, value: float, count: int = 1) -> bytes:
    floats = trained(116)
    floats[index : index + count] = value
    return weights_of(floats)


def test_first_array_with_a_value_of_no_training_is_named():
    report = dn.check(TWO, changed(8, np.nan))
    assert "layer 0 [convolutional] weights (line 5, byte 52): 1 of 54 values are NaN or infinite" in report.verdict
    assert "2 of 18 values are beyond 1,000,000, up to 2e+07" in dn.check(TWO, changed(62, -2e7, 2)).verdict


@pytest.mark.parametrize(("dialect", "variance", "good"), [
    ("alexeyab", -1e-6, True), ("alexeyab", -2e-5, False), ("pjreddie", -1e-6, False), ("pjreddie", 0.0, True),
])  # fmt: skip
def test_variance_is_held_against_the_profiles_own_root(dialect, variance, good):
    report = dn.check(TWO, changed(7, variance), dialect=dialect)
    assert report.good == good
    if not good:
        assert "rolling_variance" in report.verdict
        assert "have no root" in report.verdict


def test_variances_that_forks_disagree_on_are_counted_with_their_channel():
    floats = trained(116)
    floats[6:8] = -7e-44, 1e-42
    (note,) = [note for note in dn.check(TWO, weights_of(floats)).notes if "variances" in note]
    assert "layer 0 [convolutional] rolling_variance (line 5, byte 44)" in note
    assert "1 negative (first in channel 0) and 1 denormal (first in channel 1)" in note


def test_shift_by_a_float_is_recognised_by_the_variances():
    sections = [f"conv filters={n} size=3 pad=1 batch_normalize=1 activation=leaky" for n in (4, 8, 8, 16)]
    net = dn.load(cfg_of(*sections), seed=3)
    for layer in net.layers:
        layer.rolling_variance[...] = 1.5
        layer.rolling_mean[...] = -0.5
    net.layers[1].weights[:, 0, 0, 0] = -1
    data = net.to_bytes()
    shifted = data[:20] + bytes(4) + data[20:-4]
    report = dn.check(cfg_of(*sections), shifted)
    assert "looks wrong is layer 0 [convolutional] rolling_variance" in report.verdict
    assert "read 1 float later from there on, every variance would be positive" in report.findings[1]


def test_rolling_arrays_that_nothing_moved_are_told():
    sections = ("conv filters=2 batch_normalize=1", "conv filters=3 batch_normalize=1")
    net = dn.load(cfg_of(*sections))
    net.layers[1].rolling_variance[...] = 1
    report = dn.check(cfg_of(*sections), net.to_bytes())
    assert "the rolling arrays of 2 layers (layer 0, 1) are as before any training" in report.verdict
    net.layers[0].rolling_mean[...] = 0.1
    assert "of 1 layers (layer 1)" in dn.check(cfg_of(*sections), net.to_bytes()).verdict


def test_share_of_the_start_that_is_left_follows_from_the_counter():
    cfg = TWO.replace(b"[net]\n", b"[net]\nbatch=64\nsubdivisions=16\n")
    (note,) = dn.check(cfg, weights_of(trained(116), seen=400)).notes  # 100 updates of 4 images: .99 ** 100 = .36603
    assert "400 images seen leave 36.60% of the start" in note
    assert "batch/subdivisions = 64/16 = 4 images" in note


def test_forecast_counts_channels_that_another_epsilon_changes():
    floats = trained(116)
    floats[6:8] = 1e-4, 1  # sqrt(1.1e-4 / 1.01e-4) = 1.044; at 1 only 1e-3 changes anything, by 0.0005
    forecast = dn.check(TWO, weights_of(floats), dialect="alexeyab").forecast
    assert [(each.layer, each.channels) for each in forecast] == [(0, 2)]
    assert forecast[0].shares == {
        "√(v+1e-06)": 0.5, "√v+1e-06": 0.5, "√(v+0.0001)": 0.5, "√(v+0.001)": 0.5,
    }  # fmt: skip
    own = dn.check(TWO, weights_of(floats), dialect="pjreddie").forecast[0].shares
    assert own["√v+1e-06"] == 0


# --- the rest -------------------------------------------------------------------------------------------------------------------


def test_report_is_json():
    document = json.loads(json.dumps(dn.check(TWO, weights_of(trained(134))).to_json()))
    assert document["good"] is False
    assert document["header"]["nbytes"] == 20
    assert document["places"][4]["shape"] == [2, 3, 3, 3]


def test_cfg_that_makes_no_network_and_weights_that_are_not_there_are_errors():
    with pytest.raises(dn.CfgError, match="whole number"):
        dn.check(cfg_of("conv filters=two"), weights_of(numbered(4)))
    with pytest.raises(dn.WeightsError, match="does not exist"):
        dn.check(TWO, "no.weights")


@pytest.mark.parametrize("name", FASTEST)
def test_real_file_is_good(models, name):
    assert dn.check(models / f"{name}.cfg", models / f"{name}.weights").findings == ()


def test_real_file_with_variances_below_0_is_told(models):
    folder = models / "mobilenetv2-yolo-fastest-voc"
    report = dn.check(folder / "MobileNetV2-YOLO-Fastest-voc.cfg", folder / "MobileNetV2-YOLO-Fastest-voc.weights")
    notes = [note for note in report.notes if "negative" in note]
    assert [note.split(" (line")[0].split(": ")[-1].split("layer ")[1].split(" [")[0] for note in notes] == ["65", "75"]
