"""The batch-normalization layer of its own, over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from .._native import Array, lib
from ..errors import StateError
from ..exchanging import Exchange, exchanging
from ..sync import Comm
from .core import PARAMETERS, WORKING, apart, made, resize, view_of
from .settings import Rolling, Settings
from .shapes import checked
from .syncing import exchange_over
from .torch_modules import module_like, read_module

__all__ = ["BatchNorm"]


class BatchNorm:
    """Batch normalization over axis 1 of (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), as the named profile computes it.

    Training: mean and variance of the batch normalise it, and the rolling arrays move by the profile's two factors. Inference: the
    rolling arrays normalise, and nothing changes. They start as the profile's program starts them: the mean at 0, the variance at
    0 in every fork and at 1 in most frameworks.

    Views onto the layer's own memory, by Darknet's names: `scales biases rolling_mean rolling_variance` (C), after a training
    forward `mean variance x x_norm`, after a backward `scale_updates bias_updates mean_delta variance_delta`. Assigning to one of
    the first four copies into it. `x_norm` is computed from `x mean variance` when it is asked for, and stays that forward's.
    `output` and `delta` are the arrays that the last forward and the last backward returned.

    Args:
        channels: C.
        profile: name of a profile, see `profiles()`.
        affine: False keeps scales at 1 and biases at 0: update changes neither.
        track_statistics: False normalises with the batch's statistics always, in inference too, and leaves the rolling arrays as
            they are. Switchable at any time.
        allow_degenerate: one value for each channel in training gives the fork's own NaN instead of an error.
        epsilon: replaces the value of each of the profile's epsilons, which stay on their sides of the root.
        rolling: two factors (keep, add) of the old value and of the new, whatever a framework's momentum means; or "cumulative",
            the mean of all batches. None: the profile's.

    Raises:
        ValueError: no such profile, channels below 1, an epsilon below 0, or factors that are no two numbers.

    Source: pjreddie/darknet src/batchnorm_layer.c, and the profile's `sources`.
    """

    scales: Array
    biases: Array
    rolling_mean: Array
    rolling_variance: Array
    output: Array
    delta: Array

    def __init__(
        self,
        channels: int,
        *,
        profile: str = "pjreddie-cpu",
        affine: bool = True,
        track_statistics: bool = True,
        allow_degenerate: bool = False,
        epsilon: float | None = None,
        rolling: Rolling | None = None,
    ) -> None:
        if not isinstance(channels, int | np.integer) or isinstance(channels, bool) or channels < 1:
            raise ValueError(f"expected channels of 1 or more, got {channels!r}")
        self._settings = Settings(
            profile=profile, affine=affine, allow_degenerate=allow_degenerate, epsilon=epsilon, rolling=rolling
        )
        self._channels = int(channels)
        self._shape: tuple[int, ...] | None = None
        self._returned: dict[str, Array] = {}  # by the names output and delta
        self._exchange: Exchange | None = None
        self._layer = made(self._channels, self._settings)
        self._layer.freeze_parameters = not affine
        self._frozen_statistics = False
        self.track_statistics = track_statistics
        self.reset()

    @classmethod
    def from_torch(cls, module: Any, *, profile: str = "torch") -> BatchNorm:
        """A layer that computes what a module of PyTorch does, with copies of its arrays; `train=False` is its evaluation mode.

        Args:
            module: BatchNorm1d, BatchNorm2d, BatchNorm3d or SyncBatchNorm, of which this is one process.
            profile: whose arithmetic. One with its epsilon outside the root keeps that, and the rolling variance changes so that
                the inference does not; every other takes the module's.

        Raises:
            MissingExtraError: PyTorch is not installed.
            TypeError: another module.
            ValueError: no such profile.

        Warns:
            DarknetWarning: what the layer does otherwise than the module; arrays of float64, which are rounded to float32.
        """
        carried = read_module(module, profile)
        bn = cls(carried.channels, **carried.settings.options(), track_statistics=carried.tracks)
        for name, array in carried.arrays.items():
            setattr(bn, name, array)
        bn._layer.num_batches_tracked = carried.batches
        bn.freeze(parameters=carried.frozen_parameters, statistics=carried.frozen_statistics)
        return bn

    def to_torch(self, *, dims: int | None = None) -> Any:
        """A module of PyTorch with copies of the arrays: in profile `torch` the same computation, else the nearest there is.

        A module has one epsilon, inside the root, and normalises over n. Where this profile has its epsilon e outside, the module's
        is e^2, and its running variance is such that the inference is the same.

        Args:
            dims: 1, 2 or 3 for BatchNorm1d, BatchNorm2d or BatchNorm3d; None: as the last x needs it, and 2 before any.

        Raises:
            MissingExtraError: PyTorch is not installed.
            ValueError: dims is another number.

        Warns:
            DarknetWarning: what the module does otherwise than this layer.
        """
        if dims is None:
            dims = max(self.output.ndim - 2, 1) if "output" in self._returned else 2
        return module_like(self._layer, self._settings, dims=dims, tracks=self._tracks, frozen_statistics=self._frozen_statistics)

    def __repr__(self) -> str:
        tracking = "" if self.track_statistics else ", track_statistics=False"
        return f"BatchNorm({self._channels}, {self._settings.described()}{tracking})"

    @property
    def profile(self) -> str:
        """Name of the profile."""
        return self._settings.profile

    @property
    def track_statistics(self) -> bool:
        """Whether there are rolling arrays in use: training moves them, unless they are frozen, and inference reads them."""
        return self._tracks

    @track_statistics.setter
    def track_statistics(self, value: bool) -> None:
        self._tracks = bool(value)
        self._layer.freeze_statistics = self._frozen_statistics or not self._tracks

    @property
    def num_batches_tracked(self) -> int:
        """How many training forwards moved the rolling arrays since they were made or reset."""
        return int(self._layer.num_batches_tracked)

    def forward(self, x: Array, *, train: bool, cache: bool | None = None, out: Array | None = None) -> Array:
        """Normalises a batch.

        Args:
            x: (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), float32, C order.
            train: normalise with the batch's statistics and move the rolling arrays; else normalise with these. Without
                `track_statistics` both normalise with the batch's, and False leaves everything as the last training forward did.
            cache: keep x for a backward; None: as train says.
            out: array of x's shape to write to.

        Returns:
            The output, in a new array or out.

        Raises:
            DtypeError, ShapeError: x is not as told.
            NumericsError: one value for each channel in training, where the profile divides by n-1.
        """
        x = checked(x, "x", self._channels, empty=self._exchange is not None)
        result = _native.output_array(out, x.shape)
        cache = train if cache is None else cache
        disturbs = self._tracks or train or cache
        layer = self._layer if disturbs else apart(self._layer, self._settings, x.shape)
        state = _native.ffi.new("network_state *")
        pointer = _native.floats(x)
        state.input, state.batch, state.train, state.cache = pointer, x.shape[0], train or not self._tracks, cache
        state.allow_degenerate = self._settings.allow_degenerate
        where = f"{self!r} on an x of shape {x.shape}"
        exchange = self._exchange if train else None
        if exchange is None:
            _native.check(lib.check_batchnorm_layer(layer, x.size // self._channels, state), where)
        if disturbs:
            resize(self._layer, x.shape)
            self._shape = x.shape
        with exchanging(state, exchange, where):
            _native.check(lib.forward_batchnorm_layer(layer, state, _native.floats(result)), where)
        self._returned["output"] = result
        return result

    def backward(self, delta: Array, *, train: bool = True, out: Array | None = None) -> Array:
        """Carries delta (minus the gradient of the loss) through the last forward; adds to `scale_updates` and `bias_updates`.

        Args:
            delta: of the shape of the last x.
            train: False gives the fork's backward outside training, see the rule's `eval_statistics`; without `track_statistics`
                there is no difference.
            out: array of delta's shape to write to.

        Returns:
            The delta of the input. The profile's rule says what its epsilons are: in the forks it is not the exact gradient.

        Raises:
            StateError: no training forward before it, an inference forward since, or one of another shape.
        """
        delta = checked(delta, "delta", self._channels, empty=self._exchange is not None)
        result = _native.output_array(out, delta.shape)
        if self._shape is None:
            raise StateError(f"{self!r}: backward needs a training forward before it; call forward(x, train=True)")
        if delta.shape != self._shape:
            raise StateError(
                f"{self!r}: the last forward was of shape {self._shape}, delta is of {delta.shape}; "
                "call forward(x, train=True) with an x of delta's shape"
            )
        state = _native.ffi.new("network_state *")
        state.batch, state.train = delta.shape[0], train or not self._tracks
        pointers, where = (_native.floats(delta), _native.floats(result)), f"{self!r} backward(train={train})"
        with exchanging(state, self._exchange if train else None, where):
            _native.check(lib.backward_batchnorm_layer(self._layer, *pointers, state), where)
        self._returned["delta"] = result
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

    def sync(self, comm: Comm | None, *, reduce_params: bool | None = None) -> None:
        """In training, mean and variance are those of the batches of all ranks together; see `Network.sync_bn`.

        Every rank calls forward and backward in the same order, on a batch of any size or of none, (0, C, H, W). Outputs and deltas
        are those of the rank's own rows in the joined batch, rolling arrays are equal on every rank. `update` divides by the batch
        that it is given: the rows of all ranks where gradients are summed.

        Args:
            comm: of this rank; None: for itself again. A snapshot has none.
            reduce_params: whether a backward adds the gradients of all ranks to `scale_updates` and `bias_updates`, or those of the
                rank's own rows; None: the latter with torch.distributed, where DistributedDataParallel sums them, else the former.
        """
        self._exchange = exchange_over(comm, repr(self), reduce_params=reduce_params)

    def freeze(self, *, parameters: bool = True, statistics: bool = True) -> None:
        """Two switches: whether update leaves scales and biases, and whether training leaves the rolling arrays, as they are.

        With parameters alone, the statistics still drift in every training forward, which surprises many.
        """
        self._layer.freeze_parameters = parameters or not self._settings.affine
        self._frozen_statistics = bool(statistics)
        self.track_statistics = self._tracks

    def reset(self, *, statistics: bool = True, parameters: bool = False) -> None:
        """Sets the rolling arrays to what they started from and their count to 0; scales to 1 and biases to 0."""
        _native.check(lib.reset_batchnorm_layer(self._layer, statistics, parameters))
        if statistics:
            self.rolling_variance[...] = self._settings.initial_variance

    def snapshot(self) -> BatchNorm:
        """A layer with copies of the parameters, rolling arrays and their count; what either does later leaves the other alone."""
        copy = BatchNorm(self._channels, **self._settings.options(), track_statistics=self._tracks)
        copy.freeze(parameters=bool(self._layer.freeze_parameters), statistics=self._frozen_statistics)
        copy._layer.num_batches_tracked = self._layer.num_batches_tracked
        for name in PARAMETERS:
            setattr(copy, name, getattr(self, name))
        return copy

    def __getattr__(self, name: str) -> Any:
        if name in PARAMETERS or name in WORKING:
            return view_of(self._layer, name, self._shape or (), described=repr(self))
        if name not in ("output", "delta"):
            raise AttributeError(f"BatchNorm has no {name}")
        if name not in self._returned:
            raise StateError(f"{self!r} has no {name} yet; it comes with the forward or backward that returns it")
        return self._returned[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in PARAMETERS:
            super().__setattr__(name, value)
            return
        _native.input_array(value, name, (self._channels,))
        getattr(self, name)[...] = value
