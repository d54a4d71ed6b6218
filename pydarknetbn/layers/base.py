"""What every layer is: sizes, a layer of the core, and arrays by Darknet's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from .._native import Array, CData
from ..dialect import ACTIVATIONS, Dialect, Profile
from ..errors import CfgError, DarknetError, StateError, UnsupportedError
from ..options import Section, close_match
from .records import ORDINARY_TRAINING, WHOLE_FILE, FileOptions, Head, Initial, Shape, TrainOptions, Truth

__all__ = [
    "BATCHNORM_ARRAYS",
    "Context",
    "FileOptions",
    "Head",
    "Initial",
    "Layer",
    "Shape",
    "TrainOptions",
    "Truth",
    "activation_of",
    "layer_rule",
    "made",
]

BATCHNORM_ARRAYS = ("biases", "scales", "rolling_mean", "rolling_variance")
_OF_OUTPUT = ("output", "delta", "x", "x_norm")
_OF_CHANNELS = ("mean", "variance", "scale_updates", "mean_delta", "variance_delta")
_OF_PARAMETERS = {"weight_updates": "weights", "bias_updates": "biases"}


@dataclass(frozen=True, slots=True)
class Context:
    """What a section is built in: the layers before it, who computes, and where warnings are collected."""

    in_shape: Shape
    layers: Sequence[Layer]
    dialect: Dialect
    profile: Profile
    warnings: list[str]

    def source(self, section: Section, key: str, position: int) -> Layer:
        """The layer before `section` that a number in from= or layers= names: absolute, or counted back where negative."""
        index = position if position >= 0 else section.index + position
        if 0 <= index < section.index:
            return self.layers[index]
        last = f"the layers before it are 0 to {section.index - 1}" if section.index else "there is no layer before it"
        raise section.error(f"{section.name}, layer {section.index}, has {key}={position}, but {last}", key)

    def image_source(self, section: Section, key: str, position: int) -> Layer:
        """The same, of a layer that gives an image."""
        layer = self.source(section, key, position)
        if layer.flat:
            raise _flat_error(section, layer, key)
        return layer

    @property
    def flat(self) -> str:
        """Why the layer before gives a vector without width and height; "" where it gives an image."""
        return self.layers[-1].flat if self.layers else ""

    def need_image(self, section: Section) -> None:
        """Raises a CfgError where the layer before gives a vector."""
        if self.flat:
            raise _flat_error(section, self.layers[-1])


@dataclass(eq=False, slots=True)
class Layer:
    """One layer of a network.

    Each of its arrays is a view by Darknet's name: `layer.weights`, `layer.rolling_mean`, after a forward `layer.output`.

    Args:
        type: canonical name of its section.
        index: 0-based number.
        line: line of its section.
        in_shape, out_shape: (c, h, w) of one image.
        native: the core's layer; None where the output of the layer before is passed on.
        sources: numbers of the layers that it reads beside or instead of the one before.
        shapes: parameters and their shapes, in file order.
        stored: the parameters have a place in the file; False where they are another layer's.
        operations: multiplications and additions of one image, as Darknet counts them.
        kernel: size and stride for the layer table.
        detail: what else the layer table shows.
        head: of a layer that makes detections.
        flat: why the output is a vector, of which only the number of values counts; "" for an image.
        file: what of the parameters a file holds.
        initial: the weights' values before any training; None: the type's.
        origin: for a layer without native, the layer whose output it passes on; None: the network's input.
        inner: of a recurrent layer, the layers that it is made of, in file order; `inner["wf"].weights`.
        states: what it keeps from one forward to the next, and its shape for one sequence.
        train: what its section says about training.
        trainer: for [dropout] and [cost], which pass their input on, what runs instead in training.
        mask: of a [dropout]: (batch, c, h, w), not 0 where training forwards keep a value; it counts until it is set to None,
            when each forward draws its own again.
        truth: what its loss compares with; None: it has none that is computed.
    """

    type: str
    index: int
    line: int
    in_shape: Shape
    out_shape: Shape
    native: CData | None
    sources: tuple[int, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stored: bool = True
    operations: float = 0.0
    kernel: str = ""
    detail: str = ""
    head: Head | None = None
    flat: str = ""
    file: FileOptions = WHOLE_FILE
    initial: Initial | None = None
    origin: Layer | None = None
    inner: Mapping[str, Layer] = field(default_factory=dict)
    states: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    train: TrainOptions = ORDINARY_TRAINING
    trainer: CData | None = None
    mask: Array | None = None
    truth: Truth | None = None

    def __repr__(self) -> str:
        return f"Layer({self.index}, {self.type}, {self.in_shape} -> {self.out_shape})"

    @property
    def params(self) -> dict[str, Array]:
        """The parameters as writable views, in file order; those of inner layers as "wf.weights"."""
        own = {name: self._parameter(name) for name in self.shapes}
        return own | {f"{inside}.{name}": array for inside, layer in self.inner.items() for name, array in layer.params.items()}

    def is_matrix(self, name: str) -> bool:
        """Whether a parameter is the weights of a connected layer, which may stand inside a recurrent one."""
        inside, _, array = name.rpartition(".")
        return array == "weights" and (self.inner[inside] if inside else self).type == "connected"

    @property
    def weights_at(self) -> int:
        """Where the core has the weights: the same number for layers that share them, 0 for a layer that has none there."""
        return int(_native.ffi.cast("uintptr_t", self.native.weights)) if self.native is not None else 0

    @property
    def maker(self) -> Layer | None:
        """The layer whose array the output is; None: it is the network's input."""
        layer: Layer | None = self
        while layer is not None and layer.native is None:
            layer = layer.origin
        return layer

    @property
    def passes_input(self) -> bool:
        """Whether the output is the network's input."""
        return self.maker is None

    def __getattr__(self, name: str) -> Any:
        if name in self.shapes:
            return self._parameter(name)
        if name in _OF_OUTPUT or name in _OF_CHANNELS:
            return self._working(name)
        if name in _OF_PARAMETERS:
            return self._gradient(name)
        raise AttributeError(f"layer {self.index} [{self.type}] has no {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("weights", *BATCHNORM_ARRAYS):
            target = getattr(self, name)
            target[...] = _native.input_array(value, name, target.shape)
        else:
            object.__setattr__(self, name, value)

    def owner(self, name: str) -> CData:
        """The core's struct that holds an array: a batchnorm behind this layer has its own."""
        if self.native is None:
            raise StateError(f"layer {self.index} [{self.type}] has no arrays of its own")
        inner = self.native.batchnorm
        within = inner != _native.ffi.NULL and name not in ("weights", "weight_updates", "output", "delta", "anchors")
        return inner if within else self.native

    def _parameter(self, name: str) -> Array:
        return _native.view(getattr(self.owner(name), name), self.shapes[name])

    def _working(self, name: str) -> Array:
        if name == "output":
            return self._output()
        owner, of_channels = self.owner(name), name in _OF_CHANNELS
        batch = 0 if of_channels else getattr(owner, f"{name}_batch")
        if name == "x_norm" and batch:
            _native.check(_native.lib.make_x_norm(owner), f"layer {self.index} [{self.type}]")
        pointer = getattr(owner, name)
        if pointer == _native.ffi.NULL or not (of_channels or batch):
            raise self._missing(name)
        return _native.view(pointer, (self.out_shape.c,) if of_channels else (batch, *self.out_shape))

    def _gradient(self, name: str) -> Array:
        pointer = getattr(self.owner(name), name)
        if pointer == _native.ffi.NULL:
            raise self._missing(name)
        return _native.view(pointer, self.shapes.get(_OF_PARAMETERS[name], (self.out_shape.c,)))

    def _output(self) -> Array:
        native = self.maker.native if self.maker else None
        if native is None or not native.batch:
            raise self._missing("output")
        if native.output == _native.ffi.NULL:
            keep = "forward(x, keep='all') keeps every layer's output"
            raise StateError(f"the output of layer {self.index} [{self.type}] was not kept: {keep}")
        return _native.view(native.output, (native.batch, *self.out_shape))

    def _missing(self, name: str) -> StateError:
        return StateError(f"layer {self.index} [{self.type}] has no {name} yet; it comes with the forward that makes it")


def made(section: Section, name: str, *arguments: Any) -> CData:
    """The core's layer for a section; what the core refuses becomes a CfgError with the section's line."""
    try:
        return _native.make(name, *arguments)
    except DarknetError as error:
        message = f"{section.name}, layer {section.index}: {error}"
        if isinstance(error, UnsupportedError):
            raise UnsupportedError(str(section.error(f"{message}; not computed by this package"))) from None
        raise section.error(message) from None
    except MemoryError as error:
        raise MemoryError(f"{section.file}:{section.line}: {section.name}, layer {section.index}: {error}") from None


def layer_rule(context: Context) -> CData:
    """The profile's `layer_rule` for the core."""
    return _native.rule("layer_rule", context.profile.layers)


def _flat_error(section: Section, layer: Layer, key: str | None = None) -> CfgError:
    message = f"{section.name}, layer {section.index}, needs an image, but layer {layer.index} [{layer.type}] (line {layer.line})"
    return section.error(f"{message} gives a vector of {layer.out_shape.floats} values, since it {layer.flat}", key)


def activation_of(section: Section, context: Context, default: str) -> int:
    """The core's constant for activation=.

    Raises:
        CfgError: no fork knows it, or not this dialect's: there it would run as another activation.
    """
    name = section.text("activation", default)
    known = context.dialect.activations
    if name not in known:
        near = close_match(name, known | ACTIVATIONS)
        elsewhere = f", which dialect {context.dialect.name} does not know" if name in ACTIVATIONS else ""
        hint = f"; did you mean {near}?" if near and not elsewhere else f"; it knows {', '.join(sorted(known))}"
        message = f"{section.name}, layer {section.index}, has activation={name}{elsewhere}{hint}"
        raise section.error(message, "activation")
    return _native.enum("activation", name)
