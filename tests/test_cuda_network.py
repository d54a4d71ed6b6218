"""Whole networks on a CUDA device, whose library runs here on the CPU (see `emulating.py`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from emulating import emulated_library
from nets import CFG, cfg_of, noise, tiny_files, tiny_yolo
from pydarknetbn import _native
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda import library as opening
from pydarknetbn.cuda.library import Device, Library
from pydarknetbn.running import plan_outputs

DATA = Path(dn.__file__).parent / "data"
SMALL = cfg_of("conv filters=4 size=3 pad=1 batch_normalize=1 activation=leaky", "maxpool size=2 stride=2", "conv filters=3 size=1 activation=linear")


class Watched:
    """The emulated library, whose calls are counted, and of which functions may be missing or fail.

    Args:
        real: what does the work.

    Attributes:
        calls: names and, of copies, bytes.
        missing: names of functions that an older library would not have.
        fails: name of a function that fails.
        count: of devices.
    """

    def __init__(self, real: Library) -> None:
        self.real, self.ffi, self.check = real, real.ffi, real.check
        self.calls: list[tuple[str, int]] = []
        self.missing: set[str] = set()
        self.fails, self.count = "", 1
        self.functions = self

    def devices(self) -> tuple[Device, ...]:
        return tuple(Device(number, f"number {number}", 1 << 30) for number in range(self.count))

    def copied(self, name: str) -> list[int]:
        """Bytes of the copies since the last question."""
        found = [nbytes for called, nbytes in self.calls if called == name]
        self.calls.clear()
        return found

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        real = getattr(self.real.functions, name)
        if not callable(real):
            return real

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments[2] if name in ("gpu_push_array", "gpu_pull_array") else 0))
            if name == self.fails:
                return self.real.functions.gpu_make_array(self.ffi.new("void **"), 7, 1)  # "choosing the device: …"
            return real(*arguments)

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """What opens in the place of the installation's."""
    watched = Watched(emulated_library())
    monkeypatch.setattr(opening, "open_library", lambda: watched)
    yield watched


def there(library: Watched, array: np.ndarray) -> DeviceArray:
    return DeviceArray.from_numpy(library, array)  # type: ignore[arg-type]


def small(**options: Any) -> dn.Network:
    """A network of three layers whose batchnorm divides by no 0."""
    net = dn.load(SMALL, seed=1, **options)
    net.layers[0].rolling_variance[...] = 1
    return net


def outputs_of(net: dn.Network) -> dict[int, np.ndarray]:
    return {layer.index: layer.output.copy() for layer in net.layers if not layer.passes_input}


# --- bits -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["alexeyab-cpu", "alexeyab-cuda", "pjreddie-cuda", "torch"])
def test_every_output_of_a_detector_has_the_bits_of_the_cpu(library: Watched, profile: str) -> None:
    net = tiny_yolo(profile=profile)
    x = noise(2, 3, 32, 32, seed=1)
    heads, all_of_them = net.forward(x), outputs_of(net)
    for got, want in zip(net.to("cuda").forward(x), heads, strict=True):
        assert_same_bits(got, want, profile)
    for index, output in outputs_of(net).items():
        assert_same_bits(output, all_of_them[index], f"layer {index}")


def test_the_detector_of_the_package_finds_the_same_boxes_there(library: Watched) -> None:
    net = dn.load(CFG / "shapes.cfg", DATA / "shapes.weights")
    want = net.detect(DATA / "shapes.png")
    got = net.to("cuda").detect(DATA / "shapes.png")
    assert len(got) == 4
    assert got.to_json() == want.to_json()


@pytest.mark.parametrize("name", ["convolutional", "connected", "batchnorm", "dropout", "grouped", "two-convolutions"])
def test_the_cfgs_of_the_tree_have_the_bits_of_the_cpu(library: Watched, name: str) -> None:
    net = dn.load(CFG / f"{name}.cfg", seed=3)
    x = noise(3, net.c, net.h, net.w)
    want = net.forward(x)
    for ours, theirs in zip(net.to("cuda").forward(x, keep="heads"), want, strict=True):
        assert_same_bits(ours, theirs, name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["alexeyab/yolov3-tiny", "alexeyab/yolov4-tiny", "pjreddie/yolov3-tiny", "alexeyab/yolov4-csp"])
