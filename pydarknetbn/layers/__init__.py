"""Layers: one file a type, from a section's options to a layer of the core and its arrays in file order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from ..errors import UnsupportedError
from ..options import Section, unknown_key_warning
from . import (
    activation,
    avgpool,
    batchnorm,
    connected,
    contrastive,
    convolutional,
    cost,
    crop,
    detection,
    dropout,
    gaussian_yolo,
    gru,
    history,
    implicit,
    iseg,
    local,
    lstm,
    maxpool,
    passthrough,
    region,
    reorg,
    rnn,
    route,
    scale_channels,
    shortcut,
    softmax,
    upsample,
    yolo,
)
from .base import Context, Head, Layer, Shape
from .filing import file_options
from .schooling import set_training, train_options

__all__ = ["BUILDERS", "Context", "Head", "Layer", "Shape", "build"]

BUILDERS: Mapping[str, ModuleType] = MappingProxyType(
    {
        "Gaussian_yolo": gaussian_yolo,
        "activation": activation,
        "avgpool": avgpool,
        "batchnorm": batchnorm,
        "connected": connected,
        "contrastive": contrastive,
        "conv_lstm": lstm,
        "convolutional": convolutional,
        "cost": cost,
        "crnn": rnn,
        "crop": crop,
        "deconvolutional": local,
        "detection": detection,
        "dropout": dropout,
        "empty": passthrough,
        "gru": gru,
        "history": history,
        "implicit": implicit,
        "iseg": iseg,
        "l2norm": activation,
        "local": local,
        "local_avgpool": maxpool,
        "logistic": activation,
        "lstm": lstm,
        "maxpool": maxpool,
        "normalization": activation,
        "region": region,
        "reorg": reorg,
        "reorg3d": reorg,
        "rnn": rnn,
        "route": route,
        "sam": scale_channels,
        "scale_channels": scale_channels,
        "shortcut": shortcut,
        "softmax": softmax,
        "upsample": upsample,
        "yolo": yolo,
    }
)

# What may follow a layer whose output has no width and height: it reads values in the order of memory, or nothing.
_TAKE_VECTORS = frozenset(
    "activation connected contrastive cost detection dropout empty gru implicit logistic lstm rnn route softmax".split()
)

# Options of every section that matter to training alone.
_TRAINING = frozenset("burnin_update clip smooth truth".split())


def build(section: Section, context: Context) -> Layer:
    """A section's layer; options that nobody reads become warnings of the context.

    Raises:
        CfgError: the options do not make a layer.
        UnsupportedError: the section, or an option that changes inference, is not computed by this package.
    """
    module = BUILDERS.get(section.type)
    if module is None:
        message = f"{section.name}, layer {section.index}, is not computed by this package; it computes {', '.join(BUILDERS)}"
        raise UnsupportedError(str(section.error(message)))
    _refuse_uncomputed(section, getattr(module, "NEUTRAL", {}))
    if section.type not in _TAKE_VECTORS:
        context.need_image(section)
    layer: Layer = module.build(section, context)
    layer.file = file_options(section, layer)
    layer.train = train_options(section)
    set_training(layer, context.profile.training)
    without_effect = getattr(module, "WITHOUT_EFFECT", frozenset()) | _TRAINING
    unknown = [key for key, _ in section.unused() if key not in without_effect]
    context.warnings.extend(unknown_key_warning(section, key, section.asked | without_effect) for key in unknown)
    return layer


def _refuse_uncomputed(section: Section, neutral: Mapping[str, object]) -> None:
    for key, value in neutral.items():
        if section.has(key) and section.text(key, "") != str(value):
            message = f"{section.name}, layer {section.index}, has {key}={section.text(key, '')}, which is not computed"
            raise UnsupportedError(str(section.error(f"{message} by this package", key)))
