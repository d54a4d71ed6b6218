"""The doctor for training: right ports are clean, and each fault of training is named."""

from __future__ import annotations

import numpy as np
import pytest

import pydarknetbn as dn

pytest.importorskip("torch", reason="torch is not installed")

from ports import trained

SEED, UNSEEN = 20261130, 20261201


def batch(net: dn.Network, seed: int, images: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.3, 1.2, (images, net.c, net.h, net.w)).astype(np.float32)


@pytest.mark.parametrize("seed", [SEED, UNSEEN])
@pytest.mark.parametrize("name", trained.NETWORKS)
def test_a_right_port_is_clean(name, seed):
    net = trained.network(name, seed)
    found = dn.compare(net, trained.port_of(net), batch(net, seed), train=True)
    assert found.clean, found.verdict
    assert len(found.rows) >= 20


@pytest.mark.parametrize("seed", [SEED, UNSEEN])
@pytest.mark.parametrize("name", trained.NETWORKS)
@pytest.mark.parametrize("fault", trained.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_training_is_named(fault, name, seed):
    net = trained.network(name, seed)
    for words, port, _ in trained.ports(net, fault):
        found = dn.compare(net, port, batch(net, seed), train=True)
        assert found.cause is not None, (words, found.verdict)
        assert {cause.kind for cause in found.causes} == {fault.kind}, (words, [cause.words for cause in found.causes])
        assert not [row for row in found.rows if row.bad and row.cause is None], (words, found.verdict)
        for key, value in fault.values.items():
            assert found.cause.values[key] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value)


def causes(profile: str) -> dict[str, dict[str, object]]:
    """What an ordinary port of PyTorch does otherwise than a profile."""
    net = trained.network("chain", SEED, profile="torch")
    port = trained.port_of(net)
    other = dn.load(net.origin.cfg.text.encode(), net.to_bytes(), profile=profile)
    found = dn.compare(other, port, batch(net, SEED), train=True)
    assert found.exit_code == 1
    assert not [row for row in found.rows if row.bad and row.cause is None], found.verdict
    return {cause.kind: dict(cause.values) for cause in found.causes}


def test_what_pytorch_does_otherwise_than_the_first_fork():
    found = causes("pjreddie-cpu")
    assert found == {
        "batchnorm.epsilon": {"epsilon": 1e-5, "denominator": "n"},
        "training.momentum": {"keep": 0.9, "add": 0.1},
    }


def test_what_pytorch_does_otherwise_than_the_second_fork():
    assert causes("alexeyab-cpu") == {"batchnorm.bessel": {"denominator": "n"}, "training.bias_gradient": {}}


def test_the_module_stays_as_it_was():
    import torch

    net = trained.network("vectors", SEED)
    port = trained.port_of(net).eval()
    before = {name: each.clone() for name, each in port.state_dict().items()}
    dn.compare(net, port, batch(net, SEED), train=True)
    assert not port.training
    assert not port[1].training
    assert all(torch.equal(each, before[name]) for name, each in port.state_dict().items())
    assert all(parameter.grad is None for parameter in port.parameters())
    assert not port[0]._forward_hooks
    assert not port[0]._forward_pre_hooks


def test_another_side_than_a_module_is_refused():
    net = trained.network("chain", SEED)
    with pytest.raises(dn.UnsupportedError, match=r"gradients are compared with a torch.nn.Module, got dict; use train=False"):
        dn.compare(net, {"1": np.zeros(3, np.float32)}, batch(net, SEED), train=True)


def test_a_port_without_modules_of_our_sizes_is_told():
    import torch

    net = trained.network("chain", SEED)
    found = dn.compare(net, torch.nn.Conv2d(3, 2, 1), batch(net, SEED), train=True)
    assert found.verdict == "nothing was compared: no module of the port has parameters of the sizes of ours; give names"
    assert not found.clean