def test_the_forks_networks_have_the_bits_of_the_cpu(library: Watched, cfgs: Path, name: str) -> None:
    lines = (cfgs / f"{name}.cfg").read_bytes().splitlines()
    small = [b"%s=32" % line.split(b"=")[0].strip() if line.startswith((b"width", b"height")) else line for line in lines]
    net = dn.load(b"\n".join(small), seed=3, dialect=name.split("/")[0])
    x = noise(1, net.c, net.h, net.w)
    want = net.forward(x)
    for ours, theirs in zip(net.to("cuda").forward(x, keep="heads"), want, strict=True):
        assert_same_bits(ours, theirs, name)


def test_batches_that_grow_and_shrink_and_views_that_are_held_stay_right(library: Watched) -> None:
    ours, theirs = tiny_yolo(), tiny_yolo().to("cuda")
    held = []
    for batch in (1, 3, 2, 3):
        x = noise(batch, 3, 32, 32, seed=batch)
        for keep in ("all", "heads"):
            want, got = ours.forward(x, keep=keep), theirs.forward(x, keep=keep)  # type: ignore[arg-type]
            assert [array.shape for array in got] == [array.shape for array in want]
            assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
            held.append((theirs.layers[7].output, got[0]))
    for view, copy in held:
        np.testing.assert_array_equal(view, copy)


def test_shared_kernels_are_there_once(library: Watched) -> None:
    conv = "conv filters=3 size=3 pad=1 batch_normalize=1 activation=leaky"
    net = dn.load(cfg_of(conv, "conv share_index=0 filters=3 size=3 pad=1 batch_normalize=1"), dialect="alexeyab", seed=1)
    x = noise(1, 3, 8, 8)
    want = net.forward(x)[0]
    library.calls.clear()
    net.to("cuda")
    assert sorted(library.copied("gpu_push_array")) == [12, 12, 12, 12, 3 * 3 * 9 * 4]
    np.testing.assert_array_equal(net.forward(x)[0], want)
    assert library.copied("gpu_push_array") == [x.nbytes]


# --- what is copied when --------------------------------------------------------------------------------------------------------


def test_parameters_are_copied_again_where_they_can_have_changed(library: Watched) -> None:
    net, x = small().to("cuda"), noise(1, 3, 8, 8)
    parameters = [3 * 4 * 9 * 4, 16, 16, 16, 16, 4 * 3 * 4, 12]
    assert sorted(library.copied("gpu_push_array")) == sorted(parameters)
    net.forward(x)
    assert library.copied("gpu_push_array") == [x.nbytes]
    net.layers[0].weights[1] = 0.5
    net.forward(x)
    assert library.copied("gpu_push_array") == [parameters[0], x.nbytes]
    view = net.layers[2].biases
    before = net.forward(x)[0]
    view[:] = 7  # behind a copy that was made while it was held
    del view
    got = net.forward(x)[0]
    assert library.copied("gpu_push_array") == [12, x.nbytes, 12, x.nbytes]
    np.testing.assert_array_equal(got, net.to("cpu").forward(x)[0])
    np.testing.assert_allclose(got - before, 7, rtol=1e-5)


def test_what_a_clone_that_shares_trains_counts(library: Watched) -> None:
    net, x = dn.load(SMALL, seed=1).to("cuda"), noise(2, 3, 8, 8)
    other = net.clone(share=True)
    assert other.device == "cpu"
    before = net.forward(x)[0]
    other.forward(x, train=True)
    other.backward(np.ones((2, 3, 4, 4), np.float32))
    dn.training.update_parameters(other.layers, other.arithmetic.training, batch=2, learning_rate=0.1, momentum=0, decay=0)
    assert not np.array_equal(before, net.forward(x)[0])
    np.testing.assert_array_equal(net.forward(x)[0], other.forward(x)[0])
    del other
    net.forward(x)
    library.calls.clear()
    net.forward(x)
    assert library.copied("gpu_push_array") == [x.nbytes]


