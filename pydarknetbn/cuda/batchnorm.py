"""The batch-normalization layer on a CUDA device."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .._native import Array, input_array
from ..dialect import profile_named
from ..errors import DeviceError, DtypeError, ShapeError, StateError
from .arrays import DTYPES, DeviceArray, address_of_stream, borrow, pointer_of_stream
from .dlpack import Lent
from .library import Library, open_library
from .ranks import DeviceComm, Exchange

__all__ = ["BatchNorm"]

_PARAMETERS = ("scales", "biases", "rolling_mean", "rolling_variance")
_OTHERS = ("mean", "variance", "scale_updates", "bias_updates", "mean_delta", "variance_delta")


class BatchNorm:
    """Batch normalization over axis 1 of arrays that lie on a device, by the names of the layer on the CPU.

    *strict* kernels sum in the order of the fork's own kernels, 512 strided parts and then their total, in float32 and with
    correctly rounded operations alone: their bits are those of the same profile on the CPU. The fork's own GPU build contracts
    products and sums to one operation and has another `powf`, and so differs from either in the last bits. *fast* kernels take any
    profile's epsilons, sides, factors and denominators, merge moments in float32, and equal the CPU within rounding.

    Arrays of the caller's come and go without a copy. Work is put on the caller's stream and not waited for; x of a training
    forward has to stay as it is until its backward.

    Args:
        channels: C.
        profile: name of a profile, see `profiles()`.
        kernels: *strict* or *fast*.
        dtype: of x, output and delta: float32; with fast kernels also float16 or bfloat16. Parameters are float32.
        device: number of the device.
        library: None: that of the installation.

    Raises:
        ValueError: no such profile or kernels.
        DeviceError: no CUDA library, no device, or kernels that do not compute the profile.
    """

    def __init__(
        self,
        channels: int,
        *,
        profile: str,
        kernels: Literal["strict", "fast"] = "fast",
        dtype: str = "float32",
        device: int = 0,
        library: Library | None = None,
    ) -> None:
        if kernels not in ("strict", "fast"):
            raise ValueError(f"expected kernels to be strict or fast, got {kernels!r}")
        if dtype not in DTYPES:
            raise DtypeError(f"expected a dtype of {', '.join(DTYPES)}, got {dtype!r}")
        self._library = library or open_library()
        self._channels, self._profile, self._dtype, self._device = channels, profile_named(profile), dtype, device
        self.track_statistics = True
        functions, ffi = self._library.functions, self._library.ffi
        made, rule = ffi.new("batchnorm_gpu **"), self._library.rule(self._profile.rule("batchnorm"))
        choices = getattr(functions, f"STORAGE_{dtype.upper()}"), getattr(functions, f"KERNELS_{kernels.upper()}")
        self._kernels = kernels
        self._library.check(functions.make_batchnorm_layer_gpu(made, device, channels, rule, *choices), repr(self))
        self._layer = ffi.gc(made[0], functions.free_batchnorm_layer_gpu)
        self._x: Lent | None = None
        self._exchange: Exchange | None = None

    def __repr__(self) -> str:
        return f"cuda.BatchNorm({self._channels}, profile={self._profile.name!r}, kernels={self._kernels!r})"

    def sync(self, comm: DeviceComm | None, *, reduce_params: bool | None = None) -> None:
        """In training, mean and variance are those of the batches of all ranks together; the numbers stay on the devices.

        Every rank calls forward and backward in the same order, on a batch of any size or of none, (0, C, H, W). Outputs and deltas
        are those of the rank's own rows in the joined batch; moments and sums are double and merged in the order of ranks, so that
        statistics and rolling arrays have the same bits on every rank. Fewer values in all than a variance needs give NaN, and the
        rolling arrays stay: how many there are is known on the device alone, which is not waited for.

        Args:
            comm: of this rank, see `cuda.from_torch`; None: for itself again.
            reduce_params: whether a backward adds the gradients of all ranks to `scale_updates` and `bias_updates`, or those of the
                rank's own rows; None: the latter, as DistributedDataParallel sums them.

        Raises:
            DeviceError: strict kernels, which have the order of one device.
        """
        if comm is not None and self._kernels != "fast":
            raise DeviceError(f"{self!r}: statistics of several ranks are those of the fast kernels; take kernels='fast'")
        self._exchange = None
        if comm is not None and (comm.size > 1 or getattr(comm, "merges_alone", False)):
            self._exchange = Exchange(
                comm,
                lambda shape: DeviceArray(self._library, shape, device=self._device),
                self._channels,
                described=f"{self!r} of {self._dtype}",
                sums_parameters=bool(reduce_params),
            )

    def forward(self, x: object, *, train: bool, out: object = None, stream: object = None) -> Any:
        """Normalises a batch.

        Args:
            x: (N, C) or (N, C, …) on the device, of the layer's dtype, in C order.
            train: with the batch's statistics, and the rolling arrays move; else with these.
            out: array of x's shape on the device to write to; it may be x in inference. None: a new one, whose making and freeing
                may wait for the device.
            stream: of the caller; None: the default one.

        Returns:
            out, or a new `DeviceArray`.

        Raises:
            DeviceError, DtypeError, ShapeError: x is not as told.
        """
        source = self._checked(x, "x", stream=stream, may_be_empty=train and self._exchange is not None)
        result, target = self._target(out, source.shape, stream)
        if train and target.pointer == source.pointer != 0:
            raise ShapeError(f"{self!r}: a training forward cannot overwrite x, which its backward reads; give another out")
        call = self._pass(source.shape, train, stream)
        self._x = None
        if train and self._exchange is not None:
            exchange = self._exchange
            self._call("begin_forward_batchnorm_layer_gpu", call, source, exchange.moments)
            exchange.gather_moments(stream)
            self._call("end_forward_batchnorm_layer_gpu", call, exchange.size, exchange.all_moments, source, target)
        else:
            self._call("forward_batchnorm_layer_gpu", call, source, target)
        self._x = source if train else None
        return result

    def backward(self, delta: object, *, out: object = None, stream: object = None) -> Any:
        """Carries delta (minus the gradient of the loss) through the last training forward; adds to the updates.

        Args:
            delta: on the device, of the shape of its x.
            out: array to write to; it may be delta.
            stream: of the caller.

        Returns:
            The delta of x: out, or a new `DeviceArray`.

        Raises:
            StateError: no training forward before it.
        """
        if self._x is None:
            raise StateError(f"{self!r}: backward needs a training forward before it; call forward(x, train=True)")
        source = self._checked(delta, "delta", self._x.shape, stream=stream)
        result, target = self._target(out, source.shape, stream)
        call = self._pass(source.shape, True, stream)
        if self._exchange is not None:
            exchange = self._exchange
            self._call("begin_backward_batchnorm_layer_gpu", call, self._x, source, exchange.sums)
            exchange.gather_sums(stream)
            parameters = None if exchange.sums_parameters else exchange.sums
            rows = exchange.size, exchange.all_sums, parameters
            self._call("end_backward_batchnorm_layer_gpu", call, *rows, self._x, source, target)
        else:
            self._call("backward_batchnorm_layer_gpu", call, self._x, source, target)
        return result

    def update(self, *, learning_rate: float, momentum: float, batch: int, stream: object = None) -> None:
        """Moves scales and biases by their updates, as the layer on the CPU does."""
        queue = pointer_of_stream(self._library, stream)
        function = self._library.functions.update_batchnorm_layer_gpu
        self._library.check(function(self._layer, batch, learning_rate, momentum, queue), repr(self))

    def push(self, *, stream: object = None, **parameters: Array) -> None:
        """Copies parameters from the host: any of scales, biases, rolling_mean and rolling_variance, (C) float32."""
        unknown = parameters.keys() - set(_PARAMETERS)
        if unknown:
            raise TypeError(f"expected {', '.join(_PARAMETERS)}, got {', '.join(sorted(unknown))}")
        ffi = self._library.ffi
        given = {name: input_array(array, name, (self._channels,)) for name, array in parameters.items()}
        pointers = [ffi.from_buffer("float[]", given[name]) if name in given else ffi.NULL for name in _PARAMETERS]
        queue = pointer_of_stream(self._library, stream)
        self._library.check(self._library.functions.push_batchnorm_layer_gpu(self._layer, *pointers, queue), repr(self))
        self._library.check(self._library.functions.gpu_synchronize(queue), repr(self))

    def pull(self, *, stream: object = None) -> dict[str, Array]:
        """Copies of all parameters, statistics and gradients on the host, behind what the stream still has to do."""
        return {name: self._pulled(name, stream) for name in (*_PARAMETERS, *_OTHERS)}

    def _pulled(self, name: str, stream: object) -> Array:
        library, out = self._library, np.empty(self._channels, np.float32)
        array = library.functions.array_of_batchnorm_gpu(self._layer, name.encode())
        queue = pointer_of_stream(library, stream)
        library.check(library.functions.gpu_pull_array(array, library.ffi.from_buffer(out), out.nbytes, queue), repr(self))
        return out

    def _pass(self, shape: tuple[int, ...], train: bool, stream: object) -> Any:
        made = self._library.ffi.new("gpu_pass *")
        made.batch, made.spatial = shape[0], int(np.prod(shape[2:], dtype=np.int64))
        made.train, made.keep_still = train, not self.track_statistics
        made.stream = pointer_of_stream(self._library, stream)
        return made

    def _call(self, name: str, call: Any, *arguments: Lent | DeviceArray | int | None) -> None:
        """None is NULL."""
        cast = self._library.ffi.cast
        given = [each if isinstance(each, int) else cast("void *", each.pointer if each else 0) for each in arguments]
        self._library.check(getattr(self._library.functions, name)(self._layer, call, *given), repr(self))

    def _target(self, out: object, shape: tuple[int, ...], stream: object) -> tuple[Any, Lent]:
        if out is not None:
            return out, self._checked(out, "out", shape, stream=stream)
        made = DeviceArray(self._library, shape, self._dtype, self._device)
        made.stream = address_of_stream(self._library, stream)
        return made, made.lent()

    def _checked(
        self, array: object, name: str, shape: tuple[int, ...] | None = None, *, stream: object = None, may_be_empty: bool = False
    ) -> Lent:
        lent = borrow(array, name, stream=address_of_stream(self._library, stream))
        if lent.dtype != self._dtype:
            raise DtypeError(f"{self!r}: expected {name} of {self._dtype}, got {lent.dtype}")
        batches = len(lent.shape) > 1 and lent.shape[1] == self._channels and (may_be_empty or 0 not in lent.shape)
        if not (batches if shape is None else lent.shape == shape):
            wanted = shape or f"(N, {self._channels}, …)"
            raise ShapeError(f"{self!r}: expected {name} of shape {wanted}, got {lent.shape}")
        return lent
