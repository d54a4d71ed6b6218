"""keep="heads": outputs that no layer needs any more share memory, and no bit and no view changes by it."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn
from core import CoreLayer, assert_same_bits, convolutional, recorded_files
from nets import CFG, cfg_of, load_recorded, noise, tiny_yolo
from pydarknetbn import _native
from pydarknetbn._native import ffi, lib
from pydarknetbn.running import plan_outputs

FLOAT = 4


def assert_equal_runs(one: dn.Network, other: dn.Network) -> None:
    """Heads and states of two equal networks, the first with keep='all', after batches that grow and shrink."""
    shape = (one.c, one.h, one.w)
    for batch in (one.time_steps, 1 if not one.state else one.time_steps, 3 * one.time_steps, 2 * one.time_steps):
        x = noise(batch, *shape, seed=batch)
        for net in (one, other):
            net.reset_state()
        want, got = one.forward(x), other.forward(x, keep="heads")
        assert len(want) == len(got)
        for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
            assert_same_bits(ours, theirs, f"head {index}")
        for index, arrays in one.state.items():
            for name, array in arrays.items():
                assert_same_bits(other.state[index][name], array, f"layer {index} {name}")


@pytest.mark.parametrize("path", [*recorded_files("nets/*/*.weights"), *recorded_files("layers/*/*.weights")])
def test_same_bits_as_with_every_output_kept(path):
    assert_equal_runs(load_recorded(path), load_recorded(path))


@pytest.mark.parametrize("name", [path.stem for path in sorted(CFG.glob("*.cfg"))])
def test_same_bits_for_the_cfgs_of_the_tree(name):
    one, other = (dn.load(CFG / f"{name}.cfg", seed=3) for _ in range(2))
    assert_equal_runs(one, other)


@pytest.mark.long
@pytest.mark.parametrize("name", ["yolov4-tiny", "yolov4", "yolov3-spp", "enet-coco", "yolov4-csp", "resnet50"])
def test_same_bits_for_large_cfgs(cfgs, name):
    text = (cfgs / "alexeyab" / f"{name}.cfg").read_bytes()
    small = b"\n".join(
        b"%s=64" % line.split(b"=")[0].strip() if line.startswith((b"width", b"height")) else line for line in text.splitlines()
    )
    net = dn.load(small, seed=3)
    x = noise(1, net.c, net.h, net.w)
    want = net.forward(x)
    for ours, theirs in zip(net.forward(x, keep="heads"), want, strict=True):
        assert_same_bits(ours, theirs, name)


# --- what is kept ---------------------------------------------------------------------------------------------------------------


def test_an_output_that_was_not_kept_names_the_argument():
    net, x = tiny_yolo(), noise(1, 3, 32, 32)
    net.forward(x, keep="heads")
    for layer in net.layers:
        if layer.head:
            assert layer.output.shape == (1, *layer.out_shape)
            continue
        with pytest.raises(dn.StateError, match=rf"^the output of layer {layer.index} .* not kept: forward\(x, keep='all'\)"):
            _ = layer.output
    net.forward(x)
    assert all(layer.output.shape == (1, *layer.out_shape) for layer in net.layers)


def test_detect_keeps_the_heads_alone():
    net = tiny_yolo()
    net.detect(noise(3, 40, 40))
    with pytest.raises(dn.StateError, match="keep='all'"):
        _ = net.layers[0].output


def test_before_any_forward_nothing_is_said_about_keeping():
    with pytest.raises(dn.StateError, match=r"layer 0 \[convolutional\] has no output yet"):
        _ = tiny_yolo().layers[0].output


def test_without_heads_the_last_layer_is_kept_also_behind_layers_that_pass_it_on():
    text = cfg_of("convolutional filters=2 size=3 pad=1", "convolutional filters=3 size=1", "dropout", "cost")
    net = dn.load(text, seed=1)
    (got,) = net.forward(noise(2, 3, 8, 8), keep="heads")
    assert_same_bits(net.layers[3].output, got, "the cost's")
    assert_same_bits(net.layers[1].output, got, "the convolution's")
    with pytest.raises(dn.StateError, match=r"layer 0 \[convolutional\] was not kept"):
        _ = net.layers[0].output


def test_a_network_that_passes_its_input_on():
    net, x = dn.load(cfg_of("dropout")), noise(1, 3, 8, 8)
    (got,) = net.forward(x, keep="heads")
    assert_same_bits(got, x, "the input")


def test_training_keeps_everything():
    net = tiny_yolo()
    net.forward(noise(2, 3, 32, 32), train=True, keep="heads")
    assert all(layer.output.shape[0] == 2 for layer in net.layers)
    assert net.layers[0].x_norm.shape[0] == 2


def test_a_forward_that_fails_half_way_leaves_a_network_that_runs():
    text = cfg_of("convolutional filters=2 size=3 pad=1", "crnn output_filters=2 hidden_filters=2 size=3 pad=1")
    net = dn.load(text, seed=1, dialect="alexeyab")
    x = noise(2, 3, 8, 8)
    net.forward(x, keep="heads")
    with pytest.raises(dn.StateError, match="sequences"):
        net.forward(x[:1], keep="heads")
    with pytest.raises(dn.StateError, match="not kept"):
        _ = net.layers[0].output
    net.reset_state()
    (got,) = net.forward(x, keep="heads")
    net.reset_state()
    (want,) = net.forward(x)
    assert_same_bits(got, want, "after the failure")


# --- views ----------------------------------------------------------------------------------------------------------------------


def test_views_from_before_stay_as_they_were():
    net = tiny_yolo()
    net.forward(noise(1, 3, 32, 32))
    views = [layer.output for layer in net.layers if not layer.head]
    before = [view.copy() for view in views]
    for seed in range(3):
        net.forward(noise(1, 3, 32, 32, seed=seed + 1), keep="heads")
    for view, copy in zip(views, before, strict=True):
        assert_same_bits(view, copy, "a view")


def test_the_output_of_a_layer_may_be_the_input():
    text = cfg_of("convolutional filters=3 size=3 pad=1", "convolutional filters=3 size=3 pad=1")
    net = dn.load(text, seed=1)
    net.forward(noise(1, 3, 8, 8))
    x = net.layers[0].output
    (want,) = net.forward(x.copy(), keep="heads")
    (got,) = net.forward(x, keep="heads")
    assert_same_bits(got, want, "of the layer's own output")


def workspace(arrays: int):
    made = ffi.new("workspace **")
    _native.check(lib.make_workspace(made, arrays))
    return ffi.gc(made[0], lib.free_workspace)


def lent(layer: CoreLayer, shared, batch: int = 1) -> int:
    """Where the core's next output of that layer goes."""
    _native.check(lib.lend_output(layer.native, shared, 0, layer.native.outputs, batch))
    return int(ffi.cast("uintptr_t", layer.native.output))