def test_heads_alone_come_back_where_heads_alone_are_kept(library: Watched) -> None:
    net, x = tiny_yolo().to("cuda"), noise(1, 3, 32, 32)
    library.calls.clear()
    net.forward(x, keep="heads")
    assert library.copied("gpu_pull_array") == [net.layers[index].out_shape.floats * 4 for index in (7, 12)]
    with pytest.raises(dn.StateError, match="was not kept"):
        _ = net.layers[3].output
    net.forward(x)
    assert len(library.copied("gpu_pull_array")) == 13


def test_outputs_lie_in_as_few_arrays_as_on_the_host(library: Watched) -> None:
    net = tiny_yolo().to("cuda")
    net.forward(noise(2, 3, 32, 32), keep="heads")
    plan, device = plan_outputs(net.layers, net.kept), net.runner.device
    assert device is not None
    arrays = [array.nbytes for array in device._slots.arrays.values()]
    assert sorted(arrays) == sorted(8 * floats for floats in plan.floats)
    assert len(arrays) < len(plan.place)


# --- on the device --------------------------------------------------------------------------------------------------------------


def test_a_batch_on_the_device_is_read_there_and_results_stay_there(library: Watched) -> None:
    net, x = tiny_yolo(), noise(2, 3, 32, 32)
    want = net.forward(x)
    batch = there(library, x)
    net.to("cuda")
    library.calls.clear()
    got = net.forward_on_device(batch)
    assert {name for name, _ in library.calls} & {"gpu_push_array", "gpu_pull_array", "gpu_synchronize"} == set()
    assert [array.shape for array in got] == [array.shape for array in want]
    again = net.forward_on_device(there(library, 1 - x))
    for ours, theirs, other in zip(got, want, again, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)  # the second forward did not write over the first one's
        assert not np.array_equal(other.numpy(), theirs)
    for ours, theirs in zip(net.forward(batch, keep="heads"), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_passes_its_input_on_gives_it_from_the_device(library: Watched) -> None:
    net, x = dn.load(cfg_of("dropout probability=.5")).to("cuda"), noise(2, 3, 8, 8)
    for batch in (x, there(library, x)):
        np.testing.assert_array_equal(net.forward(batch)[0], x)
        np.testing.assert_array_equal(net.forward_on_device(batch)[0].numpy(), x)


class Interface:
    """An array of another library's that tells of itself by `__cuda_array_interface__`."""

    def __init__(self, array: DeviceArray, **changed: Any) -> None:
        self.array, self.shape = array, array.shape
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changed


def test_an_array_of_another_library_is_read_by_its_interface(library: Watched) -> None:
    net, x = dn.load(SMALL, seed=1), noise(1, 3, 8, 8)
    want = net.forward(x)[0]
    np.testing.assert_array_equal(net.to("cuda").forward(Interface(there(library, x)))[0], want)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "kind", "told"),
    [
        ([[0.0]], dn.DeviceError, "expected x to be an array on a CUDA device, got list"),
        (np.zeros((1, 3, 8, 8)), dn.DtypeError, "expected x of float32, got float64"),
        (np.zeros((1, 3, 8, 9), np.float32), dn.ShapeError, r"expected x of shape \(batch, 3, 8, 8\), got \(1, 3, 8, 9\)"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_there_too(library: Watched, x: Any, kind: type[Exception], told: str) -> None:
    net = dn.load(SMALL).to("cuda")
    for run in (net.forward, net.forward_on_device):
        with pytest.raises(kind, match=told):
            run(x)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "told"),
    [
        ((1, 3, 8), "float32", dn.ShapeError, r"expected x of shape \(batch, 3, 8, 8\), got \(1, 3, 8\)"),
        ((0, 3, 8, 8), "float32", dn.ShapeError, "expected x of shape"),
        ((1, 3, 8, 8), "float16", dn.DtypeError, "expected x of float32, got float16"),
    ],
)
def test_an_array_there_that_does_not_fit_is_refused(
    library: Watched, shape: tuple[int, ...], dtype: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        dn.load(SMALL).to("cuda").forward(DeviceArray(library, shape, dtype))  # type: ignore[arg-type]


# --- to and fro -----------------------------------------------------------------------------------------------------------------


def test_a_network_moves_and_moves_back(library: Watched) -> None:
    net, x = dn.load(SMALL, seed=1, device="cuda:0"), noise(2, 3, 8, 8)
    assert net.device == "cuda:0"
    got = net.forward(x)[0]
    assert net.to("cpu") is net
    assert net.device == "cpu"
    library.calls.clear()
    np.testing.assert_array_equal(net.forward(x)[0], got)
    net.forward(x, train=True)
    assert net.backward(np.ones((2, 3, 4, 4), np.float32)).shape == x.shape
    assert not library.calls


def test_a_second_move_to_the_same_place_copies_nothing(library: Watched) -> None:
    net = dn.load(SMALL).to("cuda")
    library.calls.clear()
    net.to("cuda").to("cuda:0")
    assert library.copied("gpu_push_array") == []


def test_a_closed_network_leaves_the_device(library: Watched) -> None:
    net = dn.load(SMALL).to("cuda")
    library.calls.clear()
    net.close()
    assert net.device == "cpu"
    with pytest.raises(dn.StateError, match="closed"):
        net.to("cuda")


def test_threads_take_turns_there(library: Watched) -> None:
    net = dn.load(SMALL, seed=1)
    batches = [noise(1, 3, 8, 8, seed=seed) for seed in range(4)]
    want, got = [net.forward(x)[0] for x in batches], [np.empty(0)] * 4
    net.to("cuda")

    def run(number: int) -> None:
        got[number] = net.forward(batches[number])[0]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["train", "cache", "loss", "backward", "train_step", "fit", "calibrate"])
