"""Layers of the CUDA library, whose kernels run here on the CPU (see `emulating.py`), against the core's, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn
from device_layers import arrays_of, compared, function_of
from emulating import emulated_library
from nets import cfg_of
from pydarknetbn import _native, cpu
from pydarknetbn._native import Array
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.library import Library
from pydarknetbn.dialect import ACTIVATIONS, PROFILES
from pydarknetbn.layers import BUILDERS

OF_THIS_FILE = """Gaussian_yolo activation avgpool batchnorm crop detection implicit l2norm local_avgpool logistic maxpool region
reorg reorg3d route sam scale_channels shortcut softmax upsample yolo""".split()
OF_PRODUCTS = {"convolutional", "connected", "deconvolutional", "local"}
PASS_THEIR_INPUT_ON = {"contrastive", "cost", "dropout", "empty"}
HAVE_NONE = {"conv_lstm", "crnn", "gru", "history", "iseg", "lstm", "normalization", "rnn"}

START = "activation activation=linear"
HALF = "route layers=0 groups=2 group_id=1"
# Name: channels, height, width; sections behind START
CASES: dict[str, tuple[tuple[int, int, int], list[str]]] = {
    "batchnorm": ((5, 3, 7), ["batchnorm"]),
    "logistic": ((2, 5, 3), ["logistic"]),
    "l2norm": ((5, 3, 4), ["l2norm"]),
    "implicit": ((1, 2, 2), ["implicit filters=3 atoms=2"]),
    "crop": ((2, 8, 7), ["crop crop_height=3 crop_width=4", "crop crop_height=2 crop_width=2 noadjust=1"]),
    "passing": ((2, 3, 3), ["dropout probability=.5", "empty", "activation activation=leaky", "cost"]),
    "maxpool": ((3, 9, 7), ["maxpool size=2 stride=2", "maxpool size=3 stride=1", "maxpool size=3 stride_x=2 stride_y=1"]),
    "maxpool-padding": ((3, 8, 9), ["maxpool size=2 stride=2 padding=0", "maxpool size=5 stride=3 padding=4", "maxpool size=3"]),
    "maxpool-spp": ((2, 5, 5), ["maxpool size=13 stride=1", "maxpool size=9 stride=1"]),
    "maxpool-wide": ((2, 3, 3), ["maxpool size=1 stride=1 padding=5", "maxpool size=2 stride=2 padding=7"]),
    "maxpool-blur": ((3, 7, 9), ["maxpool size=2 stride=2 antialiasing=1", "maxpool size=3 stride=2 antialiasing=2"]),
    "maxpool-depth": ((7, 3, 5), ["maxpool maxpool_depth=1 out_channels=3", "maxpool maxpool_depth=1"]),
    "local_avgpool": ((3, 9, 7), ["local_avgpool size=2 stride=2", "local_avgpool size=3 stride=1 padding=3"]),
    "avgpool": ((20, 5, 9), ["avgpool"]),
    "upsample": ((2, 3, 5), ["upsample", "upsample stride=3 scale=.7"]),
    "downsample": ((2, 6, 12), ["upsample stride=-2 scale=.3", "upsample stride=-3"]),
    "route": ((4, 3, 5), ["route layers=-1", "route layers=-1,0", "route layers=-1,0 groups=2 group_id=1"]),
    "route-vector": ((4, 4, 4), ["maxpool size=2 stride=2", "route layers=0,1"]),
    "reorg": ((4, 4, 6), ["reorg stride=2", "reorg stride=2 reverse=1", "reorg flatten=1", "reorg flatten=1 reverse=1"]),
    "reorg-extra": ((2, 3, 3), ["reorg extra=5"]),
    "reorg3d": ((16, 4, 6), ["reorg3d stride=2", "reorg3d stride=2 reverse=1", "reorg3d stride=2 reverse=1"]),
    "shortcut": ((4, 3, 5), ["activation activation=leaky", "shortcut from=0 activation=leaky", "shortcut from=-2"]),
    "shortcut-scaled": ((4, 3, 5), ["shortcut from=0 alpha=.7 beta=1.3 activation=mish", "route layers=0", "shortcut from=-2"]),
    "shortcut-channels": ((4, 3, 5), [HALF, "shortcut from=0", "route layers=0", "shortcut from=1 alpha=.3"]),
    "shortcut-small": ((2, 6, 4), ["maxpool size=2 stride=2", "route layers=0", "shortcut from=1 beta=.5 activation=swish"]),
    "shortcut-large": ((2, 6, 4), ["maxpool size=2 stride=2", "shortcut from=0 alpha=.1"]),
    "shortcut-linear": ((4, 3, 5), ["upsample stride=2", "route layers=0", "shortcut from=1"]),
    "shortcut-several": ((4, 3, 5), [HALF, "activation activation=relu", "route layers=0", "shortcut from=0,1,2"]),
    "scale_channels": ((4, 3, 5), ["avgpool", "scale_channels from=0 activation=logistic"]),
    "scale_channels-wh": ((4, 3, 5), ["route layers=0 groups=4", "scale_channels from=0 scale_wh=1"]),
    "sam": ((4, 3, 5), ["activation activation=logistic", "sam from=0 activation=leaky"]),
    "softmax": ((5, 3, 2), ["softmax"]),
    "softmax-groups": ((6, 2, 2), ["softmax groups=3 temperature=.7"]),
    "yolo": ((21, 3, 5), ["yolo classes=2 num=3 mask=0,1,2 scale_x_y=1.05"]),
    "yolo-new-coords": ((14, 3, 5), ["yolo classes=2 num=2 mask=0,1 new_coords=1 scale_x_y=2"]),
    "Gaussian_yolo": ((22, 3, 5), ["Gaussian_yolo classes=2 num=2 mask=0,1 scale_x_y=1.2"]),
    "region": ((14, 3, 5), ["region classes=2 num=2 coords=4"]),
    "region-softmax": ((16, 3, 5), ["region classes=3 num=2 coords=4 softmax=1"]),
    "region-background": ((16, 3, 5), ["region classes=3 num=2 coords=4 softmax=1 background=1"]),
    "region-coords": ((18, 3, 5), ["region classes=3 num=2 coords=5 background=1"]),
    "detection": ((17, 2, 2), ["detection side=2 classes=7 num=2 coords=4 softmax=1"]),
}
for kind in ("none", "relu", "softmax"):
    for weights in ("per_feature", "per_channel"):
        options = f"weights_type={weights} weights_normalization={kind}"
        CASES[f"shortcut-{weights}-{kind}"] = ((4, 3, 5), [HALF, "route layers=0", f"shortcut from=0,1 {options} activation=leaky"])


@pytest.fixture(scope="module")
def library() -> Library:
    return emulated_library()


@pytest.fixture(autouse=True)
def own_functions() -> object:
    """Those of the device are the package's own."""
    with cpu.libm("own"):
        yield


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)


