"""The batch-normalization layer of its own, over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from .._native import Array, lib
from ..dialect import profile_named
from ..errors import DtypeError, ShapeError, StateError

__all__ = ["BatchNorm"]

_PARAMETERS = ("scales", "biases", "rolling_mean", "rolling_variance")
_WORKING = ("x", "x_norm")
_WORKING_CHANNELS = ("mean", "variance", "scale_updates", "bias_updates", "mean_delta", "variance_delta")


class BatchNorm:
    """Batch normalization over axis 1 of (N, C) or (N, C, H, W), as the named profile computes it.

    Training: mean and variance of the batch normalise it, and the rolling arrays move by the profile's two factors. Inference: the
    rolling arrays normalise, and nothing changes. Fresh rolling arrays are 0, as in every fork.

    Views onto the layer's own memory, by Darknet's names: `scales biases rolling_mean rolling_variance` (C), after a training
    forward `mean variance x x_norm`, after a backward `scale_updates bias_updates mean_delta variance_delta`. Assigning to one of
    the first four copies into it. `x_norm` is computed from `x mean variance` when it is asked for, and stays that forward's.
    `output` and `delta` are the arrays that the last forward and the last backward returned.

    Args:
        channels: C.
        profile: name of a profile, see `profiles()`.
        affine: False keeps scales at 1 and biases at 0: update changes neither.
        track_statistics: False leaves the rolling arrays as they are, in training too. Switchable at any time.
        allow_degenerate: one value for each channel in training gives the fork's own NaN instead of an error.

    Raises:
        ValueError: no such profile, or channels below 1.

    Source: pjreddie/darknet src/batchnorm_layer.c, and the profile's `sources`.
    """

    scales: Array
    biases: Array
    rolling_mean: Array
    rolling_variance: Array

    def __init__(
        self,
        channels: int,
        *,
        profile: str = "pjreddie-cpu",
        affine: bool = True,
        track_statistics: bool = True,
        allow_degenerate: bool = False,
    ) -> None:
        if not isinstance(channels, int | np.integer) or isinstance(channels, bool) or channels < 1:
            raise ValueError(f"expected channels of 1 or more, got {channels!r}")
        self._profile = profile_named(profile)
        self._channels = int(channels)
        self._allow_degenerate = allow_degenerate
        self._shape: tuple[int, ...] | None = None
        self._output: Array | None = None
        self._delta: Array | None = None
        rule = _native.rule("batchnorm_rule", self._profile.rule("batchnorm"))
        self._layer = _native.make("batchnorm", self._channels, 1, 1, rule)
        self._frozen_parameters = not affine
        self._layer.freeze_parameters = not affine
        self.track_statistics = track_statistics

    def __repr__(self) -> str:
        return f"BatchNorm({self._channels}, profile={self.profile!r})"

    @property
    def profile(self) -> str:
        """Name of the profile."""
        return self._profile.name

    @property
    def output(self) -> Array:
        """What the last forward returned.

        Raises:
            StateError: no forward yet.
        """
        if self._output is None:
            raise self._missing("output")
        return self._output

    @property
    def delta(self) -> Array:
        """What the last backward returned.

        Raises:
            StateError: no backward yet.
        """
        if self._delta is None:
            raise self._missing("delta")
        return self._delta

    @property
    def track_statistics(self) -> bool:
        """Whether a training forward moves the rolling arrays."""
        return not self._layer.freeze_statistics

    @track_statistics.setter
    def track_statistics(self, value: bool) -> None:
        self._layer.freeze_statistics = not value

    def forward(self, x: Array, *, train: bool, cache: bool | None = None, out: Array | None = None) -> Array:
        """Normalises a batch.

        Args:
            x: (N, C) or (N, C, H, W), float32, C order.
            train: normalise with the batch's statistics and move the rolling arrays; else normalise with these.
            cache: keep x for a backward; None: as train says.
            out: array of x's shape to write to.

        Returns:
            The output, in a new array or out.

        Raises:
            DtypeError, ShapeError: x is not as told.
            NumericsError: one value for each channel in training, where the profile divides by n-1.
        """
        x = self._checked(x, "x")
        result = _native.output_array(out, x.shape)
        state = _native.ffi.new("network_state *")
        pointer = _native.floats(x)
        state.input, state.batch, state.train = pointer, x.shape[0], train
        state.cache = train if cache is None else cache
        state.allow_degenerate = self._allow_degenerate
        where = f"{self!r} on an x of shape {x.shape}"
        _native.check(lib.check_batchnorm_layer(self._layer, x.size // self._channels, state), where)
        self._resize(x.shape)
        _native.check(lib.forward_batchnorm_layer(self._layer, state, _native.floats(result)), where)
        self._output = result
        return result

    def backward(self, delta: Array, *, train: bool = True, out: Array | None = None) -> Array:
        """Carries delta (minus the gradient of the loss) through the last forward; adds to `scale_updates` and `bias_updates`.

        Args:
            delta: of the shape of the last x.
            train: False gives the fork's backward outside training, see the rule's `eval_statistics`.
            out: array of delta's shape to write to.

        Returns:
            The delta of the input. The profile's rule says what its epsilons are: in the forks it is not the exact gradient.

        Raises:
            StateError: no training forward before it, an inference forward since, or one of another shape.
        """
        delta = self._checked(delta, "delta")
        result = _native.output_array(out, delta.shape)
        if self._shape is None:
            raise StateError(f"{self!r}: backward needs a training forward before it; call forward(x, train=True)")
        if delta.shape != self._shape:
            raise StateError(
                f"{self!r}: the last forward was of shape {self._shape}, delta is of {delta.shape}; "
                "call forward(x, train=True) with an x of delta's shape"
            )
        state = _native.ffi.new("network_state *")
        state.batch, state.train = delta.shape[0], train
        status = lib.backward_batchnorm_layer(self._layer, _native.floats(delta), _native.floats(result), state)
        _native.check(status, f"{self!r} backward(train={train})")
        self._delta = result
        return result

    def update(self, *, learning_rate: float, momentum: float, decay: float, batch: int) -> None:
        """Moves scales and biases by their updates, which are then multiplied by momentum.

        The rule is the one that a convolution applies to its batchnorm: `p += learning_rate/batch * updates`. Decay acts on
        weights alone, in every fork, and so on nothing here.

        Raises:
            StateError: no backward before it.
        """
        if batch < 1:
            raise ValueError(f"expected a batch of 1 or more, got {batch}")
        status = lib.update_batchnorm_layer(self._layer, batch, learning_rate, momentum, decay)
        _native.check(status, repr(self))

    def freeze(self, *, parameters: bool = True, statistics: bool = True) -> None:
        """Two switches: whether update leaves scales and biases, and whether training leaves the rolling arrays, as they are.

        With parameters alone, the statistics still drift in every training forward, which surprises many.
        """
        self._layer.freeze_parameters = parameters or self._frozen_parameters
        self.track_statistics = not statistics

    def reset(self, *, statistics: bool = True, parameters: bool = False) -> None:
        """Sets the rolling arrays to 0, and scales to 1 and biases to 0."""
        _native.check(lib.reset_batchnorm_layer(self._layer, statistics, parameters))

    def snapshot(self) -> BatchNorm:
        """A layer with copies of the parameters and rolling arrays; what either does later leaves the other alone."""
        copy = BatchNorm(
            self._channels,
            profile=self.profile,
            affine=not self._frozen_parameters,
            track_statistics=self.track_statistics,
            allow_degenerate=self._allow_degenerate,
        )
        copy._layer.freeze_parameters = self._layer.freeze_parameters
        for name in _PARAMETERS:
            setattr(copy, name, getattr(self, name))
        return copy

    def __getattr__(self, name: str) -> Any:
        if name in _PARAMETERS or name in _WORKING_CHANNELS:
            shape: tuple[int, ...] = (self._channels,)
        elif name in _WORKING:
            shape = (getattr(self._layer, f"{name}_batch"), *(self._shape or ())[1:])
        else:
            raise AttributeError(f"BatchNorm has no {name}")
        if name == "x_norm" and shape[0]:
            _native.check(lib.make_x_norm(self._layer), repr(self))
        pointer = getattr(self._layer, name)
        if pointer == _native.ffi.NULL or shape[0] == 0:
            raise self._missing(name)
        return _native.view(pointer, shape)

    def _missing(self, name: str) -> StateError:
        return StateError(f"{self!r} has no {name} yet; it comes with the forward or backward that makes it")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PARAMETERS:
            super().__setattr__(name, value)
            return
        _native.input_array(value, name, (self._channels,))
        getattr(self, name)[...] = value

    def _checked(self, array: object, name: str) -> Array:
        if not isinstance(array, np.ndarray):
            raise DtypeError(f"expected {name} to be a NumPy array of float32, got {type(array).__name__}")
        if array.dtype.name in ("float16", "bfloat16"):
            instead = f"bn.forward_half and bn.backward_half take it, and {name}.astype(numpy.float32) fits here"
            raise DtypeError(f"expected {name} of float32, got {array.dtype}; {instead}")
        if array.ndim not in (2, 4):
            wanted = f"(N, {self._channels}) or (N, {self._channels}, H, W)"
            raise ShapeError(f"expected {name} of shape {wanted}, got {array.shape}")
        return _native.input_array(array, name, ("N", self._channels, "H", "W")[: array.ndim])

    def _resize(self, shape: tuple[int, ...]) -> None:
        h, w = shape[2:] if len(shape) == 4 else (1, 1)
        if (self._layer.h, self._layer.w) != (h, w):
            _native.check(lib.resize_batchnorm_layer(self._layer, h, w))
        self._shape = shape
