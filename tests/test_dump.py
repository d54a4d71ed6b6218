"""dump: the values of forward, stage by stage, with what they mean beside them; the file and the verb."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pydarknetbn as dn
from nets import cfg_of, noise, tiny_files, tiny_yolo, weights_of
from pydarknetbn.cli import app, main
from pydarknetbn.dumping import write_dump

ALL = ("input", "sums", "normal", "post", "boxes")
ONE = cfg_of("conv filters=1 size=1 batch_normalize=1 activation=leaky", w=1, h=1, c=1)
FLOATS = np.array([-10, 3, 1, 4, 2], np.float32)  # bias, scale, mean, variance, weight


def about(dumped) -> dict[str, str]:
    return json.loads(str(dumped["__metadata__"]))


def arrays(dumped) -> dict[str, np.ndarray]:
    return {name: array for name, array in dumped.items() if name != "__metadata__"}


# --- values ---------------------------------------------------------------------------------------------------------------------


def test_stages_are_sums_batchnorm_and_activation():
    net = dn.load(ONE, weights_of(FLOATS), profile="alexeyab-cpu")
    got = arrays(dn.dump(net, np.full((1, 1, 1, 1), 3, np.float32), stages=ALL))
    assert list(got) == ["input", "0.sums", "0.normal", "0.post"]
    assert got["input"].item() == 3
    assert got["0.sums"].item() == 2 * 3
    quotient = np.float32((6 - 1) / np.sqrt(np.float32(4) + np.float32(1e-5), dtype=np.float64))
    assert got["0.normal"].item() == quotient * np.float32(3) - np.float32(10)  # -2.5000095
    assert got["0.post"].item() == np.float32(0.1 * got["0.normal"].item())


def test_post_is_forward_bit_for_bit():
    net = tiny_yolo()
    x = noise(2, 3, 32, 32)
    got = dn.dump(net, x)
    net.forward(x)
    for layer in net.layers:
        assert got[f"{layer.index}.post"].tobytes() == layer.output.tobytes(), layer


def test_arrays_come_in_the_order_of_computing():
    got = list(arrays(dn.dump(tiny_yolo(), 0, stages=ALL)))
    assert got[:7] == ["input", "0.sums", "0.normal", "0.post", "1.post", "2.sums", "2.normal"]
    assert got[-4:] == ["11.sums", "11.post", "12.post", "12.boxes"]
    assert list(arrays(dn.dump(tiny_yolo(), 0, stages=("boxes",)))) == ["7.boxes", "12.boxes"]


def test_values_are_copies():
    net = tiny_yolo()
    first = dn.dump(net, 0)["0.post"]
    before = first.copy()
    dn.dump(net, 1)
    assert np.array_equal(first, before)


def test_a_recurrent_network_starts_from_an_empty_state_and_keeps_its_own():
    net = dn.load(b"[net]\ninputs=4\ntime_steps=1\n[gru]\noutput=2\n", seed=1)
    x = noise(3, 4)
    first = dn.dump(net, x)["0.post"]
    assert np.array_equal(dn.dump(net, x)["0.post"], first)
    kept = net.forward(x)[0].copy()
    after = net.state[0]["state"].copy()
    dn.dump(net, noise(2, 4))
    assert np.array_equal(net.state[0]["state"], after)
    assert not np.array_equal(net.forward(x)[0], kept)
    net.reset_state()
    assert np.array_equal(net.forward(x)[0].reshape(first.shape), first)


def test_several_time_steps_are_refused():
    net = dn.load(b"[net]\ninputs=4\ntime_steps=3\n[gru]\noutput=2\n")
    with pytest.raises(dn.UnsupportedError, match=r":4: layer 0 \[gru\] is dumped one time step at a time; set net.time_steps = 1"):
        dn.dump(net, noise(6, 4))


# --- what is told beside them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "root"),
    [("alexeyab-cpu", "√(v+1e-05)"), ("pjreddie-cpu", "√v+1e-06"), ("keras", "√(v+0.001)")],
)
def test_the_formula_of_the_profile_is_told(profile, root):
    told = about(dn.dump(dn.load(ONE, weights_of(FLOATS), profile=profile), 0))
    assert told["profile"] == profile
    assert told["formula"].startswith(profile)
    assert f"normal = (sums - rolling_mean) / ({root}) * scales + biases" in told["formula"]


def test_dialect_cfg_and_input_are_told():
    x = np.full((1, 1, 1, 1), 3, np.float32)
    told = about(dn.dump(dn.load(ONE, weights_of(FLOATS), dialect="pjreddie"), x))
    assert told["dialect"] == "pjreddie"
    assert told["cfg_sha256"] == hashlib.sha256(ONE).hexdigest()
    assert told["input_sha256"] == hashlib.sha256(x.tobytes()).hexdigest()
    assert (told["resize"], told["package"]) == ("none", f"pydarknetbn {dn.__version__}")


@pytest.mark.parametrize("how", ["letterbox", "stretch"])
def test_how_a_picture_was_resized_is_told(tmp_path, how):
    _, _, picture = tiny_files(tmp_path)
    got = dn.dump(tiny_yolo(), picture, stages=("input",), resize=how)
    assert about(got)["resize"] == how
    assert about(got)["input"] == f"picture.png (48 x 32), {how} to 32 x 32"
    assert np.array_equal(got["input"][0], dn.image.fit(picture, 32, 32, how=how))


@pytest.mark.parametrize(("dialect", "how"), [("alexeyab", "stretch"), ("pjreddie", "letterbox")])
def test_a_picture_is_resized_as_the_dialect_does(tmp_path, dialect, how):
    cfg, weights, picture = tiny_files(tmp_path)
    assert about(dn.dump(dn.load(cfg, weights, dialect=dialect), picture.read_bytes()))["resize"] == how


def test_a_seed_is_told_so_that_numpy_alone_draws_the_input():
    got = dn.dump(tiny_yolo(), 5, stages=("input",))
    words = about(got)["input"]
    assert words == "seed 5: numpy.random.default_rng(5).random((1, 3, 32, 32), numpy.float32)"
    assert np.array_equal(eval(words.split(": ")[1], {"numpy": np}), got["input"])


# --- the file -------------------------------------------------------------------------------------------------------------------


def test_the_file_holds_what_dump_gives(tmp_path):
    net, path = tiny_yolo(), tmp_path / "all.npz"
    names = write_dump(net, 4, path, stages=ALL)
    want = dn.dump(net, 4, stages=ALL)
    assert ["__metadata__", *names] == list(want)
    with np.load(path, allow_pickle=False) as got:
        assert got.files == list(want)
        for name in got.files:
            assert got[name].dtype == want[name].dtype
            assert np.array_equal(got[name], want[name])


def test_equal_values_make_equal_files(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_dump(tiny_yolo(), 4, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("stages", ["post", (), ("post", "pre")])
def test_a_stage_that_there_is_not_is_refused_before_the_file_is_touched(tmp_path, stages):
    path = tmp_path / "kept.npz"
    path.write_bytes(b"kept")
    with pytest.raises(ValueError, match="expected stages of input, sums, normal, post, boxes, got"):
        write_dump(tiny_yolo(), 0, path, stages=stages)
    assert path.read_bytes() == b"kept"


def test_a_network_that_fails_on_the_way_leaves_no_file(tmp_path):
    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dump(tiny_yolo(), 0, tmp_path / "out.npz", progress=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (np.zeros((1, 3, 8, 8), np.float32), dn.ShapeError, r"expected x of shape \(batch, 3, 32, 32\), got \(1, 3, 8, 8\)"),
        (np.zeros((1, 3, 32, 32)), dn.DtypeError, "expected x of float32, got float64"),
        (-1, ValueError, "expected a seed of 0 or more, got -1"),
        (b"no picture", dn.ImageError, "picture of 10 bytes: expected a picture"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(x, kind, message):
    with pytest.raises(kind, match=message):
        dn.dump(tiny_yolo(), x)


# --- the verb -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    tiny_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["dump", "tiny-yolo.cfg", "tiny-yolo.weights", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_verb_writes_a_picture_s_values(files):
    text = invoke("picture.png", "-o", "out.npz", "--resize", "letterbox")
    assert "input: picture.png (48 x 32), letterbox to 32 x 32" in text
    net = dn.load("tiny-yolo.cfg", "tiny-yolo.weights")
    with np.load("out.npz") as got:
        assert got.files == ["__metadata__", "input", *[f"{index}.post" for index in range(13)]]
        net.forward(got["input"])
        assert np.array_equal(got["12.post"], net.layers[12].output)


def test_the_verb_takes_an_npz_and_stages(files):
    np.savez("x.npz", input=noise(2, 3, 32, 32))
    document = json.loads(invoke("x.npz", "-o", "out.npz", "--stages", "sums, boxes", "--json"))
    assert document["arrays"][:2] == ["0.sums", "2.sums"]
    assert document["bytes"] == (files / "out.npz").stat().st_size
    assert (document["golden"], document["resize"], document["profile"]) == (False, "none", "alexeyab-cpu")
    with np.load("out.npz") as got:
        assert got["12.boxes"].shape == (2, 16, 8, 8)


def test_the_verb_makes_a_golden_bundle(files):
    document = json.loads(invoke("seed:3", "-o", "out.npz", "--golden", "--profile", "pjreddie-cpu", "--json"))
    assert document["golden"]
    assert document["arrays"][-2:] == ["12.post", "12.boxes"]
    golden = dn.golden.read_golden("out.npz")
    assert golden.about["profile"] == document["profile"] == "pjreddie-cpu"
    assert np.array_equal(golden.input, noise(1, 3, 32, 32, seed=3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed:x", "-o", "out.npz"], "expected seed:N with a whole number of 0 or more, got 'seed:x'"),
        (["seed:", "-o", "out.npz"], "expected seed:N"),
        (["seed:1", "-o", "out.txt"], "out.txt: expected a name that ends in .npz"),
        (["seed:1", "-o", "none/out.npz"], "none/out.npz: cannot be written, and is as it was: there is no folder"),
        (["seed:1", "-o", "none/out.npz", "--golden"], "none/out.npz: cannot be written, and is as it was: there is no folder"),
        (["seed:1", "-o", "out.npz", "--stages", "pre"], "expected stages of input, sums, normal, post, boxes, got 'pre'"),
        (["nothing.png", "-o", "out.npz"], "nothing.png: No such file or directory"),
        (["tiny-yolo.cfg", "-o", "out.npz"], "expected a picture"),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(files, monkeypatch, capsys, arguments, message):
    before = sorted(files.iterdir())
    monkeypatch.setattr("sys.argv", ["pydarknetbn", "dump", "tiny-yolo.cfg", "tiny-yolo.weights", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in told
    assert told.count("\n") == 1
    assert sorted(files.iterdir()) == before
