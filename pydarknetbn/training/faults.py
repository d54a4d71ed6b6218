"""What a profile's program trains wrongly for a network: layers that never move, gradients that are lost or come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .. import _native
from .._native import ffi
from ..dialect import Profile
from ..layers import Layer
from .settings import TrainSettings

__all__ = ["training_faults"]

_COPYING = frozenset("activation batchnorm normalization reorg reorg3d".split())  # they copy a delta where others add

_SIMPLIFIED = frozenset("l2norm local_avgpool normalization".split())
_BY_SIGN = frozenset(_native.enum("activation", name) for name in ("linear", "leaky", "relu", "relie"))
_SMOOTH = _native.enum("cost", "smooth")

# types of layers, a field of the rule of backward through time, its right value, and what another one means
_RECURRENT = (
    ("rnn crnn gru lstm conv_lstm", "step_statistics", "own", "every time step takes the batchnorms and activations of the last"),
    (
        "rnn crnn",
        "rnn_reading",
        "state",
        "the output layer is taken to have read both layers' sum, without a shortcut's state",
    ),
    ("rnn crnn", "rnn_passing", "state", "the input layer gets what the self layer made of the state's delta"),
    ("gru", "gru_backward", True, "the delta ends there, and nothing in it learns"),
    ("lstm conv_lstm", "lstm_before", "state", "the first step is taken to have begun with its own results"),
    ("lstm conv_lstm", "lstm_after", "last step", "the next batch begins with the first step's state and cell"),
    ("lstm conv_lstm", "lstm_keeps_cell_delta", False, "the cell's delta goes on into the next batch"),
    ("conv_lstm", "conv_lstm_passes_state", True, "the convolutions of state and cell give no delta back"),
    ("history", "history_passes_all", True, "the newest input alone gets a delta"),
    ("crnn conv_lstm", "inner_convolutions_learn", True, "the learning rate of the convolutions inside is 0"),
)


def training_faults(layers: Sequence[Layer], profile: Profile, settings: TrainSettings) -> tuple[str, ...]:
    """Sentences, each on one fault and the layers that it strikes; () where the network trains as its formulas say.

    Args:
        layers: of a network.
        profile: whose program it is.
        settings: of the training.
    """
    found = (
        _untrained(layers, profile),
        _without_beta(layers, profile),
        _accumulating(layers, profile),
        _lost_branches(layers, profile),
        _other_pixels(layers, profile),
        _other_epsilon(layers, profile),
        _simplified(layers, profile),
        _turned(layers, profile),
        _through_time(layers, profile),
        _unscaled(layers, profile),
        _without_adam(profile, settings),
    )
    return tuple(f"{profile.name}: {sentence}" for sentences in found for sentence in sentences)


def _named(layers: Iterable[Layer]) -> str:
    """Such as "layers 2 and 4 [connected], 7 [local]"."""
    by_type: dict[str, list[str]] = {}
    for layer in layers:
        by_type.setdefault(layer.type, []).append(str(layer.index))
    parts = [f"{_listed(numbers)} [{kind}]" for kind, numbers in by_type.items()]
    plural = "s" if sum(map(len, by_type.values())) > 1 else ""
    return f"layer{plural} {', '.join(parts)}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _untrained(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    alone = [layer for layer in layers if layer.type == "batchnorm" and not profile.rule("batchnorm").trains_standalone]
    others = [layer for layer in layers if layer.params and not profile.training.trains(layer.type)]
    if still := sorted({*alone, *others}, key=lambda layer: layer.index):
        yield (
            f"{_named(still)} are never updated: their parameters stay as they start"
            if len(still) > 1
            else (f"{_named(still)} is never updated: its parameters stay as they start")
        )


def _without_beta(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    hosts = {host for host, rule in profile.batchnorm.items() if not rule.bias_gradient}
    still = [layer for layer in layers if profile.training.trains(layer.type) and hosts & _hosts(layer)]
    if still:
        yield f"β (biases) of the batchnorm of {_named(still)} gets no gradient and never moves"


def _hosts(layer: Layer) -> set[str]:
    """What batchnorms the layer has: of its own, behind a convolution or a connected layer, which may stand in it."""
    parts = [layer, *layer.inner.values()]
    behind = {part.type for part in parts if part.native is not None and part.native.batchnorm != ffi.NULL}
    return behind | ({"batchnorm"} if layer.type == "batchnorm" else set())


def _accumulating(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    kept = [
        layer
        for layer in layers[:-1]
        if not profile.training.trains(layer.type) and layer.native is not None and not layer.native.has_cost
    ]
    if kept:
        yield f"the delta of {_named(kept)} is never cleared: what earlier minibatches left is added to each gradient"


def _lost_branches(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    overwritten = [(layer, _overwritten(layer, profile)) for layer in layers[1:]]
    lost = [layer for layer, number in overwritten if number is not None and _is_read_behind(layers, number, layer)]
    if lost:
        overwrite = (
            "overwrites the delta of a layer that it reads" if len(lost) == 1 else "overwrite deltas of layers that they read"
        )
        yield f"{_named(lost)} {overwrite}, and what came back there from a later route or shortcut is lost"


def _overwritten(layer: Layer, profile: Profile) -> int | None:
    """Number of the layer whose delta this one's backward overwrites instead of adding to it."""
    rule = profile.layers
    if layer.type == "convolutional":
        assert layer.native is not None
        overwrites = rule.input_delta == "overwritten" or (rule.input_delta == "overwritten by 1x1" and layer.native.size == 1)
        return layer.index - 1 if overwrites else None
    if layer.type == "sam":
        return layer.sources[0] if rule.copied_delta == "overwritten" else None
    copies = layer.type in _COPYING or (layer.type == "upsample" and layer.native is not None and layer.native.reverse)
    return layer.index - 1 if copies and rule.copied_delta == "overwritten" else None


