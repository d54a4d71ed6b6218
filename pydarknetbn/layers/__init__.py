"""Layers: one file a type, from a section's options to a layer of the core and its arrays in file order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from ..errors import UnsupportedError
from ..options import Section, unknown_key_warning
from . import (
    avgpool,
    batchnorm,
    connected,
    contrastive,
    convolutional,
    detection,
    gaussian_yolo,
    gru,
    history,
    iseg,
    lstm,
    maxpool,
    passthrough,
    region,
    reorg,
    rnn,
    route,
    shortcut,
    softmax,
    upsample,
    yolo,
)
from .base import Context, Head, Layer, Shape

__all__ = ["BUILDERS", "Context", "Head", "Layer", "Shape", "build"]

BUILDERS: Mapping[str, ModuleType] = MappingProxyType(
    {
        "Gaussian_yolo": gaussian_yolo,
        "avgpool": avgpool,
        "batchnorm": batchnorm,
        "connected": connected,
        "contrastive": contrastive,
        "conv_lstm": lstm,
        "convolutional": convolutional,
        "cost": passthrough,
        "crnn": rnn,
        "detection": detection,
        "dropout": passthrough,
        "gru": gru,
        "history": history,
        "iseg": iseg,
        "lstm": lstm,
        "maxpool": maxpool,
        "region": region,
        "reorg": reorg,
        "reorg3d": reorg,
        "rnn": rnn,
        "route": route,
        "shortcut": shortcut,
        "softmax": softmax,
        "upsample": upsample,
        "yolo": yolo,
    }
)

# Options of every section that matter to training alone, and those that matter to the file.
_TRAINING = frozenset("burnin_update clip dont_update learning_rate onlyforward smooth stopbackward train_only_bn truth".split())
_FILE = ("dontload", "dontloadscales", "dontsave", "numload")


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
    _refuse_uncomputed(section, getattr(module, "NEUTRAL", {}) | dict.fromkeys(_FILE, 0))
    layer: Layer = module.build(section, context)
    without_effect = getattr(module, "WITHOUT_EFFECT", frozenset()) | _TRAINING
    unknown = [key for key, _ in section.unused() if key not in without_effect]
    context.warnings.extend(unknown_key_warning(section, key, section.asked | without_effect) for key in unknown)
    return layer


def _refuse_uncomputed(section: Section, neutral: Mapping[str, object]) -> None:
    for key, value in neutral.items():
        if section.has(key) and section.text(key, "") != str(value):
            message = f"{section.name}, layer {section.index}, has {key}={section.text(key, '')}, which is not computed"
            raise UnsupportedError(str(section.error(f"{message} by this package", key)))
