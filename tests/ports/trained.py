"""Ports that train, in PyTorch: right ones and ones with a known fault of training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import pydarknetbn as dn
from nets import cfg_of

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

_BN = "batch_normalize=1 pad=1 activation=leaky"
NETWORKS = {
    "chain": (
        f"convolutional filters=8 size=3 {_BN}",
        f"convolutional filters=12 size=3 stride=2 {_BN}",
        f"convolutional filters=16 size=3 groups=2 {_BN}",
        f"convolutional filters=8 size=1 {_BN}",
        "convolutional filters=5 size=1",
    ),
    "vectors": (
        f"convolutional filters=6 size=3 stride=2 {_BN}",
        f"convolutional filters=8 size=3 dilation=2 {_BN}",
        "connected output=12 batch_normalize=1 activation=leaky",
        "connected output=12 batch_normalize=1 activation=leaky",
        "connected output=4 activation=linear",
    ),
}


def network(name: str, seed: int, profile: str = "torch") -> dn.Network:
    """With parameters and rolling arrays as after some training."""
    net = dn.load(cfg_of(*NETWORKS[name], w=12, h=12), profile=profile, seed=seed)
    rng = np.random.default_rng(seed)
    for layer in net.layers:
        for key, array in layer.params.items():
            if key == "rolling_variance":
                array[...] = rng.uniform(0.5, 2, array.shape)
            elif key == "scales":
                array[...] = rng.uniform(0.5, 1.5, array.shape) * rng.choice([-1, 1], array.shape)
            elif key in ("rolling_mean", "biases"):
                array[...] = rng.normal(size=array.shape)
    return net


def port_of(net: dn.Network, momentum: float | None = None) -> Any:
    """The same in PyTorch, written out: modules in order, momentum as the profile adds."""
    modules: list[Any] = []
    for layer in net.layers:
        array = {key: torch.from_numpy(value.copy()) for key, value in layer.params.items()}
        if layer.type == "connected" and not any(isinstance(each, nn.Flatten) for each in modules):
            modules.append(nn.Flatten())
        main = _linear(array) if layer.type == "connected" else _conv(layer, array)
        modules.append(main)
        if "scales" in array:
            modules.append(_batchnorm(net, layer, array, momentum))
        kind = layer.detail.split(",")[0] if layer.type == "convolutional" else "leaky" if "scales" in array else "linear"
        modules += {"leaky": [nn.LeakyReLU(0.1, inplace=True)], "logistic": [nn.Sigmoid()]}.get(kind, [])
    return nn.Sequential(*modules)


def _linear(array: dict[str, Any]) -> Any:
    made = nn.Linear(array["weights"].shape[1], array["weights"].shape[0], bias="scales" not in array)
    return _filled(made, array)


def _conv(layer: Any, array: dict[str, Any]) -> Any:
    own = layer.native
    made = nn.Conv2d(
        own.c,
        own.n,
        own.size,
        stride=own.stride_x,
        padding=own.pad * own.dilation,
        dilation=own.dilation,
        groups=own.groups,
        bias="scales" not in array,
    )
    return _filled(made, array)


def _filled(made: Any, array: dict[str, Any]) -> Any:
    with torch.no_grad():
        made.weight.copy_(array["weights"].reshape(made.weight.shape))
        if made.bias is not None:
            made.bias.copy_(array["biases"])
    return made


def _batchnorm(net: dn.Network, layer: Any, array: dict[str, Any], momentum: float | None) -> Any:
    rule = dn.profiles()[[each.name for each in dn.profiles()].index(net.profile)].rule(layer.type)
    kind = nn.BatchNorm1d if layer.type == "connected" else nn.BatchNorm2d
    made = kind(len(array["scales"]), eps=rule.forward.value, momentum=rule.rolling_add if momentum is None else momentum)
    with torch.no_grad():
        made.weight.copy_(array["scales"])
        made.bias.copy_(array["biases"])
        made.running_mean.copy_(array["rolling_mean"])
        made.running_var.copy_(array["rolling_variance"])
    return made


# --- faults ---------------------------------------------------------------------------------------------------------------------


class Own(nn.Module):
    """A batchnorm written out, as ports have it, with switches for what goes wrong."""

    def __init__(self, of: Any, **switches: Any) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        self.register_buffer("running_mean", of.running_mean)
        self.register_buffer("running_var", of.running_var)
        self.eps, self.momentum, self.switches = of.eps, of.momentum, switches

    def forward(self, x: Any) -> Any:
        dims = [0, *range(2, x.ndim)]
        variance, mean = torch.var_mean(x, dim=dims, correction=self.switches.get("normalize", 0))
        if self.switches.get("detached"):
            variance, mean = variance.detach(), mean.detach()
        kept = torch.var(x, dim=dims, correction=self.switches.get("keep", 1))
        with torch.no_grad():
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean)
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * kept)
        if self.switches.get("stale"):
            mean, variance = self.running_mean.clone(), self.running_var.clone()
        shape = (1, -1, *[1] * (x.ndim - 2))
        x_norm = (x - mean.reshape(shape)) / (variance.reshape(shape) + self.eps).sqrt()
        return x_norm * self.weight.reshape(shape) + self.bias.reshape(shape)


class Scaled(torch.autograd.Function):
    """Passes a value on and multiplies its gradient."""

    @staticmethod
    def forward(context: Any, x: Any, factor: float) -> Any:
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * context.factor, None


@dataclass(frozen=True)
class Fault:
    """A fault of training: what it is called, and what it does to one batchnorm of a right port."""

    name: str
    kind: str
    change: Callable[[Any, int], None]
    values: dict[str, Any] = field(default_factory=dict)


def _places(port: Any) -> list[int]:
    return [at for at, each in enumerate(port) if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]


def _set(**values: Any) -> Callable[[Any, int], None]:
    def change(port: Any, at: int) -> None:
        for key, value in values.items():
            setattr(port[at], key, value)

    return change


def _own(**switches: Any) -> Callable[[Any, int], None]:
    def change(port: Any, at: int) -> None:
        port[at] = Own(port[at], **switches)

    return change


def _frozen(port: Any, at: int) -> None:
    port[at].eval()
    port[at].train = lambda mode=True: port[at]


def _share(port: Any, at: int) -> None:
    """The rolling arrays of this one are another's of the same size: a copy that is none."""
    places = [other for other in _places(port) if other != at and port[other].running_mean.shape == port[at].running_mean.shape]
    other = port[places[0]]
    port[at].running_mean, port[at].running_var = other.running_mean, other.running_var


