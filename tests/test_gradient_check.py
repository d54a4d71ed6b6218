"""Backward of each layer against the derivative of its forward.

Three things are compared: differences of the forward's definition in float64 (`definitions.py`), the derivative that follows from
the definition (`tape.py`), and what the core gives in float32 under the profile whose backward is the derivative. A layer type is
one definition, and a line in CASES for each way to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pytest

import pydarknetbn as dn
from definitions import CURVES, PRODUCTS, Section
from definitions_planes import PLANES, kept
from definitions_recurrent import RECURRENT
from nets import cfg_of
from oracle import Doubles
from pydarknetbn._native import Array
from pydarknetbn.dialect import PROFILES
from tape import Value, gradients

DIFFERENCES = 1e-7  # of the largest element: what a difference over STEP leaves of third derivatives and of float64's last bits
SINGLE = 2e-5  # of the largest element: float sums of some hundred terms, which cancel
STEP = 1e-5
MARGIN = 1e-3  # a difference across a bend is no derivative
LAYERS = PRODUCTS | PLANES | RECURRENT
UPDATES = {"weights": "weight_updates", "biases": "bias_updates", "scales": "scale_updates"}


class Case(NamedTuple):
    """A network: its layers, what goes in, and which dialect knows it."""

    sections: tuple[str, ...]
    batch: int = 2
    c: int = 2
    h: int = 5
    w: int = 4
    dialect: str = "alexeyab"
    net: str = ""

    def load(self, profile: str) -> dn.Network:
        text = cfg_of(*self.sections, w=self.w, h=self.h, c=self.c, net=self.net)
        return dn.load(text, dialect=self.dialect, profile=profile)


def of(*sections: str, **options: object) -> Case:
    return Case(sections, **options)  # type: ignore[arg-type]


def recurrent(*sections: str, **options: object) -> Case:
    """Three time steps of three sequences."""
    size = {"c": 2, "h": 1, "w": 1} | options
    return of(*sections, batch=9, net="time_steps=3", **size)


EVERY = sorted(CURVES)
CHANNELS = ("normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval")
PAD = "convolutional filters=3 size=3 pad=1"
FIRST = "convolutional filters=4 size=1 activation=linear"  # gives the layer behind it a delta to go on with
SAME = "convolutional filters=4 size=3 pad=1 share_index=-1"
CASES = {
    **{f"convolutional {a}": of(f"{PAD} activation={a}") for a in (*EVERY, *CHANNELS)},
    **{f"convolutional {a} behind batchnorm": of(f"{PAD} batch_normalize=1 activation={a}") for a in (*EVERY, *CHANNELS)},
    "convolutional in groups": of("convolutional filters=6 size=3 pad=1 groups=2 activation=linear", c=4),
    "convolutional of one channel each": of("convolutional filters=3 size=3 pad=1 groups=3 activation=linear", c=3),
    "convolutional with strides": of("convolutional filters=3 size=3 stride=2 pad=1 activation=linear", h=7, w=6),
    "convolutional with two strides": of("convolutional filters=3 size=3 stride_x=3 stride_y=2 pad=1 activation=linear", h=7, w=6),
    "convolutional dilated": of("convolutional filters=3 size=3 dilation=2 pad=1 activation=linear", h=7, w=6),
    "convolutional without padding": of("convolutional filters=3 size=2 activation=linear"),
    "convolutional in a wide border": of("convolutional filters=3 size=3 padding=3 activation=linear"),
    "convolutional of one pixel": of("convolutional filters=3 size=1 activation=linear"),
    "convolutional of one pixel with strides": of("convolutional filters=3 size=1 stride=2 activation=linear"),
    "convolutional of one pixel with a stride of rows": of("convolutional filters=3 size=1 stride_y=2 activation=linear"),
    "convolutional blurred": of(f"{PAD} stride=2 antialiasing=1 activation=tanh", h=6),
    "convolutional blurred by four": of(f"{PAD} stride=2 antialiasing=2 batch_normalize=1 activation=tanh", h=6),
    "convolutional of all": of(
        "convolutional filters=4 size=3 stride=2 pad=1 groups=2 batch_normalize=1 activation=swish", c=4, h=6, w=7, batch=3
    ),
    **{f"connected {a}": of(f"connected output=6 activation={a}") for a in EVERY},
    "connected behind batchnorm": of("connected output=4 batch_normalize=1 activation=tanh", batch=5),
    "batchnorm": of("batchnorm", batch=3),
    "batchnorm between": of(f"{PAD} activation=tanh", "batchnorm", f"{PAD} activation=tanh"),
    **{f"activation {a}": of(f"activation activation={a}") for a in (*EVERY, *CHANNELS)},
    "maxpool": of(FIRST, "maxpool size=2 stride=2", h=7, w=6),
    "maxpool that overlaps": of(FIRST, "maxpool size=3 stride=1"),
    "maxpool with two strides": of(FIRST, "maxpool size=3 stride_x=1 stride_y=2"),
    "maxpool over channels": of(FIRST, "maxpool maxpool_depth=1 out_channels=2"),
    "maxpool blurred": of(FIRST, "maxpool size=2 stride=2 antialiasing=1", h=6),
    "local_avgpool": of(FIRST, "local_avgpool size=3 stride=2"),
    "avgpool": of(FIRST, "avgpool"),
    "dropout": of(f"{PAD} activation=tanh", "dropout probability=0.3", f"{PAD} activation=tanh"),
    "convolutional of another's kernel": of(
        FIRST, "convolutional filters=4 size=3 pad=1 activation=tanh", f"{SAME} activation=mish"
    ),
    "convolutional of another's batchnorm": of(
        FIRST,
        "convolutional filters=4 size=3 pad=1 batch_normalize=1 activation=tanh",
        f"{SAME} batch_normalize=1 activation=leaky",
    ),
    "upsample": of(FIRST, "upsample stride=2 scale=0.5"),
    "upsample the other way": of(FIRST, "upsample stride=-2", h=4),
    "reorg": of(FIRST, "reorg stride=2", h=4),
    "reorg the other way": of(FIRST, "reorg stride=2 reverse=1", h=4),
    "reorg flattened": of(FIRST, "reorg flatten=1", dialect="pjreddie"),
    "reorg flattened the other way": of(FIRST, "reorg flatten=1 reverse=1", dialect="pjreddie"),
    "reorg with more": of(FIRST, "reorg extra=3", dialect="pjreddie"),
    "reorg3d": of(FIRST, "reorg3d stride=2", h=4),
    "reorg3d the other way": of("convolutional filters=16 size=1 activation=linear", "reorg3d stride=2 reverse=1", h=2, w=2),
    "route": of(FIRST, f"{PAD} activation=tanh", "route layers=-1,-2"),
    "route to a part": of(FIRST, "route layers=-1 groups=2 group_id=1"),
    "shortcut": of(FIRST, FIRST, "shortcut from=-2 activation=tanh"),
    "shortcut to itself": of(FIRST, "shortcut from=-1 activation=linear"),
    "shortcut of mish": of(FIRST, FIRST, "shortcut from=-2 activation=mish"),
    "shortcut of another size": of(
        FIRST, f"{PAD} stride=2 activation=linear", "shortcut from=-2 activation=linear alpha=0.5 beta=2", h=4, dialect="pjreddie"
    ),
    "shortcut of several": of(FIRST, f"{PAD} activation=linear", FIRST, "shortcut from=-2,-3 activation=linear"),
    **{
        f"shortcut weighted by {kind}, {sums}": of(
            FIRST, FIRST, FIRST, f"shortcut from=-2,-3 weights_type={kind} weights_normalization={sums} activation=swish"
        )
        for kind in ("per_feature", "per_channel")
        for sums in ("none", "relu", "softmax")
    },
    "l2norm": of(FIRST, "l2norm", dialect="pjreddie"),
    "normalization": of(FIRST, "normalization size=3 alpha=0.5 beta=0.75 kappa=1.5"),
    "normalization of an even size": of(FIRST, "normalization size=2 alpha=0.5 beta=0.75 kappa=1.5"),
    "scale_channels": of(FIRST, "avgpool", "scale_channels from=-2 activation=tanh"),
    "scale_channels by pixel": of(
        FIRST, "convolutional filters=1 size=3 pad=1 activation=linear", "scale_channels from=-2 scale_wh=1"
    ),
    "sam": of(FIRST, FIRST, "sam from=-2 activation=leaky"),
    "implicit": of(FIRST, "implicit filters=4 atoms=1", "scale_channels from=-2"),
    **{f"local {a}": of(f"local filters=3 size=3 stride=2 pad=1 activation={a}") for a in ("linear", "tanh", "swish")},
    "local without padding": of("local filters=3 size=2 activation=tanh"),
    **{
        f"deconvolutional {a}": of(f"deconvolutional filters=3 size=3 stride=2 padding=1 activation={a}", dialect="pjreddie")
        for a in ("linear", "leaky")
    },
    "deconvolutional behind batchnorm": of(
        "deconvolutional filters=3 size=2 stride=2 batch_normalize=1 activation=tanh", dialect="pjreddie"
    ),
    "rnn": recurrent("rnn output=3 hidden=2 activation=tanh"),
    "rnn with a shortcut": recurrent("rnn output=2 hidden=3 shortcut=1 logistic=1 activation=leaky"),
    "rnn behind batchnorm": recurrent("rnn output=3 hidden=2 batch_normalize=1 activation=tanh"),
    "crnn": recurrent("crnn output=2 hidden=2 pad=1 activation=leaky", c=1, h=2, w=3),
    "crnn behind batchnorm": recurrent("crnn output=1 hidden=2 pad=1 batch_normalize=1 activation=tanh", c=1, h=2, w=3),
    "gru": recurrent("gru output=2"),
    "gru of tanh": recurrent("gru output=2 tanh=1", dialect="pjreddie"),
    "gru behind batchnorm": recurrent("gru output=2 batch_normalize=1"),
    "lstm": recurrent("lstm output=2"),
    "lstm behind batchnorm": recurrent("lstm output=2 batch_normalize=1"),
    "history": recurrent("history history_size=2"),
    "history behind another layer": recurrent(FIRST, "history history_size=3"),
    "conv_lstm": recurrent("conv_lstm output=1 pad=1", c=1, h=2, w=2),
    "conv_lstm with peephole": recurrent("conv_lstm output=1 pad=1 peephole=1 activation=tanh", c=1, h=2, w=2),
}


# --- both sides -----------------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Numbers for a case: its input and parameters under "x" and "layer.name", and a delta of the output."""

    case: Case
    profile: str
    arrays: Mapping[str, Array]
    delta: Array

    def values(self) -> dict[str, Value]:
        return {name: Value(array) for name, array in self.arrays.items()}

    def run(self, arrays: Mapping[str, Value]) -> Value:
        """The case's definition."""
        outputs = [arrays["x"]]
        for index, line in enumerate(self.case.sections):
            kind, *options = line.split()
            given = dict(option.split("=") for option in (*self.case.net.split(), *options))
            holder = f"{index + int(given.get('share_index', 0))}."
            own = {name.removeprefix(holder): array for name, array in arrays.items() if name.startswith(holder)}
            outputs.append(LAYERS[kind](Section(kind, given, own, outputs, PROFILES[self.profile])))
        return outputs[-1]

    def exact(self) -> tuple[Doubles, dict[str, Doubles]]:
        """The output, and the derivatives of sum(output * delta)."""
        values = self.values()
        output = self.run(values)
        return output.value, gradients(output, self.delta.astype(np.float64).reshape(output.shape), values)

    def differences(self) -> dict[str, Doubles]:
        """The same by differences of the definition, element by element."""
        doubles = {name: array.astype(np.float64) for name, array in self.arrays.items()}

        def loss(name: str, changed: Doubles) -> float:
            output = self.run({each: Value(changed if each == name else array) for each, array in doubles.items()}).value
            return float((output * self.delta.astype(np.float64).reshape(output.shape)).sum())

        return {name: _slopes(array, lambda changed, name=name: loss(name, changed)) for name, array in doubles.items()}


