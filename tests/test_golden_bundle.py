"""Golden bundles: what they hold, how large they are, what a damaged one says, and comparing with one."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

import pydarknetbn as dn
from core import recorded_files
from nets import cfg_of, load_recorded, noise, tiny_yolo
from pydarknetbn.golden import read_golden
from pydarknetbn.golden.bundle import positions
from pydarknetbn.npz import read_arrays, write_arrays
from pydarknetbn.testing import assert_matches

ALL = ("sums", "normal", "post", "boxes")


def bundle(path, net=None, x=3, **options):
    made = dn.dump(net or tiny_yolo(), x, golden=True, **({"stages": ALL} | options))
    made.save(path)
    return made


def arrays(net, x, stages=ALL):
    return {name: array for name, array in dn.dump(net, x, stages=stages).items() if name != "__metadata__"}


@pytest.fixture
def path(tmp_path):
    bundle(tmp_path / "golden.npz")
    return tmp_path / "golden.npz"


# --- what it holds --------------------------------------------------------------------------------------------------------------


def test_it_holds_samples_moments_and_hashes_of_every_step(path):
    values, golden = arrays(tiny_yolo(), 3), read_golden(path)
    assert [step.key for step in golden.steps] == list(values)
    for step in golden.steps:
        value = values[step.key]
        wide = value.astype(np.float64)
        assert step.shape == value.shape
        assert np.array_equal(step.samples, value.reshape(-1)[step.places])
        assert np.array_equal(step.samples, [value[step.index(at)] for at in range(len(step.samples))])
        assert (step.least, step.most) == (value.min(), value.max())
        assert step.mean == pytest.approx(wide.mean(), rel=1e-12)
        assert step.deviation == pytest.approx(wide.std(), rel=1e-12)
        assert np.array_equal(step.means, wide.mean(axis=(0, 2, 3)).astype(np.float32))


def test_it_tells_types_lines_profile_and_cfg(path):
    golden = read_golden(path)
    assert (golden["2.sums"].type, golden["2.sums"].kind) == ("convolutional", "convolution")
    assert golden["12.boxes"].line == tiny_yolo().layers[12].line
    assert golden.about["profile"] == "alexeyab-cpu"
    assert golden.about == {
        key: value for key, value in json.loads(str(dn.dump(tiny_yolo(), 3)["__metadata__"])).items() if key != "format"
    }


def test_what_is_read_is_what_was_made(tmp_path):
    made, again = bundle(tmp_path / "a.npz"), read_golden(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert np.array_equal(made.input, again.input)
    for one, two in zip(made.steps, again.steps, strict=True):
        assert np.all(two.noise >= one.noise * (1 - 1e-12))
        assert np.all(two.noise <= one.noise * 2**0.25)


def test_the_noise_is_of_the_size_that_another_order_of_sums_makes(path):
    """A folded network rounds elsewhere: its largest difference lies between a hundredth of the noise and eight times it."""
    net = tiny_yolo()
    folded, _ = dn.fold(net)
    values, other = arrays(net, 3, ("post",)), arrays(folded, 3, ("post",))
    golden = read_golden(path)
    for name in ("0.post", "2.post", "3.post", "4.post", "12.post"):
        apart = np.abs(values[name].astype(np.float64) - other[name]).max(axis=(0, 2, 3))
        assert np.all(apart < 8 * golden[name].noise), name
        assert apart.max() > golden[name].noise.max() / 100, name


def test_positions_are_the_same_everywhere_and_one_of_each_part():
    assert positions(5, 8, 3).tolist() == [0, 1, 2, 3, 4]
    assert positions(1000, 4, 7).tolist() == [6, 486, 710, 998]
    many = positions(10**9, 240, 11)
    assert np.array_equal(many * 240 // 10**9, np.arange(240))
    assert not np.array_equal(many, positions(10**9, 240, 12))


# --- the input ------------------------------------------------------------------------------------------------------------------


def pixels(h: int, w: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (1, 3, h, w), np.uint8) / np.float32(255)


@pytest.mark.parametrize(
    ("x", "kind"),
    [(11, "seed"), (pixels(32, 32), "pixels"), (noise(2, 3, 32, 32), "floats"), (-noise(1, 3, 32, 32), "floats")],
    ids=["seed", "pixels", "floats", "negative"],
)
def test_an_input_comes_back_bit_for_bit(tmp_path, x, kind):
    made = bundle(tmp_path / "golden.npz", x=x)
    again = read_golden(tmp_path / "golden.npz")
    assert again.stored["kind"] == kind
    assert again.input.tobytes() == made.input.tobytes()
    assert isinstance(x, int) or again.input.tobytes() == x.tobytes()


@pytest.mark.parametrize("how", ["letterbox", "stretch"])
def test_a_picture_is_kept_as_its_file(tmp_path, how):
    large = np.random.default_rng(0).integers(0, 256, (64, 90, 3), np.uint8)
    Image.fromarray(large).save(tmp_path / "large.jpg", quality=60)
    net = dn.load(cfg_of("maxpool size=2 stride=2", w=150, h=150))
    bundle(tmp_path / "golden.npz", net, tmp_path / "large.jpg", resize=how)
    again = read_golden(tmp_path / "golden.npz")
    assert again.stored["kind"] == "picture"
    assert np.array_equal(again.input[0], dn.image.fit(tmp_path / "large.jpg", 150, 150, how=how))


def test_an_input_without_room_is_refused_with_the_way_out(tmp_path):
    net = dn.load(cfg_of("maxpool size=2 stride=2", w=416, h=416))
    with pytest.raises(dn.DumpError, match=r"takes 1,\d+,\d+ bytes even compressed, .* 500,000 .*; use .* seed:0 instead"):
        dn.dump(net, noise(1, 3, 416, 416), golden=True)
    assert dn.dump(net, 0, golden=True).input.shape == (1, 3, 416, 416)


def test_a_layer_with_a_memory_is_refused():
    net = dn.load(b"[net]\ninputs=4\ntime_steps=1\n[gru]\noutput=2\n")
    with pytest.raises(dn.UnsupportedError, match=r":4: layer 0 \[gru\] keeps a state"):
        dn.dump(net, 0, golden=True)


# --- size -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("stages", [("post",), ALL], ids=["post", "all"])
@pytest.mark.parametrize("source", ["seed", "dog.jpg"])
def test_yolov4_is_under_1_mb(cfgs, models, tmp_path, stages, source):
    text = (cfgs / "alexeyab" / "yolov4.cfg").read_bytes().replace(b"=608", b"=416")
    net = dn.load(text, seed=1)
    generator = np.random.default_rng(1)
    for layer in net.layers:
        if "rolling_variance" in layer.params:
            layer.rolling_variance[...] = generator.uniform(0.5, 2, layer.rolling_variance.shape)
    made = bundle(tmp_path / "golden.npz", net, 0 if source == "seed" else models / source, stages=stages)
    assert len(made.steps) >= 162
    assert made.input.shape == (1, 3, 416, 416)
    assert (tmp_path / "golden.npz").stat().st_size < 1_000_000
    assert_matches(arrays(net, made.input, stages), tmp_path / "golden.npz", tolerance=0)


@pytest.mark.parametrize("weights", recorded_files("nets/*/*.weights"))
def test_recorded_networks_match_their_own_bundle_bit_for_bit(tmp_path, weights):
    net = load_recorded(weights)
    if any(layer.states for layer in net.layers):
        pytest.skip("a network with a memory has no bundle")
    bundle(tmp_path / "golden.npz", net)
    assert_matches(arrays(net, 3), tmp_path / "golden.npz", tolerance=0)


# --- files that are none --------------------------------------------------------------------------------------------------------


def rewritten(path, **changed):
    """The file with arrays replaced, whole again."""
    held = read_arrays(path, limit=1 << 26)
    with path.open("wb") as stream:
        write_arrays(stream, [(name, array) for name, array in (held | changed).items() if array is not None], packed=True)
    return path


def document(path):
    return json.loads(str(read_arrays(path, limit=1 << 26)["__metadata__"]))


def refusal(path) -> str:
    with pytest.raises(dn.DumpError) as caught:
        read_golden(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), bytes(1000)])
def test_another_file_is_named(tmp_path, data):
    (tmp_path / "golden.npz").write_bytes(data)
    assert "golden" in refusal(tmp_path / "golden.npz")


def test_a_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_golden(tmp_path / "none.npz")


def test_a_dump_and_another_version_are_told_from_a_bundle(tmp_path, path):
    np.savez(tmp_path / "dump.npz", **dn.dump(tiny_yolo(), 0))
    assert "is no golden bundle of format 'pydarknetbn golden 1', but of 'pydarknetbn dump 1'" in refusal(tmp_path / "dump.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    assert "but an .npz of a; make one with `pydarknetbn dump --golden`" in refusal(tmp_path / "other.npz")
    newer = document(path) | {"format": "pydarknetbn golden 2"}
    assert "but of 'pydarknetbn golden 2'" in refusal(rewritten(path, __metadata__=np.array(json.dumps(newer))))


def test_every_cut_of_a_file_is_refused(path):
    whole = path.read_bytes()
    for size in range(0, len(whole), 397):
        path.write_bytes(whole[:size])
        refusal(path)


def test_a_flipped_byte_is_refused_or_changes_nothing(path):
    whole, golden = path.read_bytes(), read_golden(path)
    generator = np.random.default_rng(0)
    refused = 0
    contents = generator.integers(len(whole) - 400, len(whole), 300)  # the archive's table of contents
    for at in (*generator.integers(0, len(whole), 300), *contents):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            again = read_golden(path)
        except dn.DumpError:
            refused += 1
            continue
        assert [step.sha256 for step in again.steps] == [step.sha256 for step in golden.steps]
    assert refused > 400


def test_what_has_no_end_is_not_read_to_it():
    with pytest.raises(dn.DumpError, match="/dev/zero: is larger than 67,108,864 bytes"):
        read_golden("/dev/zero")


def test_what_would_unpack_to_more_than_a_bundle_is_not_unpacked(tmp_path):
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples.npy", bytes(1 << 27))
    assert bomb.stat().st_size < 1 << 20
    assert "would unpack to 134,217,728 bytes" in refusal(bomb)


LIES = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}",
    "{'descr': '<f5', 'fortran_order': False, 'shape': (4,)}",
    "[" * 3000,
    "(",
]


@pytest.mark.parametrize("header", LIES, ids=["size", "objects", "negative", "type", "deep", "open"])
def test_an_array_that_lies_about_itself_is_refused(tmp_path, header):
    text = header.encode().ljust(9000 if len(header) > 1000 else 118) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("__metadata__.npy", data)
    assert "cannot be read as an .npz of arrays" in refusal(tmp_path / "lie.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"samples": np.zeros(3, np.float32)},
        {"samples": None},
        {"means": np.zeros(3, np.float64)},
        {"noise": np.zeros(0, np.int16)},
        {"moments": np.full((23, 4), np.nan)},
    ],
    ids=["short", "missing", "dtype", "empty", "nan"],
)
def test_arrays_that_do_not_fit_the_steps_are_refused(path, change):
    assert "is a damaged golden bundle" in refusal(rewritten(path, **change))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("steps", 0, 6), [1, 3, 32]),
        (("steps", 0, 6), [1, 3, 1 << 40, 1 << 40]),
        (("steps", 0, 7), 10**9),
        (("steps", 0, 0), -1),
        (("steps", 0, 2), "a\nb"),
        (("steps",), 5),
        (("fields",), ["number"]),
        (("input", "shape"), [1, 3, 100_000, 100_000]),
        (("input", "kind"), "else"),
        (("input", "seed"), "0"),
        (("input",), None),
        (("about",), [1]),
        (("about", "profile"), 5),
    ],
)
def test_a_changed_description_is_refused(path, where, value):
    changed = document(path)
    at = changed
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    assert "is a damaged golden bundle" in refusal(rewritten(path, __metadata__=np.array(json.dumps(changed))))


def test_an_input_that_comes_back_otherwise_is_refused(path):
    changed = document(path)
    changed["input"]["seed"] = 4
    told = refusal(rewritten(path, __metadata__=np.array(json.dumps(changed))))
    assert "its input has another SHA-256 than when it was made: this NumPy draws other numbers" in told


def test_a_folder_that_is_not_there_is_told_and_nothing_written(tmp_path):
    with pytest.raises(dn.DumpError, match="cannot be written, and is as it was: there is no folder"):
        bundle(tmp_path / "none" / "golden.npz")