def test_what_runs_on_the_cpu_alone_says_how_to_get_there(library: Watched, what: str) -> None:
    net, x = tiny_yolo().to("cuda"), noise(1, 3, 32, 32)
    before = net.to_bytes()
    calls = {
        "train": lambda: net.forward(x, train=True),
        "cache": lambda: net.forward(x, cache=True),
        "loss": lambda: net.loss(x, []),
        "backward": lambda: net.backward(),
        "train_step": lambda: net.train_step(x, []),
        "fit": lambda: net.fit([(x, [])], steps=1),
        "calibrate": lambda: net.calibrate([x]),
    }
    with pytest.raises(dn.UnsupportedError, match=r"runs on the CPU, and the network is on cuda:0; call net\.to\('cpu'\) first"):
        calls[what]()
    assert net.to_bytes() == before


def test_a_layer_that_a_device_does_not_compute_is_named_and_nothing_moves(library: Watched) -> None:
    net = dn.load(cfg_of("conv filters=2", "gru output=4"))
    library.calls.clear()
    with pytest.raises(dn.UnsupportedError, match=r"<bytes>:7: layer 1 \[gru\] is not computed on a device; the network stays where"):
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
    with pytest.raises(dn.DeviceError, match=r"<bytes>:11: layer 1 \[maxpool\]: choosing the device"):
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
    assert found.notes[0] == "our layers were computed on cuda:0 (number 0), and the outputs of all 13 have the bits of profile " + (
        f"{other.profile} on the CPU"
    )
    assert found.notes[1:] == (f"a port that copies the GPU code of this cfg's fork is compared under --profile {other.dialect}-cuda",)


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
        "our layers were computed on cuda:0 (number 0), and the outputs of 1 of 3 have other bits than profile alexeyab-cuda on the "
        "CPU, first layer 1 [maxpool], by 0.25 at most",
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
