"""Single layers on the emulated device (see `emulating.py`), beside the same layers of the core, and which ones tests take."""

from __future__ import annotations

from typing import Any

import numpy as np

import pydarknetbn as dn
from core import assert_same_bits
from nets import cfg_of
from pydarknetbn import _native
from pydarknetbn._native import Array
from pydarknetbn.cuda import DeviceArray
from pydarknetbn.cuda.library import Library

GUARD = 7  # floats behind an array on the device, which no kernel may touch
UNTOUCHED = np.float32(1234.5)

# Filters below, at and beyond tiles of 32, depths that fill no share of 32, pixels of several images in one tile
CONVOLUTIONS = {
    "one pixel": ("filters=1 size=1", (1, 1, 1), 1),
    "three by three": ("filters=33 size=3 pad=1", (9, 7, 5), 2),
    "a tile": ("filters=32 size=2", (5, 9, 8), 1),
    "one filter more than is narrow": ("filters=8 size=3 pad=1 stride=2", (11, 13, 3), 3),
    "narrow": ("filters=7 size=3 pad=1 stride=2", (11, 13, 3), 3),
    "strides of x and y": ("filters=10 size=3 padding=2 stride_x=3 stride_y=2", (13, 8, 3), 2),
    "groups": ("filters=24 size=3 pad=1 groups=3", (6, 5, 6), 2),
    "narrow groups": ("filters=12 size=3 pad=1 groups=4", (6, 5, 8), 2),
    "each channel by itself": ("filters=9 size=5 pad=1 groups=9 stride=2", (7, 6, 9), 3),
    "dilation": ("filters=9 size=3 pad=1 dilation=3", (9, 10, 2), 2),
    "dilation and groups": ("filters=16 size=3 pad=1 dilation=2 groups=2", (9, 10, 4), 2),
    "one pixel with a stride, read directly": ("filters=12 size=1 stride=2", (8, 6, 5), 2),
    "groups of one pixel with a stride, read directly": ("filters=16 size=1 stride=2 groups=2", (8, 6, 6), 2),
    "one pixel with a padding": ("filters=12 size=1 stride=1 padding=1", (4, 4, 3), 2),
    "a kernel larger than the image": ("filters=8 size=7 pad=1", (3, 2, 2), 2),
    "no padding": ("filters=40 size=3", (5, 6, 4), 1),
    "deep": ("filters=16 size=3 pad=1", (4, 3, 40), 1),
    "blur over 3 x 3": ("filters=10 size=3 pad=1 stride=2 antialiasing=1", (9, 7, 3), 2),
    "blur over 2 x 2": ("filters=10 size=3 pad=1 stride=2 antialiasing=2", (9, 8, 3), 2),
    "batchnorm": ("filters=12 size=3 pad=1 batch_normalize=1 activation=leaky", (5, 7, 3), 2),
    "batchnorm and blur": ("filters=12 size=3 pad=1 batch_normalize=1 antialiasing=1 stride=2 activation=mish", (6, 7, 3), 2),
}

CONNECTED = {
    "one": ("output=1", (1, 1, 1), 1),
    "narrow": ("output=5 activation=leaky", (2, 3, 4), 3),
    "wide": ("output=40 activation=relu", (3, 3, 5), 2),
    "a batch beyond a tile": ("output=33 activation=logistic", (1, 1, 37), 35),
    "batchnorm": ("output=9 activation=leaky batch_normalize=1", (2, 2, 3), 4),
}


class OnDevice:
    """One layer, its parameters copied to the device.

    Args:
        library: that computes.
        section: of a cfg, of one layer.
        size: h, w, c of the input.
    """

    def __init__(
        self, library: Library, section: str, size: tuple[int, int, int], profile: str = "pjreddie-cpu", seed: int = 0
    ) -> None:
        h, w, c = size
        self.library = library
        dialect = "pjreddie" if section.startswith("deconvolutional") else "alexeyab"  # which knows the section
        self.net = dn.load(cfg_of(section, h=h, w=w, c=c), dialect=dialect, profile=profile, seed=seed)
        self.layer, self.shape = self.net.layers[0], (c, h, w)
        generator = np.random.default_rng(seed)
        native, owner = self.layer.native, self.layer.native.batchnorm or self.layer.native
        for name in ("biases", "scales", "rolling_mean", "rolling_variance"):
            if getattr(owner, name):
                values = _native.view(getattr(owner, name), (_native.lib.array_size(getattr(owner, name)),))
                values[...] = generator.normal(1, 0.3, values.shape)
        self.weights = _native.view(native.weights, (native.nweights,))

    def input(self, batch: int, seed: int = 1) -> Array:
        return np.random.default_rng(seed).normal(0, 1, (batch, *self.shape)).astype(np.float32)

    def on_cpu(self, x: Array) -> Array:
        return self.net.forward(x)[0]

    def arrays(self, x: Array, **options: Any) -> tuple[Any, list[Any]]:
        """The struct of a call, and what keeps its arrays."""
        ffi, native = self.library.ffi, self.layer.native
        owner = native.batchnorm or native
        arrays = ffi.new("gpu_arrays *")
        arrays.batch, kept = x.shape[0], []
        given = {"input": x, "output": np.full(x.shape[0] * native.outputs + GUARD, UNTOUCHED), "weights": self.weights}
        for name in ("biases", "scales", "rolling_mean", "rolling_variance"):
            if getattr(owner, name):
                given[name] = _native.view(getattr(owner, name), (_native.lib.array_size(getattr(owner, name)),))
        for name, array in given.items():
            kept.append(DeviceArray.from_numpy(self.library, array))
            setattr(arrays, name, ffi.cast("float *", kept[-1].pointer))
        for name, value in options.items():
            setattr(arrays, name, value)
        return arrays, kept

    @property
    def native(self) -> Any:
        return self.library.ffi.cast("layer *", int(_native.ffi.cast("uintptr_t", self.layer.native)))

    def scratch(self, arrays: Any) -> int:
        floats = self.library.ffi.new("size_t *")
        function = self.library.functions.scratch_of_convolutional_layer_gpu
        self.library.check(function(self.native, arrays, floats), "scratch")
        return int(floats[0])

    def on_device(self, x: Array, **options: Any) -> Array:
        arrays, kept = self.arrays(x, **options)
        scratch = None
        if self.layer.type == "convolutional":
            floats = self.scratch(arrays)
            scratch = DeviceArray.from_numpy(self.library, np.full(floats + GUARD, UNTOUCHED))
            arrays.scratch = self.library.ffi.cast("float *", scratch.pointer) if floats else self.library.ffi.NULL
        function = getattr(self.library.functions, f"forward_{self.layer.type}_layer_gpu")
        self.library.check(function(self.native, arrays), self.layer.type)
        got = kept[1].numpy()
        assert (got[-GUARD:] == UNTOUCHED).all()
        assert scratch is None or (scratch.numpy()[-GUARD:] == UNTOUCHED).all()
        return got[:-GUARD].reshape(x.shape[0], *self.layer.out_shape)

    def check(self, x: Array, **options: Any) -> None:
        assert_same_bits(self.on_device(x, **options), self.on_cpu(x), self.layer.type)
