"""What a network on a CUDA device refuses, and what it is compared and dumped with; the library runs here on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from emulating import on_real_device
from nets import cfg_of, noise, tiny_files, tiny_yolo
from pydarknetbn import _native
from pydarknetbn.cli import main
from pydarknetbn.cuda import library as opening
from watching import SMALL, Watched, small

PLACE = "cuda:0 (number 0)"
emulated = pytest.mark.skipif(on_real_device(), reason="knows the emulated device's memory and number")

# --- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["train", "cache", "loss", "backward", "train_step", "fit", "calibrate", "sync_bn"])
def test_what_runs_on_the_cpu_alone_says_how_to_get_there(library: Watched, what: str) -> None:
    net, x = tiny_yolo().to("cuda"), noise(1, 3, 32, 32)
    before = net.to_bytes()
    calls = {
        "train": lambda: net.forward(x, train=True),
        "cache": lambda: net.forward(x, cache=True),
        "loss": lambda: net.loss(x, []),
        "backward": net.backward,
        "train_step": lambda: net.train_step(x, []),
        "fit": lambda: net.fit([(x, [])], steps=1),
        "calibrate": lambda: net.calibrate([x]),
        "sync_bn": lambda: net.sync_bn(dn.sync.local(1)[0]),
    }
    with pytest.raises(dn.UnsupportedError, match=r"runs on the CPU, and the network is on cuda:0; call net\.to\('cpu'\) first"):
        calls[what]()
    assert net.to_bytes() == before


def test_a_layer_that_a_device_does_not_compute_is_named_and_nothing_moves(library: Watched) -> None:
    net = dn.load(cfg_of("conv filters=2", "gru output=4"))
    library.calls.clear()
    with pytest.raises(dn.UnsupportedError, match=r"<bytes>:7: layer 1 \[gru\] is not computed on a device"):
        net.to("cuda")
    assert net.device == "cpu"
    assert library.copied("gpu_push_array") == []
    assert net.forward(noise(1, 3, 8, 8))[0].shape == (1, 4, 1, 1)


def test_a_convolution_of_signs_is_refused_before_anything_moves(library: Watched) -> None:
    net = dn.load(cfg_of("conv filters=2 size=3 xnor=1"), dialect="alexeyab")
    with pytest.raises(dn.DeviceError, match=r"layer 0 \[convolutional\]: .*xnor=1"):
        net.to("cuda")
    assert net.device == "cpu"


def test_a_device_that_fails_is_told_with_the_layer_and_leaves_no_old_output(library: Watched) -> None:
    net, x = dn.load(SMALL, seed=1).to("cuda"), noise(1, 3, 8, 8)
    want = net.forward(x)[0]
    library.fails = "forward_maxpool_layer_gpu"
    with pytest.raises(dn.DeviceError, match=r"<bytes>:11: layer 1 \[maxpool\]: choosing the device: "):
        net.forward(x)
    with pytest.raises(dn.StateError):
        _ = net.layers[2].output
    library.fails = ""
    np.testing.assert_array_equal(net.forward(x)[0], want)


def test_a_device_that_there_is_not_is_told_with_those_that_there_are(library: Watched) -> None:
    library.count = 2
    net = dn.load(SMALL).to("cuda")
    with pytest.raises(dn.DeviceError, match=r"no device cuda:2; this machine has cuda:0 \(number 0\), cuda:1 \(number 1\)"):
        net.to("cuda:2")
    assert net.device == "cuda:0"


@emulated
def test_layers_run_on_the_device_that_was_asked_for(library: Watched) -> None:
    library.count = 2  # the emulation has one, and refuses to choose another
    net = dn.load(SMALL)
    with pytest.raises(dn.DeviceError, match="cuda:1: choosing the device: invalid argument"):
        net.to("cuda:1")
    assert net.device == "cpu"


def test_no_weights_are_read_for_a_device_that_there_is_not(library: Watched, tmp_path: Path) -> None:
    with pytest.raises(dn.DeviceError, match="no device cuda:1"):
        dn.load(tmp_path / "no.cfg", tmp_path / "no.weights", device="cuda:1")


def test_an_installation_without_the_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_native, "core_file", lambda: tmp_path / "_core.so")
    monkeypatch.setattr(opening, "open_library", opening.open_library.__wrapped__)
    net = dn.load(SMALL)
    with pytest.raises(dn.DeviceError, match=r"built without; .*PYDARKNETBN_CUDA=ON"):
        net.to("cuda")
    assert net.device == "cpu"


def test_results_on_a_device_need_a_network_there() -> None:
    with pytest.raises(dn.StateError, match=r"is on the CPU; net\.to\('cuda'\) moves it"):
        dn.load(SMALL).forward_on_device(noise(1, 3, 8, 8))


def test_math_is_exact_or_fast() -> None:
    with pytest.raises(ValueError, match="expected math to be 'exact' or 'fast', got 'quick'"):
        dn.load(SMALL).to("cuda", math="quick")  # type: ignore[arg-type]


# --- comparing and dumping ------------------------------------------------------------------------------------------------------


def test_a_comparison_has_the_devices_values_and_tells_whether_they_are_the_cpus(library: Watched, tmp_path: Path) -> None:
    cfg, weights, _ = tiny_files(tmp_path)
    x = noise(1, 3, 32, 32)
    other = dn.load(cfg, weights)
    other.layers[3].weights[...] *= 1.5
    found = dn.compare(dn.load(cfg, weights, device="cuda"), other, x)
    plain = dn.compare(dn.load(cfg, weights), other, x)
    assert [(row.layer, row.stage, row.free, row.bad) for row in found.rows] == [
        (row.layer, row.stage, row.free, row.bad) for row in plain.rows
    ]
    assert any(row.bad for row in found.rows)
    assert found.notes == (
        f"our layers were computed on {PLACE}, and the outputs of all 13 have the bits of profile {other.profile} on the CPU",
        f"a port that copies the GPU code of this cfg's fork is compared under --profile {other.dialect}-cuda",
    )


@emulated
def test_a_comparison_tells_where_a_device_has_other_bits(library: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    net, other = small(profile="alexeyab-cuda"), small(profile="alexeyab-cuda")
    real = library.real.functions.forward_maxpool_layer_gpu

    class Wrong(Watched):
        def __getattr__(self, name: str) -> Any:
            if name != "forward_maxpool_layer_gpu":
                return super().__getattr__(name)

            def wrong(native: Any, arrays: Any) -> Any:
                status = real(native, arrays)
                arrays.output[5] += 0.25  # memory of the device is the host's here
                return status

            return wrong

    monkeypatch.setattr(opening, "open_library", lambda: Wrong(library.real))
    found = dn.compare(net.to("cuda"), other, noise(1, 3, 8, 8))
    assert found.notes == (
        f"our layers were computed on {PLACE}, and the outputs of 1 of 3 have other bits than profile alexeyab-cuda on the CPU, "
        "first layer 1 [maxpool], by 0.25 at most",
    )
    apart = {row.layer: row.free.largest for row in found.rows if row.stage == "post" and row.free}
    assert apart[0] == 0
    assert apart[1] > 0


def test_a_dump_has_the_devices_values(library: Watched) -> None:
    net, x = dn.load(SMALL, seed=1), noise(1, 3, 8, 8)
    want = dn.dump(net, x, stages=("sums", "normal", "post"))
    got = dn.dump(net.to("cuda"), x, stages=("sums", "normal", "post"))
    library.calls.clear()
    assert list(got) == list(want)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)


def test_a_training_is_compared_on_the_cpu(library: Watched) -> None:
    net = dn.load(SMALL).to("cuda")
    with pytest.raises(dn.UnsupportedError, match="a comparison of training runs on the CPU"):
        dn.compare(net, lambda x: x, noise(1, 3, 8, 8), train=True)


# --- the command line -----------------------------------------------------------------------------------------------------------


class Command:
    """The command line in this process, in a folder with the little detector's files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        tiny_files(folder)
        monkeypatch.chdir(folder)
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        self.monkeypatch.setattr(sys, "argv", ["pydarknetbn", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, monkeypatch, capsys)


NET = ("tiny-yolo.cfg", "tiny-yolo.weights")


def test_info_tells_the_device(library: Watched, command: Command) -> None:
    code, out, err = command("info", *NET, "--device", "cuda")
    assert (code, err) == (0, "")
    assert "device     cuda:0, number 0, 1.0 GiB: every layer is computed there" in out.splitlines()
    document = json.loads(command("info", NET[0], "--device", "cuda:0", "--json")[1])
    assert document["device"] == {"place": "cuda:0", "name": "number 0", "memory": 1 << 30}
    assert json.loads(command("info", *NET, "--json")[1])["device"] is None


def test_detect_finds_the_same_on_a_device(library: Watched, command: Command) -> None:
    picture = ("detect", *NET, "picture.png", "--thresh", "0.01", "--json")
    want = command(*picture)
    library.calls.clear()
    assert command(*picture, "--device", "cuda") == want
    assert ("forward_yolo_layer_gpu", 0) in library.calls
    assert len(json.loads(want[1])[0]["detections"]) > 0


def test_compare_computes_on_a_device(library: Watched, command: Command) -> None:
    code, out, err = command("compare", *NET, NET[1], "--input", "picture.png", "--device", "cuda")
    assert (code, err) == (0, "")
    assert "our layers were computed on cuda:0 (number 0), and the outputs of all 13 have the bits of profile" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("info", *NET, "--device", "cuda:5"), "there is no device cuda:5"),
        (("detect", *NET, "picture.png", "--device", "gpu"), "expected device 'cpu', 'cuda' or 'cuda:N'"),
        (("compare", *NET, NET[1], "--train", "--device", "cuda"), "a comparison of training runs on the CPU"),
        (
            ("compare", NET[1], "--golden", "g.npz", "--device", "cuda"),
            "--device goes with a network, and --golden has none to run",
        ),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    library: Watched, command: Command, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("pydarknetbn: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("verb", ["info", "detect", "compare"])
def test_without_the_library_the_command_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setattr(_native, "core_file", lambda: tmp_path / "_core.so")
    monkeypatch.setattr(opening, "open_library", opening.open_library.__wrapped__)
    more = {"info": (), "detect": ("picture.png",), "compare": (NET[1],)}[verb]
    code, out, err = command(verb, *NET, *more, "--device", "cuda")
    assert (code, out) == (2, "")
    assert "which this installation was built without; install the package where CUDA's compiler is found" in err
    assert err.count("\n") == 1