def unusual(shape: tuple[int, ...]) -> Array:
    """With values that are no numbers, infinite, too small, too large, or zeros of both signs."""
    x, generator = numbers(shape, 5).ravel(), np.random.default_rng(6)
    specials = [np.nan, np.inf, -np.inf, 1e-40, -1e-45, 0.0, -0.0, 3.4e38, -3.4e38, 88.8, -104.0, 20.0, -20.0]
    at = generator.random(x.size) < 0.3
    x[at] = generator.choice(np.array(specials, np.float32), at.sum())
    return x.reshape(shape)


def loaded(name: str, profile: str) -> dn.Network:
    """The case's network, with parameters of both signs."""
    (c, h, w), sections = CASES[name]
    net = dn.load(cfg_of(START, *sections, c=c, h=h, w=w), None, profile=profile, seed=1)
    generator = np.random.default_rng(2)
    for layer in net.layers:
        for parameter, array in layer.params.items():
            array[...] = generator.uniform(0.1, 2, array.shape) if "variance" in parameter else generator.normal(0, 1, array.shape)
    return net


# --- which there are --------------------------------------------------------------------------------------------------------


def test_every_type_either_has_a_function_or_passes_its_input_on_or_has_none(library: Library) -> None:
    """Whoever adds a type says here which it is."""
    assert set(OF_THIS_FILE) | OF_PRODUCTS | PASS_THEIR_INPUT_ON | HAVE_NONE == set(BUILDERS)
    assert {kind for kind in BUILDERS if function_of(library, kind)} - OF_PRODUCTS == set(OF_THIS_FILE)


def test_layers_that_pass_their_input_on_have_nothing_to_run() -> None:
    net = dn.load(cfg_of("dropout probability=.5", "empty", "contrastive", "cost", c=2, h=2, w=2), None)
    assert {layer.type for layer in net.layers if layer.native is None} == PASS_THEIR_INPUT_ON