def test_an_array_with_a_view_is_left_to_it():
    shared = workspace(1)
    first, second = (convolutional("pjreddie-cpu", c=1, h=4, w=4, n=1) for _ in range(2))
    for layer, weight in ((first, 2), (second, 3)):
        layer.array("weights")[...] = weight
    place = lent(first, shared)
    first.forward(np.ones((1, 1, 4, 4), np.float32))
    view = first.array("output")
    lib.drop_output(first.native)
    assert lent(second, shared) != place
    second.forward(np.ones((1, 1, 4, 4), np.float32))
    assert (view == 2).all()
    del view
    lib.drop_output(second.native)
    place = lent(first, shared)
    lib.drop_output(first.native)
    assert lent(second, shared) == place
    assert lent(second, shared, batch=64) != 0


# --- bytes ----------------------------------------------------------------------------------------------------------------------


def taken(net: dn.Network, keep: str) -> int:
    """Bytes that the core's arrays grow to in a forward, beyond what there was."""
    x = noise(1, net.c, net.h, net.w)
    before = lib.arrays_held()
    lib.reset_arrays_peak()
    net.forward(x, keep=keep)
    return lib.arrays_peak() - before


def chain(*more: str) -> dn.Network:
    """20 maxpools of 64 kB each, which need no scratch."""
    return dn.load(cfg_of("convolutional filters=4 size=1", *["max size=3 stride=1"] * 19, *more, w=64, h=64), seed=1)


