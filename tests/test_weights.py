"""The bytes of .weights files: each array where the forks put it, the identical bytes after a save, and a save that fails."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import resource
import stat
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from core import SAMPLE, recorded_files
from nets import CFG, cfg_of, load_recorded, numbered, tiny_yolo, weights_of

# --- recorded files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", recorded_files("[lnw]*/*-cpu/*.weights"))
def test_load_then_save_gives_the_identical_bytes(path):
    net = load_recorded(path)
    assert net.to_bytes() == path.read_bytes()
    assert net.origin.nbytes == path.stat().st_size


@pytest.mark.parametrize("path", recorded_files("weights/*-cpu/*.weights"))
def test_arrays_are_those_that_the_fork_wrote(path):
    net = load_recorded(path)
    recorded = json.loads(path.with_suffix(".json").read_text())
    header = recorded["header"]
    assert (net.header.major, net.header.minor, net.header.revision) == (header["major"], header["minor"], header["revision"])
    assert (net.seen, net.header.nbytes) == (header["seen"], header["header_bytes"])
    arrays = {
        f"{layer.index:03d}_{layer.type}.{name}": a for layer in net.layers if layer.stored for name, a in layer.params.items()
    }
    wanted = recorded["arrays_in_file_order"]
    assert list(arrays) == [_our_name(entry["name"]) for entry in wanted]
    for entry, array in zip(wanted, arrays.values(), strict=True):
        assert list(array.shape) == entry["shape"]
        assert np.array_equal(array.ravel()[:8], np.array(entry["first"], np.float32), equal_nan=True)
        assert hashlib.sha256(array.tobytes()).hexdigest() == entry["sha256"]


def _our_name(recorded: str) -> str:
    """The layers of a [gru] have the first fork's names: "uz", which a later one calls input_z_layer."""
    return re.sub(r"(input|state)_([zrh])_layer", lambda found: ("u" if found[1] == "input" else "w") + found[2], recorded)


MODELS = {
    "yolo-fastest.weights": ("alexeyab", "0.2.5", 8000000),
    "yolo-fastest-xl.weights": ("alexeyab", "0.2.5", 18627200),
    "yolo-fastest-1.1.weights": ("alexeyab", "0.2.5", 14231680),
    "yolo-fastest-1.1-xl.weights": ("alexeyab", "0.2.5", 16000000),
    "yolo-fastest-1.1_body.weights": ("alexeyab", "0.2.5", 13326656),
    "yoloface-50k/yoloface-50k.weights": ("alexeyab", "0.2.5", None),
    "mobilenetv2-yolo-fastest-voc/MobileNetV2-YOLO-Fastest-voc.weights": ("alexeyab", "0.2.5", None),
    "cifar_minin/cifar_minin.weights": ("pjreddie", "0.1.0", None),
}


# 4 of 144 and 5 of 96 variances are -7.0e-44, 1 of 8, 3 of 144 and 7 of 96 denormal.
TOLD = {
    name: [f"{name}: layer {layer} [convolutional]" for layer in (1, 65, 65, 75, 75)]
    for name in ["mobilenetv2-yolo-fastest-voc/MobileNetV2-YOLO-Fastest-voc.weights"]
}


@pytest.mark.parametrize("name", MODELS)
def test_real_file_is_used_whole_and_saved_as_it_was(models, name):
    dialect, version, seen = MODELS[name]
    path = models / name
    net = dn.load(path.with_suffix(".cfg"), path)
    assert net.to_bytes() == path.read_bytes()
    assert (net.dialect, net.header.version) == (dialect, version)
    assert seen in (None, net.seen)
    assert [warning.removeprefix(f"{models}/").split(" (")[0] for warning in net.warnings] == TOLD.get(name, [])


PARTIAL = [
    ("ttt4/ttt4.cfg", "ttt4/ttt4_pre_conv4.weights", 4),
    (
        "mobilenetv2-yolo-fastest-voc/MobileNetV2-YOLO-Fastest-voc.cfg",
        "mobilenetv2-yolo-fastest-voc/MobileNetV2-YOLO-Fastest.conv.57",
        64,
    ),
]


@pytest.mark.parametrize(("cfg", "weights", "upto"), PARTIAL, ids=["ttt4", "conv.57"])
def test_real_backbone_file_is_recognised_and_loads_on_purpose(models, cfg, weights, upto):
    with pytest.raises(dn.WeightsError, match=rf"ends exactly before layer {upto} .* load those with upto={upto}") as caught:
        dn.load(models / cfg, models / weights)
    assert caught.value.layer == upto
    net, again = dn.load(models / cfg, models / weights, upto=upto), io.BytesIO()
    net.save(again, upto=upto)
    assert again.getvalue() == (models / weights).read_bytes()