def _slopes(at: Doubles, loss: Callable[[Doubles], float]) -> Doubles:
    found = np.empty(at.shape)
    for place in np.ndindex(at.shape):
        ends = []
        for sign in (1, -1):
            changed = at.copy()
            changed[place] += sign * STEP
            ends.append(loss(changed))
        found[place] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def draw(case: Case, profile: str, seed: int) -> Sample:
    """Inputs and deltas of about 1, and weights that keep that; batchnorms scale as well."""
    rng = np.random.default_rng(seed)
    net = case.load(profile)
    arrays = {"x": rng.normal(size=(case.batch, case.c, case.h, case.w))}
    for layer in net.layers:
        for name, array in layer.params.items() if layer.stored else ():
            if not name.endswith(("rolling_mean", "rolling_variance")):
                spread = 1 / np.sqrt(np.prod(array.shape[1:])) if name.endswith("weights") else 0.5
                arrays[f"{layer.index}.{name}"] = rng.normal(size=array.shape) * spread + name.endswith("scales")
    delta = rng.normal(size=(case.batch, *net.layers[-1].out_shape))
    return Sample(case, profile, {name: array.astype(np.float32) for name, array in arrays.items()}, delta.astype(np.float32))


def sample(case: Case, profile: str = "textbook") -> Sample:
    """The first whose derivative does not jump nearby."""
    for seed in range(100):
        drawn = draw(case, profile, seed)
        if drawn.run(drawn.values()).margin > MARGIN:
            return drawn
    raise AssertionError("each input has a bend nearby; make the case smaller")


