"""From the sections of a `.cfg` to layers, each sized by the one before, and their values before any weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import _native
from ._native import Array
from .cfg import Cfg, read_cfg
from .dialect import AUTOMATIC, DIALECTS, Dialect, Profile
from .errors import CfgError, StateError
from .layers import Context, Layer, Shape, build
from .layers.base import Initial
from .options import Section, unknown_key_warning

__all__ = ["Built", "Origin", "build_layers", "clone_layers", "initialize"]

# Options of [net] that training and the forks' programs read. None changes what an inference computes.
_NET_WITHOUT_EFFECT = frozenset(
    "B1 B2 adam adversarial_lr angle aspect attention augment_speed badlabels_rejection_percentage batch blur burn_in center clip "
    "contrastive contrastive_color contrastive_jit_flip cutmix decay dynamic_minibatch ema_alpha eps equidistant_point exposure "
    "flip gamma gaussian_noise hue label_smooth_eps learning_rate learning_rate_min loss_scale max_batches max_chart_loss max_crop "
    "max_ratio min_crop min_ratio mixup momentum mosaic mosaic_bound notruth num_sigmas_reject_badlabels optimized_memory policy "
    "power random resize_step saturation scale scales seq_scales sequential_subdivisions sgdr_cycle sgdr_mult "
    "show_receptive_field step steps subdivisions track try_fix_nan unsupervised use_cuda_graph weights_reject_freq "
    "workspace_size_limit_MB".split()
)

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a network comes from.

    Args:
        cfg: what was read of the cfg.
        weights: how they call the weights, "" without any.
        nbytes: bytes of the weights that were read.
        why: sentences on how dialect and profile were decided.
        warnings: sentences on what was read in one of several ways.
        unfolded: of a folded network, the text of the cfg before.
    """

    cfg: Cfg
    weights: str
    nbytes: int
    why: tuple[str, ...]
    warnings: tuple[str, ...]
    unfolded: str = ""

    def refuse_old_cfg(self, beside: Path, dialect: Dialect) -> None:
        """Raises a StateError where a file is the cfg from before the fold."""
        if not (self.unfolded and beside.is_file()):
            return
        try:
            text = read_cfg(beside, dialect=dialect.name).text
        except CfgError:
            return
        if text == self.unfolded:
            message = f"{beside}: has batchnorms that these weights are folded into"
            raise StateError(f"{message}; save them under another name, with the folded cfg beside them")


class Built(NamedTuple):
    """Layers, the shape of the input, whether [net] asks for a letterbox, warnings, and the time steps of a batch."""

    layers: tuple[Layer, ...]
    in_shape: Shape
    letter_box: bool
    warnings: tuple[str, ...]
    time_steps: int = 1


def build_layers(cfg: Cfg, dialect: Dialect, profile: Profile) -> Built:
    """The layers of a cfg.

    Raises:
        CfgError: the sections do not make a network; it names file, line and option.
        UnsupportedError: they do, but not one that this package computes.
        MemoryError: it does not fit.
    """
    in_shape = _input_shape(cfg)
    letter_box, time_steps = cfg.net.flag("letter_box"), max(1, cfg.net.integer("time_steps", 1))
    warnings = list(cfg.warnings)
    unknown = (key for key, _ in cfg.net.unused() if key not in _NET_WITHOUT_EFFECT)
    warnings += [unknown_key_warning(cfg.net, key, cfg.net.asked | _NET_WITHOUT_EFFECT) for key in unknown]
    if not cfg.layers:
        raise cfg.net.error(f"{cfg.net.name} is followed by no layer; a network needs one, such as [convolutional]")
    layers: list[Layer] = []
    shape = in_shape
    for section in (_known_to(dialect, section, warnings) for section in cfg.layers):
        layers.append(build(section, Context(shape, layers, dialect, profile, warnings)))
        shape = layers[-1].out_shape
    return Built(tuple(layers), in_shape, letter_box, tuple(warnings), time_steps)