# --- headers --------------------------------------------------------------------------------------------------------------------

BOTH = ("pjreddie", "alexeyab")
HEADERS = [
    ("v0.0.0_seen32", BOTH, 640),
    ("v0.1.0_seen32", BOTH, 12800),
    ("v0.1.0_seen32_big", ("pjreddie",), -294967296),
    ("v0.1.0_seen32_big", ("alexeyab",), 4000000000),
    ("v0.2.0_seen64", BOTH, 12800),
    ("v0.2.0_seen64_big", BOTH, 5000000000),
    ("v0.2.5_seen64", BOTH, 32013312),
    ("v0.3.5_seen64", BOTH, 32013312),
    ("v1.0.0_seen64", BOTH, 64),
    ("v2.5.0_seen64", BOTH, 64),
    ("v1001.0.0_seen32_transposed", ("pjreddie",), 640),
    ("v0.1001.0_seen32_transposed", ("pjreddie",), 640),
    ("v1000.0.0_seen32", ("pjreddie",), 640),
    ("v1001.0.0_seen64_transposed", ("alexeyab",), 640),
    ("v0.1001.0_seen64_transposed", ("alexeyab",), 640),
    ("v1000.0.0_seen64", ("alexeyab",), 640),
]
CASES = [pytest.param(name, dialect, seen, id=f"{name}-{dialect}") for name, known, seen in HEADERS for dialect in known]
MISREAD = [
    (name, other) for name, known, _ in HEADERS for other in BOTH if len(known) == 1 and "big" not in name and other not in known
]


def mixed(dialect: str) -> tuple[Path, Path]:
    path = SAMPLE / "weights" / f"{dialect}-cpu" / "mixed.weights"
    return path.with_suffix(".cfg"), path


@pytest.mark.parametrize(("variant", "dialect", "seen"), CASES)
def test_header_variant_has_the_same_arrays_and_keeps_its_bytes(variant, dialect, seen):
    cfg, native = mixed(dialect)
    path = SAMPLE / "weights" / "headers" / f"mixed.{variant}.weights"
    net, plain = dn.load(cfg, path, dialect=dialect), dn.load(cfg, native, dialect=dialect)
    assert net.seen == seen
    assert net.header.nbytes == (16 if "seen32" in variant else 20)
    assert net.to_bytes() == path.read_bytes()
    for ours, theirs in zip(net.layers, plain.layers, strict=True):
        assert all(np.array_equal(ours.params[name], theirs.params[name]) for name in theirs.params)


@pytest.mark.parametrize(("variant", "dialect"), MISREAD)
def test_header_that_the_dialects_program_misreads_is_refused_there_and_auto_finds_the_other(variant, dialect):
    cfg, _ = mixed(dialect)
    path = SAMPLE / "weights" / "headers" / f"mixed.{variant}.weights"
    with pytest.raises(dn.WeightsError, match="4 bytes"):
        dn.load(cfg, path, dialect=dialect)
    net = dn.load(cfg, path)
    assert net.dialect in BOTH
    assert net.dialect != dialect


def test_three_headers_before_one_body_give_the_same_parameters():
    headers = [((0, 1, 0), 7, 4), ((0, 2, 0), 7, 8), ((0, 2, 5), 2**33 + 7, 8)]
    nets = [dn.load(CFG / "convolutional.cfg", weights_of(numbered(62), *header)) for header in headers]
    assert [net.seen for net in nets] == [7, 7, 2**33 + 7]
    assert [net.header.nbytes for net in nets] == [16, 20, 20]
    assert len({net.to_bytes()[net.header.nbytes :] for net in nets}) == 1


# --- where each array lies ------------------------------------------------------------------------------------------------------

PLACES = {
    "convolutional": ("alexeyab", 62, {"biases": 1, "scales": 3, "rolling_mean": 5, "rolling_variance": 7, "weights": 9}),
    "connected": ("alexeyab", 14, {"biases": 1, "weights": 3, "scales": 9, "rolling_mean": 11, "rolling_variance": 13}),
    "batchnorm": ("alexeyab", 8, {"biases": 1, "scales": 3, "rolling_mean": 5, "rolling_variance": 7}),
    "batchnorm of pjreddie": ("pjreddie", 6, {"scales": 1, "rolling_mean": 3, "rolling_variance": 5}),
    "grouped": ("alexeyab", 132, {"biases": 1, "scales": 7, "rolling_mean": 13, "rolling_variance": 19, "weights": 25}),
}


@pytest.mark.parametrize("case", PLACES)
def test_numbered_floats_land_where_the_format_says(case):
    dialect, count, firsts = PLACES[case]
    layer = dn.load(CFG / f"{case.split()[0]}.cfg", weights_of(numbered(count)), dialect=dialect).layers[0]
    assert {name: array.flat[0] for name, array in layer.params.items()} == firsts
    assert list(layer.params) == list(firsts)
    assert sum(array.size for array in layer.params.values()) == count
    assert all(np.array_equal(a.ravel(), np.arange(a.flat[0], a.flat[0] + a.size)) for a in layer.params.values())


