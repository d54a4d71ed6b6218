"""A network as a PyTorch module: every layer within 1e-5 of its range, and back to the identical bytes."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

import pydarknetbn as dn
from core import recorded_files
from nets import FASTEST, cfg_of, load_recorded, noise, ramp, tiny_yolo, weights_of
from pydarknetbn.convert import from_torch, to_state_dict, to_torch

torch = pytest.importorskip("torch", reason="torch is not installed")

RECURRENT = re.compile(r"conv_lstm|crnn|gru|history|lstm|rnn")
OTHERS = re.compile(r"detection|iseg")


def shares(net: dn.Network, module, x: np.ndarray) -> list[tuple[float, int, str]]:
    """Of each layer the largest difference as a share of its range, NaN equal to NaN."""
    net.forward(x)
    with torch.no_grad():
        outputs = [output.detach().numpy() for output in module.outputs(torch.from_numpy(x))]
    found = []
    for layer, theirs in zip(net.layers, outputs, strict=True):
        ours = x.reshape(theirs.shape) if layer.passes_input else layer.output
        assert theirs.shape == ours.shape, layer
        assert np.array_equal(np.isnan(theirs), np.isnan(ours)), layer
        kept = np.isfinite(ours)
        apart = np.abs(theirs[kept].astype(np.float64) - ours[kept])
        spread = float(np.ptp(ours[kept])) if kept.any() else 1.0
        found.append((float(apart.max(initial=0)) / (spread or 1.0), layer.index, layer.type))
    return found


def close(net: dn.Network, x: np.ndarray) -> None:
    """Whole networks, each run on its own: sums in another order, 1e-5 of a layer's range."""
    assert max(shares(net, to_torch(net), x)) < (1e-5,)


# --- layers ---------------------------------------------------------------------------------------------------------------------

BEYOND = {"activation_elu", "activation_selu"}  # where the fork gives NaN, since 0 * inf stands in its formula


@pytest.mark.parametrize("weights", [*recorded_files("layers/*/*.weights"), *recorded_files("nets/*/*.weights")])
def test_recorded_networks_layer_by_layer(weights):
    net = load_recorded(weights)
    if RECURRENT.search(weights.stem) or OTHERS.search(weights.stem):
        with pytest.raises(dn.UnsupportedError, match=r"layer \d+ \[\w+\] \(line \d+\)"):
            to_torch(net)
        return
    with np.load(weights.with_suffix(".npz")) as arrays:
        x = np.ascontiguousarray(arrays["input"]).reshape(-1, net.c, net.h, net.w)
    if weights.stem in BEYOND:
        x = np.minimum(x, 80)
    close(net, x)
    assert from_torch(to_torch(net)).to_bytes() == net.to_bytes()