def with_values(drawn: Sample) -> dn.Network:
    """The case's network with the sample's parameters."""
    net = drawn.case.load(drawn.profile)
    for layer in net.layers:
        if layer.type == "dropout":
            layer.mask = kept(drawn.case.batch, *layer.out_shape).astype(np.float32)
        for name, array in layer.params.items():
            if f"{layer.index}.{name}" in drawn.arrays:
                array[...] = drawn.arrays[f"{layer.index}.{name}"]
    return net


def collected(net: dn.Network, drawn: Sample, delta: Array) -> dict[str, Array]:
    """The gradients after a backward that gave this delta of the input, under the sample's names."""
    found = {"x": delta}
    for layer in net.layers:
        for inside, owner in {"": layer, **{f"{name}.": inner for name, inner in layer.inner.items()}}.items():
            for name, updates in UPDATES.items():
                if f"{layer.index}.{inside}{name}" in drawn.arrays:
                    found[f"{layer.index}.{inside}{name}"] = getattr(owner, updates)
    return found


def apart(got: Mapping[str, Array] | Mapping[str, Doubles], want: Mapping[str, Doubles]) -> Iterator[tuple[str, float]]:
    """Of each array, the largest difference, relative to the largest element."""
    assert got.keys() == want.keys()
    for name, exact in want.items():
        largest = np.abs(exact).max()
        assert largest > 0, f"{name}: nothing goes back"
        yield name, float(np.abs(got[name].reshape(exact.shape) - exact).max() / largest)


# --- claims ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_derivatives_of_the_definition_are_its_differences(case: Case) -> None:
    drawn = sample(case)
    far = {name: off for name, off in apart(drawn.differences(), drawn.exact()[1]) if off > DIFFERENCES}
    assert not far


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_backward_is_the_derivative(case: Case) -> None:
    drawn = sample(case)
    output, exact = drawn.exact()
    net = with_values(drawn)
    (got,) = net.forward(drawn.arrays["x"], train=True)
    found = collected(net, drawn, net.backward(drawn.delta))
    assert np.abs(got - output).max() <= SINGLE * np.abs(output).max(), "the definition is not what the core computes"
    far = {name: off for name, off in apart(found, exact) if off > SINGLE}
    assert not far
