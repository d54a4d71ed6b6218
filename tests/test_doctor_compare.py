"""A whole comparison: right ports are clean, two faults are found one after the other, and nothing else is said."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import pydarknetbn as dn

CFG = Path(__file__).parent.parent / "cfg" / "tiny-yolo.cfg"
MODELS = os.environ.get("PYDARKNETBN_MODELS")

pytestmark = pytest.mark.skipif(not CFG.exists(), reason="the source tree is not beside the tests")


@pytest.fixture
def net():
    made = dn.load(CFG, seed=5)
    generator = np.random.default_rng(6)
    for layer in made.layers:
        if "rolling_mean" in layer.params:
            count = len(layer.rolling_mean)
            layer.rolling_mean[...] = generator.normal(0, 0.3, count)
            layer.rolling_variance[...] = 10.0 ** generator.uniform(-3, 0, count)
            layer.scales[...] = generator.normal(1, 0.3, count)
    return made


@pytest.fixture
def x(net):
    return np.random.default_rng(7).random((1, net.c, net.h, net.w), np.float32)


def values_of(net, x):
    net.forward(x)
    return {str(layer.index): np.array(x if layer.passes_input else layer.output) for layer in net.layers}


def with_profile(net, name):
    other = dn.load(CFG, profile=name)
    for ours, theirs in zip(net.layers, other.layers, strict=True):
        for array, values in ours.params.items():
            theirs.params[array][...] = values
    return other


def test_the_network_itself_is_clean_bit_for_bit(net, x):
    found = dn.compare(net, net.clone(), x)
    assert found.clean
    assert found.exit_code == 0
    assert max(row.multiple for row in found.rows) == 0
    assert found.verdict.startswith("clean: all ")


def test_its_own_values_stay_as_they_are(net, x):
    before = values_of(net, x)
    dn.compare(net, before, x)
    assert all(np.array_equal(net.layers[int(name)].output, value) for name, value in before.items())


def test_an_epsilon_is_recovered_to_one_percent(net, x):
    found = dn.compare(net, with_profile(net, "keras"), x)
    assert found.cause.kind == "batchnorm.epsilon"
    assert found.cause.values["epsilon"] == pytest.approx(1e-3, rel=0.01)
    assert found.exit_code == 1


def test_the_heads_alone_tell_an_epsilon_that_is_wrong_everywhere(net, x):
    other = with_profile(net, "keras")
    found = dn.compare(net, lambda given: [np.array(value) for value in other.forward(given)], x)
    assert found.cause.kind == "batchnorm.epsilon"


def test_two_faults_are_found_one_after_the_other(net, x):
    wrong = with_profile(net, "keras")
    values = values_of(wrong, x)
    head = net.heads[-1]
    entries = values[str(head.index)].reshape(len(head.head.mask), 5 + head.head.classes, -1)
    for part in (slice(0, 2), slice(4, None)):
        entries[:, part] = 1 / (1 + np.exp(-entries[:, part].astype(np.float64)))
    assert [cause.kind for cause in dn.compare(net, values, x).causes] == ["batchnorm.epsilon"]
    second = dn.compare(net, values, x, fix_and_go_on=True)
    assert [cause.kind for cause in second.causes] == ["batchnorm.epsilon", "yolo.double_sigmoid"]


def test_another_size_in_the_port_is_no_clean_port(net, x):
    class Port:
        """Shows a value of another size and calls it its output."""

        def __call__(self, given):
            return [np.zeros((1, 7, 3, 3), np.float32)]

    found = dn.compare(net, Port(), x)
    assert not found.clean
    assert "no value of the size of layer" in found.verdict


def test_gradients_are_refused_in_one_sentence(net, x):
    with pytest.raises(dn.UnsupportedError, match=r"gradients are compared with a torch.nn.Module, got dict; use train=False"):
        dn.compare(net, {}, x, train=True)


@pytest.mark.long
@pytest.mark.skipif(MODELS is None, reason="PYDARKNETBN_MODELS is not set")
@pytest.mark.parametrize(
    "name", ["yolo-fastest", "yolo-fastest-xl", "yolo-fastest-1.1", "yolo-fastest-1.1-xl", "yolo-fastest-1.1_body"]
)
@pytest.mark.parametrize("side", ["onnx", "onnx folded", "torch"])
def test_right_ports_of_real_networks_are_clean(name, side):
    folder = Path(str(MODELS))
    net = dn.load(folder / f"{name}.cfg", folder / f"{name}.weights")
    picture = dn.image.load_image(folder / "dog.jpg")
    x = dn.image.fit(picture, net.w, net.h, how=net.default_resize)[np.newaxis]
    if side == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
        other = dn.convert.to_torch(net)
    else:
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
        other = dn.convert.to_onnx(net, fold=side == "onnx folded", verify=False)
    found = dn.compare(net, other, x)
    assert found.clean, found.verdict