def test_each_type_has_a_case() -> None:
    types = {section.split()[0] for _, sections in CASES.values() for section in (START, *sections)}
    assert types - PASS_THEIR_INPUT_ON == set(OF_THIS_FILE)


# --- bits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", CASES)
def test_outputs_have_the_bits_of_the_same_profile_on_the_cpu(library: Library, name: str, profile: str) -> None:
    net = loaded(name, profile)
    run = [layer.index for layer in compared(library, net, numbers((2, net.c, net.h, net.w)))]
    assert run == [layer.index for layer in net.layers if layer.native is not None]


@pytest.mark.parametrize("name", CASES)
def test_values_that_are_unusual_go_the_same_way(library: Library, name: str) -> None:
    net = loaded(name, "alexeyab-cpu")
    assert all(layer.native is not None for layer in compared(library, net, unusual((2, net.c, net.h, net.w))))


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "hank-ai-cpu", "torch"])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_has_the_bits_of_the_cpu(library: Library, activation: str, profile: str) -> None:
    sections = [f"activation activation={activation}", f"shortcut from=0 activation={activation}"]
    net = dn.load(cfg_of(START, *sections, c=3, h=5, w=4), None, profile=profile)
    for x in (numbers((2, 3, 5, 4)), unusual((2, 3, 5, 4))):
        assert len(list(compared(library, net, x))) == 3


@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu"])
@pytest.mark.parametrize("section", ["softmax tree=six.tree", "region classes=6 num=2 coords=4 softmax=1 tree=six.tree"])
def test_trees_are_a_softmax_for_each_group_of_sisters(library: Library, tmp_path: Path, section: str, profile: str) -> None:
    (tmp_path / "six.tree").write_text("a -1\nb -1\nc 0\nd 0\ne 0\nf 1\n")
    c, h, w = (6, 1, 1) if section.startswith("softmax") else (22, 2, 3)
    (tmp_path / "net.cfg").write_bytes(cfg_of(START, section, c=c, h=h, w=w))
    net = dn.load(tmp_path / "net.cfg", None, profile=profile)
    assert net.layers[1].native.softmax_tree != _native.ffi.NULL
    assert len(list(compared(library, net, numbers((2, c, h, w))))) == 2


# --- refusals ---------------------------------------------------------------------------------------------------------------


def message_of(library: Library, layer: object, arrays: object, kind: str) -> str:
    native = library.ffi.cast("layer *", int(_native.ffi.cast("uintptr_t", layer)))
    assert function_of(library, kind)(native, arrays) == library.functions.GPU_FAILED
    return library.ffi.string(library.functions.gpu_message()).decode()


@pytest.mark.parametrize(("given", "batch", "message"), [
    (("output",), 1, "[batchnorm]: expected an input and an output on the device, got NULL"),
    (("input",), 1, "[batchnorm]: expected an input and an output on the device, got NULL"),
    (("input", "output"), 1, "[batchnorm]: expected scales, biases and rolling arrays on the device, got NULL"),
    (("input", "output"), 0, "[batchnorm]: expected a batch of 1 or more images that fit into memory, got 0"),
    (("input", "output"), 2**62, f"[batchnorm]: expected a batch of 1 or more images that fit into memory, got {2**62}"),
])  # fmt: skip
def test_arrays_that_are_not_there_are_told(library: Library, given: tuple[str, ...], batch: int, message: str) -> None:
    net = dn.load(cfg_of("batchnorm", c=2, h=2, w=2), None)
    held = {name: DeviceArray(library, (1, 2, 2, 2)) for name in given}
    assert message_of(library, net.layers[0].native, arrays_of(library, batch, **held), "batchnorm") == message


def test_a_source_that_is_not_there_is_told(library: Library) -> None:
    net = dn.load(cfg_of(START, "route layers=0", c=2, h=2, w=2), None)
    arrays = arrays_of(library, 1, output=DeviceArray(library, (1, 2, 2, 2)))
    message = "[route]: expected its source 0 on the device, got NULL"
    assert message_of(library, net.layers[1].native, arrays, "route") == message


def test_a_blur_without_scratch_is_told(library: Library) -> None:
    net = dn.load(cfg_of("maxpool size=2 stride=2 antialiasing=1", c=2, h=4, w=4), None)
    held = {name: DeviceArray(library, (1, 2, 4, 4)) for name in ("input", "output")}
    message = "[maxpool]: expected scratch for its blur on the device, got NULL"
    assert message_of(library, net.layers[0].native, arrays_of(library, 1, **held), "maxpool") == message
