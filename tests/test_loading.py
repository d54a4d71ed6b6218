"""`load`: which sources it takes, how it decides what the bytes mean, and what it says of files that do not fit."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from nets import CFG, TINY, cfg_of, numbered, refusal, tiny_files, weights_of
from pydarknetbn.loading import load_names

ONE, TWO = CFG / "convolutional.cfg", CFG / "two-convolutions.cfg"
WHOLE = weights_of(numbered(116))

# --- sources --------------------------------------------------------------------------------------------------------------------


def test_path_pathlike_bytes_and_binary_file_load_the_same(tmp_path):
    path = tmp_path / "a space é.weights"
    path.write_bytes(WHOLE)
    with path.open("rb") as file, TWO.open("rb") as cfg_file:
        nets = [
            dn.load(TWO, path),
            dn.load(str(TWO), str(path)),
            dn.load(TWO.read_bytes(), WHOLE),
            dn.load(bytearray(TWO.read_bytes()), memoryview(WHOLE)),
            dn.load(io.BytesIO(TWO.read_bytes()), io.BytesIO(WHOLE)),
            dn.load(cfg_file, file),
        ]
    assert {net.to_bytes() for net in nets} == {WHOLE}
    assert [net.origin.nbytes for net in nets] == [len(WHOLE)] * 6
    assert nets[0].layers[1].weights[17, 1, 0, 0] == 116


@pytest.mark.parametrize("path", sorted(CFG.glob("*.cfg")), ids=lambda path: path.stem)
def test_own_cfg_loads_without_doubt(path):
    assert dn.load(path, strict=True).warnings == ()


def test_file_is_read_from_where_it_stands():
    stream = io.BytesIO(b"before" + WHOLE)
    stream.seek(6)
    assert dn.load(TWO, stream).to_bytes() == WHOLE


@pytest.mark.parametrize(("weights", "words"), [(3, "got int"), (["a"], "got list"), (io.StringIO("x"), "'rb'")])
def test_other_kind_of_source_is_a_type_error(weights, words):
    with pytest.raises(TypeError, match=words):
        dn.load(TWO, weights)


ARGUMENTS = {
    "dialect": ({"dialect": "darknet"}, r"expected a dialect \(pjreddie, alexeyab, hank-ai or auto\), got 'darknet'"),
    "profile": ({"profile": "gpu"}, r"expected a profile \(pjreddie-cpu, .*\), got 'gpu'"),
    "upto": ({"upto": -1}, "upto to be a layer number of 0 or more, got -1"),
    "seen_bytes": ({"seen_bytes": 16}, "seen_bytes to be 4 or 8, got 16"),
}


@pytest.mark.parametrize(("options", "words"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_argument_is_named_with_what_it_may_be(options, words):
    with pytest.raises(ValueError, match=words):
        dn.load(TWO, WHOLE, **options)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:one", "cpu:0", "", None])
def test_a_device_is_the_cpu_or_a_number_of_cudas(device):
    with pytest.raises(dn.DeviceError, match="expected device 'cpu', 'cuda' or 'cuda:N' with the number of a device, got"):
        dn.load(TWO, device=device)


# --- names ----------------------------------------------------------------------------------------------------------------------


def test_names_lie_beside_the_cfg_under_its_stem(tmp_path):
    assert dn.load(TINY).names == ("circle", "square", "triangle")
    cfg = Path(shutil.copy(TINY, tmp_path / "other.v2.cfg"))
    assert dn.load(cfg).names == dn.load(cfg.read_bytes()).names == ()
    cfg.with_suffix(".names").write_bytes("\ufeffKreis\r\n\r\n große Ecke \n".encode())
    assert dn.load(str(cfg)).names == ("Kreis", "große Ecke")


def test_names_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(dn.WeightsError, match=r"no\.names: cannot be read as class names"):
        load_names(tmp_path / "no.names")


# --- what the bytes mean --------------------------------------------------------------------------------------------------------

PLAIN, BATCHNORM = cfg_of("conv filters=2 size=3 pad=1 batch_normalize=1 activation=leaky"), (CFG / "batchnorm.cfg").read_bytes()
RULES = {
    "a section of one": (
        cfg_of("upsample stride=1", "reorg3d stride=1"),
        None,
        "alexeyab",
        "no other reads this cfg (<bytes>:7: layer 1",
    ),
    "a key of one": (
        cfg_of("max", "route layers=-1 groups=1"),
        None,
        "alexeyab",
        "only its forks know groups= of [route] on line 8",
    ),
    "a key of the other": (
        cfg_of("max", "shortcut from=-1 alpha=1"),
        None,
        "pjreddie",
        "only its forks know alpha= of [shortcut] on line 8",
    ),
    "an activation of one": (cfg_of("conv activation=mish"), None, "alexeyab", "only its forks know activation=mish on line 6"),
    "four arrays": (BATCHNORM, weights_of(numbered(8), (0, 2, 0)), "alexeyab", "only its layout fills the file's 52 bytes"),
    "three arrays": (BATCHNORM, weights_of(numbered(6), (0, 2, 5)), "pjreddie", "only its layout fills the file's 44 bytes"),
    "the counter": (PLAIN, weights_of(numbered(62), (1001, 0, 0), 0, 4), "pjreddie", "only its layout fills the file's 264 bytes"),
    "0.2.5": (PLAIN, weights_of(numbered(62), (0, 2, 5)), "alexeyab", "the weights are of version 0.2.5"),
    "0.2.0": (PLAIN, weights_of(numbered(62), (0, 2, 0)), "pjreddie", "the weights are of version 0.2.0"),
    "0.1.0": (PLAIN, weights_of(numbered(62), (0, 1, 0), 0, 4), "pjreddie", "the weights are of version 0.1.0"),
    "0.3.5": (
        PLAIN,
        weights_of(numbered(62), (0, 3, 5)),
        "alexeyab",
        "the default, since neither cfg nor weights of version 0.3.5 decide",
    ),
    "nothing": (PLAIN, None, "alexeyab", "the default, since cfg and weights leave it open"),
}


@pytest.mark.parametrize(("cfg", "weights", "dialect", "why"), RULES.values(), ids=RULES)
def test_each_rule_decides_the_dialect_and_says_why(cfg, weights, dialect, why):
    net = dn.load(cfg, weights)
    assert (net.dialect, net.profile) == (dialect, f"{dialect}-cpu")
    assert net.why[0].startswith(f"dialect {dialect}: {why}")
    assert net.why[1] == f"profile {dialect}-cpu: computes for dialect {dialect}"


def test_any_version_0_1_is_of_the_first_fork():
    assert dn.load(PLAIN, weights_of(numbered(62), (0, 1, 7), 0, 4)).dialect == "pjreddie"


def test_cfg_that_both_mark_is_left_to_the_weights():
    cfg = cfg_of("max", "shortcut from=-1 alpha=1", "route layers=-1 groups=1")
    assert dn.load(cfg, weights_of(numbered(0), (0, 2, 0))).why[0] == "dialect pjreddie: the weights are of version 0.2.0"


def test_asking_overrules_and_is_told():
    net = dn.load(PLAIN, weights_of(numbered(62), (0, 2, 0)), dialect="alexeyab", profile="pjreddie-cpu")
    assert net.why == ("dialect alexeyab: asked for", "profile pjreddie-cpu: asked for")
    assert net.seen == 0


def test_option_that_the_dialects_program_does_not_know_has_no_effect_there():
    dilated = cfg_of("conv filters=1 size=3 dilation=2 activation=linear")
    net = dn.load(dilated, dialect="pjreddie")
    assert net.layers[0].out_shape[1:] == (6, 6)
    assert "has no option dilation" in net.warnings[0]


# --- warnings -------------------------------------------------------------------------------------------------------------------

WARNED = {
    "a misspelt option": (
        cfg_of("conv batch_normalise=1"),
        "<bytes>:6: [conv] has no option batch_normalise; did you mean batch_normalize?",
    ),
    "an option of another section": (cfg_of("max", net="epsilon=1e-3"), "<bytes>:5: [net] has no option epsilon"),
    "a key twice": (cfg_of("max size=2 size=3"), "<bytes>:7: [max] has size= twice: '2' on line 6 counts, '3' on line 7 does not"),
    "anchors missing": (
        cfg_of("conv filters=12 activation=linear", "yolo num=2 mask=0,1 classes=1 anchors=1,2,3"),
        "<bytes>:12: [yolo], layer 1, has 3 numbers in anchors=, num=2 takes 4; the others are .5",
    ),
}


@pytest.mark.parametrize(("cfg", "warning"), WARNED.values(), ids=WARNED)
def test_doubt_is_a_warning_that_strict_raises(cfg, warning):
    net = dn.load(cfg)
    assert len(net.warnings) == 1
    assert net.warnings[0].startswith(warning)
    assert refusal(dn.CfgError, cfg, strict=True) == net.warnings[0]


def test_activation_of_another_fork_names_the_dialect_that_lacks_it():
    message = refusal(dn.CfgError, cfg_of("conv activation=mish"), dialect="pjreddie")
    assert message.startswith("<bytes>:6: [conv], layer 0, has activation=mish, which dialect pjreddie does not know")


def test_aliases_and_training_sections_are_no_doubt():
    net = dn.load(
        cfg_of("conv filters=1 activation=linear", "max size=2", "avg", "conn output=2 activation=linear", "soft", "cost type=sse")
    )
    assert net.warnings == ()
    assert [layer.type for layer in net.layers][-2:] == ["softmax", "cost"]


# --- files that do not fit ------------------------------------------------------------------------------------------------------

MISFITS = {
    "more classes": (
        weights_of(numbered(134)),
        ["holds 134 floats", "20-byte header of version 0.2.5", "takes 116", "72 bytes", "filters"],
    ),
    "fewer classes": (
        weights_of(numbered(107)),
        ["107 floats", "takes 116", "36 bytes more", "layer 1 [convolutional] weights (line 15) after 27"],
    ),
    "cut in the header": (WHOLE[:10], ["ends inside the header after 10 of 16 bytes"]),
    "cut in the counter": (WHOLE[:17], ["ends inside the header after 17 of 20 bytes"]),
    "cut in a variance": (WHOLE[:48], ["layer 0 [convolutional] rolling_variance (line 7) after 1 of 2 values"]),
    "cut at a layer": (WHOLE[:268], ["ends exactly before layer 1 [convolutional]", "upto=1"]),
    "cut in a float": (WHOLE[:271], ["62 floats and 3 bytes", "layer 1 [convolutional] biases"]),
    "cut by one float": (WHOLE[:480], ["115 floats", "4 bytes more", "after 35 of 36 values"]),
    "empty": (b"", ["is empty, expected a header of 16 or 20 bytes"]),
    "a web page": (b"<!DOCTYPE html>\n<html><body>moved</body></html>", ["is an HTML page", "not Darknet weights"]),
    "a web page after blanks": (b"\r\n\n  <html><body>moved</body></html>", ["is an HTML page"]),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid", ["is a git-lfs pointer", "git lfs pull"]),
    "the cfg": (TWO.read_bytes(), ["is text", "not Darknet weights"]),
    "header alone": (WHOLE[:20], ["zero parameters"]),
    "a web page after a byte order mark": (b"\xef\xbb\xbf<!DOCTYPE html>\n<html><body>moved</body></html>", ["is an HTML page"]),
    "text that is not ASCII": ("größer als jeder Kopf und kein Gewicht".encode(), ["is text"]),
    "counter of 4 bytes under 0.2": (weights_of(numbered(116), (0, 2, 0), 5, 4), ["4 bytes more", "seen_bytes=4"]),
    "counter of 8 bytes under 0.1": (weights_of(numbered(116), (0, 1, 0), 5, 8), ["4 bytes", "seen_bytes=8"]),
}


@pytest.mark.parametrize(("data", "words"), MISFITS.values(), ids=MISFITS)
def test_file_that_does_not_fit_is_told_apart(tmp_path, data, words):
    path = tmp_path / "net.weights"
    path.write_bytes(data)
    message = refusal(dn.WeightsError, TWO, path)
    assert message.startswith(f"{path}: ")
    assert all(word in message for word in words), message
    assert refusal(dn.WeightsError, TWO, data).startswith("<bytes>: ")


@pytest.mark.parametrize(("version", "size"), [((0, 2, 0), 4), ((0, 1, 0), 8)])
def test_counter_of_another_size_is_read_when_asked_for_and_kept(version, size):
    data = weights_of(numbered(62), version, 5, size)
    net = dn.load(ONE, data, seen_bytes=size)
    assert (net.seen, net.layers[0].biases[0], net.to_bytes()) == (5, 1, data)


@pytest.mark.parametrize(("name", "words"), [("no.weights", "does not exist"), (".", "is a directory"), ("a\0b", "cannot be read")])
def test_path_that_is_no_file_is_refused(tmp_path, name, words):
    assert words in refusal(dn.WeightsError, TWO, os.path.join(tmp_path, name))  # noqa: PTH118 (Path refuses a NUL only when opened)


def test_error_carries_where_the_file_ends():
    with pytest.raises(dn.WeightsError) as caught:
        dn.load(TWO, WHOLE[:48])
    assert (caught.value.offset, caught.value.layer, caught.value.array) == (48, 0, "rolling_variance")


def test_upto_fills_the_layers_below_and_leaves_the_others_their_start():
    net, start = dn.load(TWO, WHOLE[:268], upto=1, seed=3), dn.load(TWO, seed=3)
    assert net.layers[0].weights.flat[0] == 9
    assert np.array_equal(net.layers[1].weights, start.layers[1].weights)
    assert net.origin.nbytes == 268
    assert "layer 1" not in refusal(dn.WeightsError, TWO, WHOLE[:267], upto=1)


def test_failed_load_leaves_no_open_file(tmp_path):
    _, weights, _ = tiny_files(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for data in (WHOLE, weights):
        for _ in range(20):
            refusal(dn.WeightsError, CFG / "grouped.cfg", data)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