def _no_gradient(name: str) -> Callable[[Any, int], None]:
    return lambda port, at: getattr(port[at], name).requires_grad_(False)


def _hook(name: str, factor: float) -> Callable[[Any, int], None]:
    def change(port: Any, at: int) -> None:
        getattr(port[at], name).register_hook(lambda gradient: gradient * factor)

    return change


def _weight_hook(factor: float) -> Callable[[Any, int], None]:
    return lambda port, at: port[at - 1].weight.register_hook(lambda gradient: gradient * factor) and None


FAULTS = (
    Fault("momentum the other way round", "training.momentum", _set(momentum=0.9), {"keep": 0.1, "add": 0.9}),
    Fault("momentum of another fork", "training.momentum", _set(momentum=0.01), {"keep": 0.99, "add": 0.01}),
    Fault("biased rolling variance", "training.running_variance", _own(keep=0), {"denominator": "n"}),
    Fault("unbiased variance normalizes", "batchnorm.bessel", _own(normalize=1), {"denominator": "n-1"}),
    Fault("statistics kept as they are", "training.frozen_statistics", _set(momentum=0.0)),
    Fault("evaluation mode in training", "training.eval_mode", _frozen),
    Fault("rolling arrays normalize after they moved", "training.stale_statistics", _own(stale=True)),
    Fault("detached statistics", "training.constant_statistics", _own(detached=True)),
    Fault("another epsilon", "batchnorm.epsilon", _set(eps=1e-3), {"epsilon": 1e-3}),
    Fault("frozen beta", "training.frozen_parameters", _no_gradient("bias")),
    Fault("frozen gamma", "training.frozen_parameters", _no_gradient("weight")),
    Fault("no gradient arrives at beta", "training.bias_gradient", _hook("bias", 0.0)),
    Fault("sign of gamma's gradient", "training.sign", _hook("weight", -1.0)),
    Fault("sign of the weights' gradient", "training.sign", _weight_hook(-1.0)),
    Fault("mean instead of sum", "training.factor", _weight_hook(0.25), {"factor": 0.25}),
    Fault("shared rolling arrays", "training.shared_statistics", _share),
)


def ports(net: dn.Network, fault: Fault) -> Iterator[tuple[str, Any, int]]:
    """The port with the fault everywhere, and at its last batchnorm: words, module, how many places."""
    right = port_of(net)
    places = _places(right)
    for words, everywhere in (("everywhere", places), ("once", places[-1:])):
        port = copy.deepcopy(right)
        chosen = everywhere if fault.kind != "training.shared_statistics" else _twins(right, places)[: words == "once"]
        for at in chosen:
            fault.change(port, at)
        if chosen:
            yield words, port, len(chosen)


def _twins(port: Any, places: list[int]) -> list[int]:
    """Batchnorms of which there is another of the same size, the last one first."""
    sizes = [len(port[at].running_mean) for at in places]
    return [at for at in reversed(places) if sizes.count(len(port[at].running_mean)) > 1]
