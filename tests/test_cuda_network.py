"""Whole networks on a CUDA device, whose library runs here on the CPU (see `emulating.py`)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from core import assert_same_bits
from emulating import emulated_blas, on_real_device
from nets import CFG, cfg_of, noise, tiny_yolo
from pydarknetbn.cuda import DeviceArray, blas
from pydarknetbn.running import plan_outputs
from watching import SMALL, Watched, small, there

emulated = pytest.mark.skipif(on_real_device(), reason="names streams that there are not")
DATA = Path(dn.__file__).parent / "data"


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


@pytest.mark.parametrize(
    "layer", ["conv filters=4 size=3 pad=1 stride=2", "maxpool size=2 stride=2", "local_avgpool size=2 stride=2"]
)
def test_antialiasing_has_the_bits_of_the_cpu(library: Watched, layer: str) -> None:
    net = dn.load(cfg_of("conv filters=2", f"{layer} antialiasing=1", "conv filters=3"), seed=3, dialect="alexeyab")
    x = noise(2, net.c, net.h, net.w)
    (want,) = net.forward(x)
    (got,) = net.to("cuda").forward(x)
    assert_same_bits(got, want, layer)


def test_a_trained_network_finds_the_same_boxes_there(library: Watched, models: Path) -> None:
    lines = (models / "yolo-fastest.cfg").read_bytes().splitlines()
    cfg = b"\n".join(b"%s=64" % line.split(b"=")[0] if line.startswith((b"width", b"height")) else line for line in lines)
    net = dn.load(cfg, models / "yolo-fastest.weights")
    want = net.detect(models / "dog.jpg", thresh=0.02)
    got = net.to("cuda").detect(models / "dog.jpg", thresh=0.02)
    assert len(got) == 10
    assert got.to_json() == want.to_json()


@pytest.mark.long
@pytest.mark.parametrize("name", ["alexeyab/yolov3-tiny", "alexeyab/yolov4-tiny", "pjreddie/yolov3-tiny", "alexeyab/yolov4-csp"])
def test_the_forks_networks_have_the_bits_of_the_cpu(library: Watched, cfgs: Path, name: str) -> None:
    lines = (cfgs / f"{name}.cfg").read_bytes().splitlines()
    small = [b"%s=32" % line.split(b"=")[0].strip() if line.startswith((b"width", b"height")) else line for line in lines]
    net = dn.load(b"\n".join(small), seed=3, dialect=name.split("/", maxsplit=1)[0])
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


# --- fast -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is opened in the place of cuBLAS; it sums in double, so its bits are others."""
    if not on_real_device():
        monkeypatch.setattr(blas, "candidates", lambda: [str(emulated_blas())])


@pytest.mark.usefixtures("cublas")
def test_fast_sums_are_cublas_and_equal_within_rounding(library: Watched) -> None:
    net, x = tiny_yolo(), noise(2, 3, 32, 32)
    want = net.forward(x)
    exact = net.to("cuda").forward(x)
    fast = net.to("cuda", math="fast").forward(x)
    for ours, quick, theirs in zip(exact, fast, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(quick, theirs, rtol=1e-4, atol=1e-4)
    assert any(not np.array_equal(quick, theirs) for quick, theirs in zip(fast, want, strict=True))
    np.testing.assert_array_equal(net.to("cuda").forward(x)[0], want[0])


def test_without_cublas_a_fast_network_stays_where_it_is(library: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "candidates", lambda: ["libnowhere.so.13"])
    net = small()
    with pytest.raises(dn.DeviceError, match="math='fast' needs cuBLAS, and none could be opened"):
        net.to("cuda", math="fast")
    assert net.device == "cpu"


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


class Lender:
    """An array of another library's that lends itself by DLPack, and is told which stream will read it."""

    def __init__(self, array: DeviceArray) -> None:
        self.array, self.shape = array, array.shape
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=-1)


@emulated
def test_work_is_on_the_callers_stream_and_others_wait_for_it(library: Watched) -> None:
    net, x = small(), noise(1, 3, 8, 8)
    want, lender = net.forward(x)[0], Lender(there(library, x))
    net.to("cuda").forward_on_device(lender)
    (output,) = net.to("cuda", stream=77).forward_on_device(lender)
    assert lender.streams == [1, 77]  # by DLPack 1 is the default stream
    assert output.__cuda_array_interface__["stream"] == 77
    library.calls.clear()
    output.__dlpack__(stream=77)
    assert library.calls == []
    for reader in (None, 1, 78):
        output.__dlpack__(stream=reader)
        assert library.calls == [("gpu_synchronize", 0)]
        library.calls.clear()
    np.testing.assert_array_equal(output.numpy(), want)
    again = net.to("cuda").forward(output.__class__.from_numpy(library, x))[0]  # type: ignore[arg-type]
    np.testing.assert_array_equal(again, want)


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