def test_grouped_kernel_has_the_channels_of_one_group():
    layer = dn.load(CFG / "grouped.cfg", weights_of(numbered(132))).layers[0]
    assert layer.weights.shape == (6, 2, 3, 3)
    with pytest.raises(dn.WeightsError, match=r"holds 240 floats .* takes 132"):
        dn.load(CFG / "grouped.cfg", weights_of(numbered(240)))


def test_transposed_file_fills_the_matrix_by_columns():
    layer = dn.load(CFG / "connected.cfg", weights_of(numbered(14), (1001, 0, 0)), dialect="alexeyab").layers[0]
    assert layer.weights.tolist() == [[3, 5, 7], [4, 6, 8]]


# --- saving ---------------------------------------------------------------------------------------------------------------------


def test_path_file_and_bytes_are_the_same(tmp_path):
    net, stream = tiny_yolo(), io.BytesIO()
    net.save(tmp_path / "a.weights")
    net.save(str(tmp_path / "b.weights"))
    net.save(stream)
    assert {stream.getvalue(), *((tmp_path / name).read_bytes() for name in ("a.weights", "b.weights"))} == {net.to_bytes()}


def test_header_can_be_chosen_and_the_counter_follows_the_version():
    net = dn.load(CFG / "convolutional.cfg", weights_of(numbered(62)))
    for version, seen, nbytes in [((0, 1, 0), 5, 16), ((0, 2, 0), 2**40, 20)]:
        stream = io.BytesIO()
        net.save(stream, header=(*version, seen))
        assert stream.getvalue() == weights_of(numbered(62), version, seen, nbytes - 12)
    assert net.header.version == "0.2.5"


def test_upto_leaves_later_layers_out_and_loads_again():
    net, stream = dn.load(CFG / "two-convolutions.cfg", weights_of(numbered(116))), io.BytesIO()
    net.save(stream, upto=1)
    assert stream.getvalue() == weights_of(numbered(62))
    again = dn.load(CFG / "two-convolutions.cfg", stream.getvalue(), upto=1)
    assert np.array_equal(again.layers[0].weights, net.layers[0].weights)
    assert not np.array_equal(again.layers[1].weights, net.layers[1].weights)


def test_one_changed_scale_changes_its_four_bytes_alone():
    before = weights_of(numbered(116), seen=2**33 + 7)
    net = dn.load(CFG / "two-convolutions.cfg", before)
    net.layers[0].scales[1] = -0.5
    changed = [place for place, (a, b) in enumerate(zip(before, net.to_bytes(), strict=True)) if a != b]
    assert set(changed) <= set(range(20 + 3 * 4, 20 + 4 * 4))
    assert np.frombuffer(net.to_bytes()[32:36], "<f4") == -0.5


def test_nan_payloads_and_negative_zeros_survive():
    bits = np.array([0x7FC12345, 0x80000000, 0x00000001, 0xFF800000, 0x7FA00001, 0xFFC00000], np.uint32)
    body = np.resize(bits, 62).view(np.float32)
    assert dn.load(CFG / "convolutional.cfg", weights_of(body)).to_bytes() == weights_of(body)


def test_saving_keeps_the_mode_of_an_old_file_and_gives_a_new_one_the_umasks(tmp_path):
    net, old = tiny_yolo(), tmp_path / "old.weights"
    old.write_bytes(b"old")
    old.chmod(0o640)
    net.save(old)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.read_bytes() == net.to_bytes()
    mask = os.umask(0o027)
    try:
        net.save(tmp_path / "new.weights")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new.weights").stat().st_mode) == 0o640


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    old = tmp_path / "net.weights"
    old.write_bytes(b"old")
    net, limits = tiny_yolo(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(dn.WeightsError, match=r"net.weights: cannot be written, and is as it was"):
            net.save(old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert old.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["net.weights"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no/such/net.weights", "no folder .*such"),
        ("file/net.weights", "no folder .*file"),
        (".", "is a directory|cannot be written"),
    ],
)
def test_place_that_takes_no_file_is_named(tmp_path, target, words):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(dn.WeightsError, match=words):
        tiny_yolo().save(tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_saving_through_a_link_writes_the_file_it_names(tmp_path):
    real, link = tmp_path / "real.weights", tmp_path / "link.weights"
    real.write_bytes(b"old")
    link.symlink_to(real)
    net = dn.load(cfg_of("conv filters=1 activation=linear"))
    net.save(link)
    assert link.is_symlink()
    assert real.read_bytes() == net.to_bytes()