ONE = 4 * 64 * 64 * FLOAT


def test_a_chain_takes_two_outputs_and_its_last():
    scratch = taken(chain(), "all") - 20 * ONE
    assert 0 < scratch < 4 * ONE * dn.cpu_info().threads
    assert taken(chain(), "heads") - scratch == 3 * ONE  # input and output in turn, and the last layer's own


def test_a_route_back_holds_what_it_reads():
    scratch = taken(chain(), "all") - 20 * ONE
    assert taken(chain("route layers=5,7"), "heads") - scratch == (4 + 2) * ONE  # two in turn, two waiting, a double one


def test_a_second_forward_takes_nothing_more_and_the_other_kind_gives_all_back():
    net = chain()
    before = lib.arrays_held()
    net.forward(noise(1, 3, 64, 64), keep="heads")
    shared = lib.arrays_held() - before
    assert taken(net, "heads") == 0
    net.forward(noise(1, 3, 64, 64))
    assert lib.arrays_held() - before > 18 * ONE
    net.forward(noise(1, 3, 64, 64), keep="heads")
    assert lib.arrays_held() - before == shared
    net.close()
    assert lib.arrays_held() < before


def test_the_little_detector_stays_near_its_largest_layer():
    net = tiny_yolo()
    outputs = sum(layer.out_shape.floats for layer in net.layers if layer.native is not None) * FLOAT
    scratch = taken(tiny_yolo(), "all") - outputs
    largest = max(layer.in_shape.floats + layer.out_shape.floats for layer in net.layers) * FLOAT
    heads = sum(layer.out_shape.floats for layer in net.layers if layer.head) * FLOAT
    assert scratch > 0
    assert taken(net, "heads") - scratch < 1.3 * largest + heads < outputs


# --- the plan -------------------------------------------------------------------------------------------------------------------


def assert_nothing_meets(net: dn.Network) -> None:
    """Walks through the layers: what one reads is still there, what it writes lies on nothing that is read later."""
    plan = plan_outputs(net.layers, net.heads or net.layers[-1:])
    content: dict[int, int] = {}  # array -> layer whose output lies in it
    for layer in net.layers:
        if layer.native is None:
            continue
        for index in [layer.index - 1, *layer.sources] if layer.index else []:
            maker = net.layers[index].maker
            if maker is not None and maker.index in plan.place:
                assert content[plan.place[maker.index]] == maker.index, f"layer {layer.index} reads {maker.index}"
        if layer.index in plan.place:
            place = plan.place[layer.index]
            assert layer.out_shape.floats <= plan.floats[place]
            content[place] = layer.index
            read = {net.layers[index].maker for index in [layer.index - 1, *layer.sources]} if layer.index else set()
            assert all(plan.place.get(maker.index) != place for maker in read if maker)
    assert sorted(index for done in plan.last_readers.values() for index in done) == sorted(plan.place)


@pytest.mark.parametrize("name", [path.stem for path in sorted(CFG.glob("*.cfg"))])
def test_no_output_lies_on_one_that_is_read_later(name):
    assert_nothing_meets(dn.load(CFG / f"{name}.cfg"))


@pytest.mark.long
def test_no_output_lies_on_one_that_is_read_later_in_any_cfg(cfgs):
    names = sorted(cfgs.glob("*/*.cfg"))
    assert len(names) > 20
    for path in names:
        try:
            net = dn.load(path)
        except (dn.DarknetError, MemoryError):
            continue
        assert_nothing_meets(net)
        net.close()


def test_a_route_to_the_first_layer_keeps_it_to_the_end():
    sections = ["convolutional filters=2 size=1", *["max size=1"] * 5, "route layers=0,-1", "convolutional filters=1 size=1"]
    net = dn.load(cfg_of(*sections))
    plan = plan_outputs(net.layers, net.layers[-1:])
    assert 0 in plan.last_readers[6]
    assert [index for index in range(1, 6) if plan.place[index] == plan.place[0]] == []
    assert_nothing_meets(net)