def _is_read_behind(layers: Sequence[Layer], number: int, behind: Layer) -> bool:
    """Whether a layer behind that one, whose backward came earlier, reads the layer of that number too."""
    read = layers[number].maker
    return any(layers[source].maker is read for later in layers[behind.index + 1 :] for source in later.sources)


def _other_pixels(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    if profile.layers.direct_1x1 != "any stride":
        return
    strided = [
        layer
        for layer in layers
        if layer.type == "convolutional" and layer.native is not None and layer.native.size == 1 and layer.native.stride_x > 1
    ]
    if strided:
        yield f"{_named(strided)}, of size 1 with a stride, reads other pixels than the stride says, and trains with those"


def _other_epsilon(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    for host, rule in profile.batchnorm.items():
        normalized = [layer for layer in layers if host in _hosts(layer)]
        if normalized and rule.forward != rule.direct_term:
            exact = f"forward divides by {rule.forward}, backward by {rule.direct_term}"
            yield f"the backward of the batchnorm of {_named(normalized)} is not the derivative of its forward: {exact}"


def _simplified(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    if profile.layers.gradient != "simplified":
        return
    if found := [layer for layer in layers if _is_simplified(layer)]:
        yield f"the backward of {_named(found)} is not the derivative of the forward"


def _is_simplified(layer: Layer) -> bool:
    if layer.type == "dropout":  # the layer before takes its derivative from what is left of its output
        maker = layer.maker
        return maker is not None and maker.native is not None and maker.native.activation not in _BY_SIGN
    native = layer.native
    if native is None:
        return False
    weighted = layer.type == "shortcut" and native.weights_normalization != _native.enum("normalization", "none")
    return layer.type in _SIMPLIFIED or weighted or bool(native.blur != ffi.NULL)


def _turned(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    smooth = [each for each in layers if each.type == "cost" and each.trainer is not None and each.trainer.cost_kind == _SMOOTH]
    if smooth and profile.layers.losses.smooth_sign == "away":
        yield f"the delta of {_named(smooth)}, type=smooth, points away from the truth where it is more than 1 off"


def _through_time(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    for types, name, right, sentence in _RECURRENT:
        wrong = [layer for layer in layers if layer.type in types.split()]
        if wrong and getattr(profile.layers.recurrent, name) != right:
            yield f"backward through {_named(wrong)}: {sentence}"


def _unscaled(layers: Sequence[Layer], profile: Profile) -> Iterator[str]:
    scaled = profile.training.scaled
    deaf = [layer for layer in layers if layer.train.learning_rate != 1 and scaled is not None and layer.type not in scaled]
    if deaf:
        yield f"learning_rate= of {_named(deaf)} has no effect"


def _without_adam(profile: Profile, settings: TrainSettings) -> Iterator[str]:
    if settings.adam and not profile.training.adam:
        yield "adam=1 has no effect: the program trains with momentum on the CPU, and has Adam on a GPU only"
