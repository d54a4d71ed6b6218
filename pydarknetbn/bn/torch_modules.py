"""A batchnorm from a module of PyTorch, and as one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from .._native import Array, CData
from ..dialect import BatchNormRule, EpsilonRule, profile_named
from ..errors import DarknetWarning
from ..extras import import_extra
from .conventions import through_epsilon
from .core import PARAMETERS, view_of
from .settings import ROUNDING, Rolling, Settings, differences

__all__ = ["Carried", "module_like", "read_module"]

# By our names; PyTorch's beside them.
_NAMES = MappingProxyType({"scales": "weight", "biases": "bias", "rolling_mean": "running_mean", "rolling_variance": "running_var"})
_PROFILE = "torch"  # whose arithmetic a module's is


@dataclass(frozen=True, slots=True)
class Carried:
    """What a module holds, in Darknet's words.

    Args:
        channels, settings: of the layer to make.
        arrays: those of scales, biases, rolling_mean and rolling_variance that the module has, (c) each.
        batches: how many batches are in the rolling arrays.
        tracks: there are rolling arrays.
        frozen_parameters, frozen_statistics: update and training leave them as they are.
    """

    channels: int
    settings: Settings
    arrays: Mapping[str, Array]
    batches: int
    tracks: bool
    frozen_parameters: bool
    frozen_statistics: bool


def read_module(module: Any, profile: str) -> Carried:
    """A module's settings and arrays, for a layer of that profile.

    Raises:
        MissingExtraError: PyTorch is not installed.
        TypeError: another module.
        ValueError: no such profile.
    """
    nn = import_extra("torch", "torch").nn
    classes = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if not isinstance(module, classes):
        names = ", ".join(kind.__name__ for kind in classes)
        raise TypeError(f"expected a module of one of torch.nn's {names}, got {type(module).__name__}")
    said: list[str] = []
    held = {name: getattr(module, theirs) for name, theirs in _NAMES.items()}
    arrays = {name: _as_float(tensor, _NAMES[name], said) for name, tensor in held.items() if tensor is not None}
    outside = profile_named(profile).rule("batchnorm").forward.side == "outside"
    settings = Settings(
        profile=profile,
        affine=module.affine,
        epsilon=None if outside else float(module.eps),
        rolling=_rolling(module.momentum),
    )
    theirs = _rule_of(float(module.eps), _rolling(module.momentum))
    if outside:
        _convert(arrays, (theirs.forward, settings.rule.forward))
    said += differences(settings.rule, theirs)
    trained = [module.weight, module.bias]
    learns = [each.requires_grad for each in trained if each is not None]
    if module.affine and module.bias is None:
        said.append("the module has no bias, while update moves biases, which start at 0")
    if len(set(learns)) > 1:
        said.append("update moves scales and biases, of which only one asks for gradients in the module")
    _warn(said, f"BatchNorm({module.num_features}, {settings.described()}) is not all that {type(module).__name__} is")
    tracks = module.running_mean is not None
    return Carried(
        channels=module.num_features,
        settings=settings,
        arrays=arrays,
        batches=0 if module.num_batches_tracked is None else int(module.num_batches_tracked),
        tracks=tracks,
        frozen_parameters=module.affine and not any(learns),
        frozen_statistics=tracks and not module.track_running_stats,
    )


def module_like(layer: CData, settings: Settings, *, dims: int, tracks: bool, frozen_statistics: bool) -> Any:
    """BatchNorm1d, BatchNorm2d or BatchNorm3d with a layer's settings and arrays, in training mode.

    An epsilon of e outside the root becomes one of e^2 inside it, which gives a variance of 0 the same root; the running variance
    takes up what is left, so that the inference is the same.

    Raises:
        MissingExtraError: PyTorch is not installed.
        ValueError: dims is not 1, 2 or 3.
    """
    if dims not in (1, 2, 3):
        raise ValueError(f"expected dims to be 1, 2 or 3, for BatchNorm1d, BatchNorm2d or BatchNorm3d, got {dims!r}")
    torch = import_extra("torch", "torch")
    rule, momentum = settings.rule, _momentum(settings.rule)
    epsilon = rule.forward.value if rule.forward.side == "inside" else rule.forward.value**2
    arrays = {name: view_of(layer, name) for name in PARAMETERS}
    theirs = _rule_of(epsilon, _rolling(momentum))
    _convert(arrays, (rule.forward, theirs.forward))
    module = getattr(torch.nn, f"BatchNorm{dims}d")(
        layer.c,
        eps=epsilon,
        momentum=momentum,
        affine=settings.affine or bool(np.any(arrays["scales"] != 1) or np.any(arrays["biases"] != 0)),
        track_running_stats=tracks,
    )
    for name, target in _NAMES.items():
        if getattr(module, target) is not None:
            getattr(module, target).data.copy_(torch.from_numpy(np.array(arrays[name])))
    if tracks:
        module.num_batches_tracked.fill_(layer.num_batches_tracked)
        module.track_running_stats = not frozen_statistics
    module.requires_grad_(not layer.freeze_parameters)
    _warn(differences(theirs, rule), f"BatchNorm{dims}d is not all that BatchNorm({layer.c}, {settings.described()}) is")
    return module


def _rolling(momentum: float | None) -> Rolling:
    return "cumulative" if momentum is None else (1 - float(momentum), float(momentum))


def _momentum(rule: BatchNormRule) -> float | None:
    """The nearest where the factors do not add up to 1: by it the old values fade as before."""
    if rule.rolling == "cumulative":
        return None
    adds_up = abs(rule.rolling_keep + rule.rolling_add - 1) < ROUNDING
    return rule.rolling_add if adds_up else 1 - rule.rolling_keep


def _rule_of(epsilon: float, rolling: Rolling) -> BatchNormRule:
    """A module's."""
    return Settings(profile=_PROFILE, epsilon=epsilon, rolling=rolling).rule


def _as_float(tensor: Any, name: str, said: list[str]) -> Array:
    """A copy, so that the two are independent; half types widen exactly, double is rounded and told."""
    array = tensor.detach().cpu()
    if str(array.dtype) == "torch.float64":
        said.append(f"the module's {name} of float64 is rounded to float32")
    return np.array(array.float().numpy(), np.float32)


def _convert(arrays: dict[str, Array], epsilons: tuple[EpsilonRule, EpsilonRule]) -> None:
    """Under another side of the root the rolling variance changes so that the inference does not."""
    if epsilons[0].side == epsilons[1].side or "rolling_variance" not in arrays:
        return
    scales = arrays.get("scales", np.ones_like(arrays["rolling_variance"]))
    doubles = (arrays["rolling_variance"].astype(np.float64), scales.astype(np.float64))
    variance, scaled = through_epsilon(*doubles, epsilons, [])
    arrays["rolling_variance"], arrays["scales"] = variance.astype(np.float32), scaled.astype(np.float32)


def _warn(said: list[str], what: str) -> None:
    if said:
        warnings.warn(f"{what}: {'; '.join(said)}", DarknetWarning, stacklevel=4)
