"""Arrays of other programs: there and back to the byte, names, metadata, half precision, what is refused; the verb."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pydarknetbn as dn
from nets import FASTEST, cfg_of, load_recorded, noise, numbered, tiny_files, tiny_yolo, weights_of
from pydarknetbn import convert
from pydarknetbn.cli import app

HERE = Path(__file__).parent  # a folder without a package, which would hide the installed one
TWO = cfg_of("conv filters=2 size=1 activation=leaky batch_normalize=1", "conv filters=1 size=1 activation=linear", w=2, h=2, c=1)
FLOATS = numbered(13)  # biases 1 2, scales 3 4, means 5 6, variances 7 8, weights 9 10; bias 11, weights 12 13


def two(**options) -> dn.Network:
    return dn.load(TWO, weights_of(FLOATS, (0, 2, 0), seen=77), **options)


# --- there and back -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(("version", "seen_bytes"), [((0, 1, 0), 4), ((0, 2, 0), 8), ((0, 2, 5), 8), ((1001, 0, 0), 8)])
def test_files_of_arrays_give_the_identical_weights(tmp_path, kind, version, seen_bytes):
    data = weights_of(FLOATS, version, seen=12345, seen_bytes=seen_bytes)
    net = dn.load(TWO, data, dialect="alexeyab")
    path = tmp_path / f"two.{kind}"
    getattr(convert, f"to_{kind}")(net, path)
    again = getattr(convert, f"from_{kind}")(path)
    assert again.to_bytes() == data
    assert (again.dialect, again.profile) == ("alexeyab", "alexeyab-cpu")
    assert again.origin.cfg.text == TWO.decode()


def test_every_recorded_network_comes_back_identical(golden, tmp_path):
    files = [file for folder in ("layers", "nets") for file in sorted((golden / folder).glob("*/*.weights"))]
    assert len(files) > 100
    for file in files:
        net = load_recorded(file)
        convert.to_npz(net, tmp_path / "net.npz")
        convert.to_safetensors(net, tmp_path / "net.safetensors")
        assert convert.from_npz(tmp_path / "net.npz").to_bytes() == net.to_bytes(), file
        assert convert.from_safetensors(tmp_path / "net.safetensors").to_bytes() == net.to_bytes(), file


@pytest.mark.parametrize("name", FASTEST)
def test_real_weights_come_back_identical(models, tmp_path, name):
    data = (models / f"{name}.weights").read_bytes()
    convert.to_npz(dn.load(models / f"{name}.cfg", models / f"{name}.weights"), tmp_path / "net.npz")
    assert convert.from_npz(tmp_path / "net.npz").to_bytes() == data


# --- what is in them ------------------------------------------------------------------------------------------------------------

NAMES = {
    "layers": ["layers.0.biases", "layers.0.scales", "layers.0.rolling_mean", "layers.0.rolling_variance", "layers.0.weights",
               "layers.1.biases", "layers.1.weights"],
    "ultralytics": ["module_list.0.BatchNorm2d.bias", "module_list.0.BatchNorm2d.weight", "module_list.0.BatchNorm2d.running_mean",
                    "module_list.0.BatchNorm2d.running_var", "module_list.0.Conv2d.weight", "module_list.1.Conv2d.bias",
                    "module_list.1.Conv2d.weight"],
    "tianxiaomo": ["models.0.bn1.bias", "models.0.bn1.weight", "models.0.bn1.running_mean", "models.0.bn1.running_var",
                   "models.0.conv1.weight", "models.1.conv2.bias", "models.1.conv2.weight"],
}  # fmt: skip
FIRST = [1, 3, 5, 7, 9, 11, 12]


def test_npz_is_readable_by_numpy_alone(tmp_path):
    convert.to_npz(two(), tmp_path / "two.npz")
    with np.load(tmp_path / "two.npz") as arrays:
        assert [name for name in arrays.files if name != "__metadata__"] == NAMES["layers"]
        assert [arrays[name].reshape(-1)[0] for name in NAMES["layers"]] == FIRST
        metadata = json.loads(str(arrays["__metadata__"]))
    assert metadata["cfg_sha256"] == hashlib.sha256(TWO).hexdigest()
    assert json.loads(metadata["header"]) == [0, 2, 0, 77, 8]


def test_safetensors_is_what_its_library_reads(tmp_path):
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    convert.to_safetensors(two(), tmp_path / "two.safetensors")
    arrays = library.load_file(tmp_path / "two.safetensors")
    assert [arrays[name].reshape(-1)[0] for name in NAMES["layers"]] == FIRST
    assert (tmp_path / "two.safetensors").read_bytes()[8:9] == b"{"
    library.save_file({name: arrays[name] for name in reversed(NAMES["layers"])}, tmp_path / "theirs.safetensors")
    again = convert.from_safetensors(tmp_path / "theirs.safetensors", cfg=TWO, header=(0, 2, 0, 77))
    assert again.to_bytes() == two().to_bytes()


@pytest.mark.parametrize("style", list(NAMES))
def test_state_dict_has_the_names_of_the_ports(style):
    pytest.importorskip("torch", reason="torch is not installed")
    state = convert.to_state_dict(two(), style=style)
    values = {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}
    assert list(values) == NAMES[style]
    assert [float(values[name].reshape(-1)[0]) for name in NAMES[style]] == FIRST
    assert len(state) - len(values) == (style != "layers")
    again = convert.from_state_dict(state, cfg=TWO, style=style, header=(0, 2, 0, 77))
    assert again.to_bytes() == two().to_bytes()
    bare = {f"module.{name}": values[name] for name in values}
    assert convert.from_state_dict(bare, cfg=TWO, style=style, header=(0, 2, 0, 77)).to_bytes() == two().to_bytes()


def test_state_dict_needs_no_torch_to_be_read():
    arrays = {name: np.array(values) for name, values in zip(NAMES["layers"], arrays_of(two()), strict=True)}
    assert convert.from_state_dict(arrays, cfg=TWO, header=(0, 2, 0, 77)).to_bytes() == two().to_bytes()


def arrays_of(net: dn.Network) -> list[np.ndarray]:
    return [array for layer in net.layers for array in layer.params.values()]


def test_connected_layers_of_one_port_depend_on_the_activation():
    pytest.importorskip("torch", reason="torch is not installed")
    cfg = b"[net]\ninputs=3\n[connected]\noutput=2\nactivation=leaky\n[connected]\noutput=1\nactivation=linear\n"
    state = convert.to_state_dict(dn.load(cfg, None), style="tianxiaomo")
    assert list(state) == ["models.0.0.bias", "models.0.0.weight", "models.1.bias", "models.1.weight"]


# --- what is refused ------------------------------------------------------------------------------------------------------------


def test_layer_without_a_name_in_a_style_is_named():
    pytest.importorskip("torch", reason="torch is not installed")
    net = dn.load(cfg_of("conv filters=2 size=1 activation=leaky", "batchnorm"), None)
    for style in ("ultralytics", "tianxiaomo"):
        with pytest.raises(dn.UnsupportedError, match=r"layer 1 \(line 9\) is \[batchnorm\], for whose arrays"):
            convert.to_state_dict(net, style=style)
    with pytest.raises(ValueError, match="expected a style"):
        convert.to_state_dict(net, style="keras")


WRONG = [
    ({"layers.0.scales": None}, r"has no layers.0.scales, which layer 0 \[convolutional\] scales \(line 5\) needs"),
    ({"layers.0.scales": np.zeros(3, np.float32)}, r"layers.0.scales is of shape \(3,\), and layer 0 .* of \(2,\)"),
    ({"layers.0.scales": np.zeros(2, np.int64)}, "is of int64, expected floats"),
    ({"layers.7.biases": np.zeros(2, np.float32)}, "layers.7.biases belongs to no layer of the cfg"),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_arrays_that_are_not_the_cfgs_are_told(change, told):
    arrays = dict(zip(NAMES["layers"], arrays_of(two()), strict=True)) | change
    with pytest.raises(dn.WeightsError, match=told):
        convert.from_state_dict({name: array for name, array in arrays.items() if array is not None}, cfg=TWO)


BROKEN = [b"", b"abc", b"\xff" * 20, (9).to_bytes(8, "little") + b"[1, 2, 3]", (2).to_bytes(8, "little") + b"{}",
          b"\x2f" + b"\0" * 7 + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":0}}'[:47]]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN)
def test_broken_files_are_told_in_one_sentence(tmp_path, data):
    for kind in ("npz", "safetensors"):
        path = tmp_path / f"broken.{kind}"
        path.write_bytes(data)
        with pytest.raises(dn.WeightsError) as caught:
            getattr(convert, f"from_{kind}")(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_offsets_beyond_the_file_are_told(tmp_path):
    header = json.dumps({"layers.0.biases": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "short.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(dn.WeightsError, match="which its bytes 0 to 8 of 4 are not"):
        convert.from_safetensors(tmp_path / "short.safetensors", cfg=TWO)


def test_missing_package_names_its_extra():
    code = "import sys; sys.modules['torch'] = None; import pydarknetbn as dn; dn.convert.to_state_dict(None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)
    assert "MissingExtraError: torch is not installed" in done.stderr
    assert "pip install 'pydarknetbn[torch]'" in done.stderr


def test_package_imports_no_converter():
    code = (
        "import sys, pydarknetbn; print([n for n in sys.modules if n.startswith(('torch', 'safetensors', 'pydarknetbn.convert.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- half precision -------------------------------------------------------------------------------------------------------------


def test_half_counts_what_overflows_underflows_and_vanishes():
    """float16: 70000 is over 65504, 1e-5 below 6.1e-5, 1e-8 below half of 6.0e-8."""
    net = dn.load(cfg_of("conv filters=4 size=1 activation=linear", w=1, h=1, c=1), weights_of(np.zeros(8, np.float32)))
    net.layers[0].weights[...] = np.array([70000, 1e-5, 1e-8, 1], np.float32).reshape(4, 1, 1, 1)
    rounded, report = convert.half_report(net, np.ones((1, 1, 1, 1), np.float32), dtype="float16")
    layer = report.layers[0]
    assert (layer.values, layer.overflow, layer.underflow, layer.vanish, layer.outputs_overflow) == (8, 1, 1, 1, 1)
    assert report.overflows
    assert rounded.layers[0].weights.reshape(-1)[2] == 0


def test_half_report_is_of_the_folded_network_and_leaves_the_network():
    net = tiny_yolo()
    before = net.to_bytes()
    rounded, report = convert.half_report(net, noise(1, 3, net.h, net.w), dtype="float16")
    assert net.to_bytes() == before
    assert "scales" not in rounded.layers[0].params
    assert np.array_equal(rounded.layers[0].weights, dn.fold(net)[0].layers[0].weights.astype(np.float16).astype(np.float32))
    assert 2.0**-14 < report.worst.error < 0.05
    with pytest.raises(dn.UnsupportedError, match="expected dtype"):
        convert.half_report(net, noise(1, 3, net.h, net.w), dtype="int8")


def test_bfloat16_is_rounded_to_8_bits(tmp_path):
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    net = dn.load(cfg_of("conv filters=1 size=1 activation=linear", w=1, h=1, c=1), weights_of(np.array([0, 1.01], np.float32)))
    rounded, _ = convert.half_report(net, np.ones((1, 1, 1, 1), np.float32), dtype="bfloat16")
    assert rounded.layers[0].weights.item() == 1.0078125
    convert.to_safetensors(net, tmp_path / "b.safetensors", dtype="bfloat16")
    assert convert.from_safetensors(tmp_path / "b.safetensors").layers[0].weights.item() == 1.0078125
    with pytest.raises(dn.UnsupportedError, match="holds no bfloat16"):
        convert.to_npz(net, tmp_path / "b.npz", dtype="bfloat16")


# --- the verb -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "pt"])
def test_verb_goes_there_and_back(tmp_path, suffix):
    if suffix == "pt":
        pytest.importorskip("torch", reason="torch is not installed")
    cfg, weights, _ = tiny_files(tmp_path)
    out, back = tmp_path / f"net.{suffix}", tmp_path / "back.weights"
    done = CliRunner().invoke(app, ["convert", str(cfg), str(weights), str(out)])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["convert", "--from", str(out), str(cfg), str(back)])
    assert done.exit_code == 0, done.output
    skipped = 20 if suffix == "pt" else 0  # a state dict has no header
    assert back.read_bytes()[skipped:] == weights.read_bytes()[skipped:]


def test_verb_reports_half_precision_before_it_writes(tmp_path):
    cfg, weights, picture = tiny_files(tmp_path)
    out = tmp_path / "half.npz"
    done = CliRunner().invoke(
        app, ["convert", str(cfg), str(weights), str(out), "--dtype", "float16", "--input", str(picture), "--json"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert len(document["half"]["layers"]) == len(dn.load(cfg).layers)
    with np.load(out) as arrays:
        assert arrays["layers.0.weights"].dtype == np.float16
        assert "layers.0.scales" not in arrays.files


def test_verb_tells_an_unknown_ending(tmp_path):
    cfg, weights, _ = tiny_files(tmp_path)
    done = CliRunner().invoke(app, ["convert", str(cfg), str(weights), str(tmp_path / "net.tflite")])
    assert isinstance(done.exception, dn.UnsupportedError)
    assert ".safetensors" in str(done.exception)
    assert CliRunner().invoke(app, ["convert", str(cfg)]).exit_code == 2