# What each gives at -2, -.5, 0, 1, by hand.
ACTIVATIONS = {
    "linear": (-2, -0.5, 0, 1),
    "leaky": (-0.2, -0.05, 0, 1),
    "relu": (0, 0, 0, 1),
    "logistic": (0.1192029, 0.3775407, 0.5, 0.7310586),
    "swish": (-0.2384058, -0.1887703, 0, 0.7310586),
    "elu": (-0.8646647, -0.3934693, 0, 1),
    "mish": (-0.2525015, -0.2207438, 0, 0.8650984),
    "tanh": (-0.9640276, -0.4621172, 0, 0.7615942),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_hand(name):
    cfg = cfg_of(f"conv filters=1 size=1 activation={name}", w=2, h=2, c=1)
    module = to_torch(dn.load(cfg, weights_of(np.array([0, 1], np.float32)), dialect="alexeyab"))
    x = torch.tensor([-2, -0.5, 0, 1]).view(1, 1, 2, 2)
    assert module(x)[0].detach().flatten().tolist() == pytest.approx(ACTIVATIONS[name], abs=1e-6)


def test_grouped_route_takes_its_part_of_each_source():
    """Planes 0, 1, 2, 3: group 1 of 2 is planes 2 and 3."""
    module = to_torch(dn.load(cfg_of("upsample stride=1", "route layers=-1 groups=2 group_id=1", c=4, w=1, h=1), None))
    assert module(torch.arange(4.0).view(1, 4, 1, 1))[0].flatten().tolist() == [2, 3]


def test_upsample_is_nearest_with_its_scale():
    module = to_torch(dn.load(cfg_of("upsample stride=2 scale=0.5", c=1, w=2, h=1), None))
    assert module(torch.tensor([3.0, 7.0]).view(1, 1, 1, 2))[0].flatten().tolist() == [1.5, 1.5, 3.5, 3.5] * 2


def test_padding_of_a_maxpool_never_wins():
    module = to_torch(dn.load(cfg_of("maxpool size=2 stride=1", c=1, w=2, h=2), None))
    assert module(torch.tensor([-4.0, -3, -2, -1]).view(1, 1, 2, 2))[0].flatten().tolist() == [-1, -1, -1, -1]


@pytest.mark.parametrize(
    "section", ["reorg stride=2", "reorg3d stride=2", "reorg stride=2 reverse=1", "reorg3d stride=2 reverse=1"]
)
def test_reorg_moves_each_value_where_the_core_does(section):
    net = dn.load(cfg_of(section, c=16, h=4, w=6), None, dialect="alexeyab")
    x = ramp(16, 4, 6, batch=2)
    assert np.array_equal(net.forward(x)[0], to_torch(net)(torch.from_numpy(x))[0].numpy())


def test_stride_of_a_direct_convolution_is_the_forks():
    """The first fork reads the first values of the image instead of every second one; the module does too."""
    net = dn.load(cfg_of("conv filters=2 size=1 stride=2 activation=linear"), None, seed=1, dialect="pjreddie")
    close(net, noise(2, 3, 8, 8))


@pytest.mark.parametrize("variance", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("profile", ["pjreddie-cpu", "alexeyab-cpu", "keras"])
def test_epsilon_stands_on_the_profiles_side(profile, variance):
    cfg = cfg_of("conv filters=1 size=1 activation=linear batch_normalize=1", w=1, h=1, c=1)
    net = dn.load(cfg, weights_of(np.array([0, 1, 0, variance, 1], np.float32)), profile=profile)
    x = np.ones((1, 1, 1, 1), np.float32)
    assert to_torch(net)(torch.from_numpy(x))[0].item() == pytest.approx(net.forward(x)[0].item(), rel=1e-6)


def test_training_takes_the_batch_and_moves_the_rolling_arrays_by_the_profile():
    net = dn.load(cfg_of("conv filters=2 size=1 activation=linear batch_normalize=1"), None, seed=3, profile="alexeyab-cpu")
    module = to_torch(net).train()
    x = noise(4, 3, 8, 8)
    theirs = module(torch.from_numpy(x))[0].detach().numpy()
    ours = net.forward(x, train=True)[0]
    assert np.abs(theirs - ours).max() < 1e-5 * np.ptp(ours)
    for name in ("rolling_mean", "rolling_variance"):
        assert getattr(module.layers[0], name).numpy() == pytest.approx(getattr(net.layers[0], name), rel=1e-5)


def test_shared_kernel_is_one_parameter():
    cfg = cfg_of(
        "conv filters=3 size=1 activation=leaky batch_normalize=1",
        "conv share_index=-1 filters=3 size=1 activation=leaky batch_normalize=1",
    )
    net = dn.load(cfg, None, seed=1)
    net.layers[0].rolling_variance[...] = 1
    module = to_torch(net)
    assert [name for name, _ in module.named_parameters()] == ["layers.0.biases", "layers.0.scales", "layers.0.weights"]
    close(net, noise(1, 3, 8, 8))
    assert from_torch(module).to_bytes() == net.to_bytes()


# --- there and back -------------------------------------------------------------------------------------------------------------


def test_module_shares_no_memory_and_can_be_copied():
    net = tiny_yolo()
    before = net.to_bytes()
    module = to_torch(net)
    x = torch.from_numpy(noise(1, 3, net.h, net.w))
    first = module(x)[0].detach()
    assert torch.equal(copy.deepcopy(module)(x)[0], first)
    assert torch.equal(pickle.loads(pickle.dumps(module))(x)[0], first)
    with torch.no_grad():
        module.layers[0].weights.zero_()
    assert net.to_bytes() == before
    assert from_torch(module).layers[0].weights.max() == 0


def test_names_are_those_of_style_layers_and_heads_those_of_the_network():
    net = tiny_yolo()
    module = to_torch(net)
    assert list(module.state_dict()) != []
    assert set(module.state_dict()) == set(to_state_dict(net))
    x = noise(1, 3, net.h, net.w)
    outputs = module(torch.from_numpy(x))
    assert [tuple(output.shape) for output in outputs] == [output.shape for output in net.forward(x)]


def test_module_of_a_port_comes_back_under_its_style():
    """Its counter of batches is ignored, and absent in files of before PyTorch 0.4."""

    class Port(torch.nn.Module):
        def __init__(self):
            super().__init__()
            inner = torch.nn.Sequential()
            inner.add_module("Conv2d", torch.nn.Conv2d(3, 2, 1, bias=False))
            inner.add_module("BatchNorm2d", torch.nn.BatchNorm2d(2))
            self.module_list = torch.nn.ModuleList([inner])

    cfg = cfg_of("conv filters=2 size=1 activation=linear batch_normalize=1")
    port = Port().eval()
    net = from_torch(port, cfg=cfg, style="ultralytics")
    x = noise(1, 3, 8, 8)
    theirs = port.module_list[0](torch.from_numpy(x)).detach().numpy()
    assert np.abs(net.forward(x)[0] - theirs).max() < 1e-6
    with pytest.raises(ValueError, match="holds no cfg"):
        from_torch(port)
    with pytest.raises(dn.DtypeError, match="from_state_dict"):
        from_torch({}, cfg=cfg)


@pytest.mark.parametrize("name", FASTEST)
def test_real_networks(golden, models, name):
    net = dn.load(models / f"{name}.cfg", models / f"{name}.weights")
    file = "person_320_body.npz" if name.endswith("body") else "dog_320.npz"
    with np.load(golden / "yolo-fastest" / file) as arrays:
        x = arrays["input"].reshape(1, net.c, net.h, net.w)
    module = to_torch(net)
    assert max(shares(net, module, x)) < (1e-5,)
    assert from_torch(module).to_bytes() == (models / f"{name}.weights").read_bytes()


# --- families -------------------------------------------------------------------------------------------------------------------

FAMILIES = (
    "yolov2 yolov3 yolov3-tiny yolov3-spp yolov4 yolov4-tiny yolov4-csp yolov4x-mish yolov7-tiny efficientnet_b0 enet-coco "
    "csresnext50-panet-spp darknet19 darknet53 resnet50"
).split()


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_networks_at_a_reduced_size(cfgs, name):
    text = (cfgs / "alexeyab" / f"{name}.cfg").read_text()
    small = re.sub(r"(?m)^(width|height) *= *\d+", r"\1=128", text)
    net = dn.load(small.encode(), None, dialect="alexeyab", seed=1)
    rng = np.random.default_rng(1)
    for layer in net.layers:
        if "rolling_variance" in layer.params:
            layer.rolling_variance[...] = rng.uniform(0.5, 2, layer.rolling_variance.shape)
            layer.rolling_mean[...] = rng.normal(0, 0.1, layer.rolling_mean.shape)
            layer.scales[...] = rng.uniform(0.5, 1.5, layer.scales.shape)
    x = rng.random((1, net.c, net.h, net.w), np.float32)
    close(net, x)
    assert from_torch(to_torch(net)).to_bytes() == net.to_bytes()