def _known_to(dialect: Dialect, section: Section, warnings: list[str]) -> Section:
    """The section without options that only other forks' programs read: in this one's they have no effect."""
    others = {name for name in AUTOMATIC if not DIALECTS[name].own_keys & dialect.own_keys}
    foreign = frozenset().union(*(DIALECTS[name].own_keys for name in others))
    ignored = [option for option in section.options if (section.type, option.key) in foreign]
    for option in ignored:
        message = f"{section.name} has no option {option.key} in dialect {dialect.name}, which ignores it"
        warnings.append(str(section.error(message, option.key)))
    return replace(section, options=tuple(option for option in section.options if option not in ignored))


def _input_shape(cfg: Cfg) -> Shape:
    net = cfg.net
    sides = [net.integer(key, 0, minimum=0) for key in ("channels", "height", "width")]
    inputs = net.integer("inputs", math.prod(sides), minimum=0)
    if all(sides):
        return Shape(*sides)
    if inputs:
        return Shape(inputs, 1, 1)
    raise net.error(f"{net.name} on line {net.line} needs width=, height= and channels= of 1 or more, or inputs=")


def initialize(layers: Iterable[Layer], dialect: Dialect, seed: int) -> None:
    """Gives weights the dialect's starting distribution, from NumPy's generator with that seed.

    The forks draw from the C library's rand(), so the numbers are not theirs; spread and shape are. Everything else keeps what
    its layer starts with: scales 1, biases and rolling arrays 0, weights of shortcuts 1.

    Source: pjreddie/darknet src/convolutional_layer.c:206, AlexeyAB/darknet src/convolutional_layer.c:571.
    """
    generator = np.random.default_rng(seed)
    for layer in (each for outer in layers for each in (outer, *outer.inner.values())):
        if not layer.stored or (layer.initial is None and layer.type not in ("convolutional", "connected")):
            continue
        _draw(generator, layer.initial or _by_fan_in(layer, dialect), layer.weights)


def _by_fan_in(layer: Layer, dialect: Dialect) -> Initial:
    fan_in = math.prod(layer.weights.shape[1:])
    normal = layer.type == "convolutional" and dialect.initial_weights == "normal"
    return Initial(math.sqrt(2.0 / fan_in), distribution="normal" if normal else "uniform")


def _draw(generator: np.random.Generator, initial: Initial, weights: Array) -> None:
    flat = weights.reshape(-1)
    for part in np.split(flat, range(_CHUNK, flat.size, _CHUNK)):  # the same numbers as at once, in little memory
        if initial.distribution == "normal":
            values = generator.standard_normal(part.shape, np.float32)
        else:
            values = generator.uniform(-1, 1, part.shape).astype(np.float32)
        part[...] = np.float32(initial.mean) + np.float32(initial.spread) * values


def clone_layers(layers: Sequence[Layer], *, share: bool) -> tuple[Layer, ...]:
    """Layers of the same parameters that no forward has gone through.

    Args:
        layers: of one network, in order.
        share: their parameters are the same arrays, else copies.
    """
    made: list[Layer] = []
    for layer in layers:
        origin = made[layer.origin.index] if layer.origin else None
        if layer.native is None:
            trainer = _native.clone(layer.trainer, share=share) if layer.trainer is not None else None
            made.append(replace(layer, origin=origin, trainer=trainer))
            continue
        native = _native.clone(layer.native, share=share)
        made.append(replace(layer, native=native, origin=origin, inner=_inner_of(layer, native)))
        if not layer.stored:  # a shared kernel, whose gradients are shared, too
            first = next(other for other in layers if other.weights_at == layer.weights_at)
            _native.check(_native.lib.share_parameters(native, made[first.index].native))
    return tuple(made)


def _inner_of(layer: Layer, native: _native.CData) -> dict[str, Layer]:
    assert layer.native is not None
    number = {layer.native.inner[at]: at for at in range(layer.native.n_inner)}
    borrowed = {name: _native.borrowed(native.inner[number[inner.native]], native) for name, inner in layer.inner.items()}
    return {name: replace(inner, native=borrowed[name]) for name, inner in layer.inner.items()}
