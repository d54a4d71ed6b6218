"""Three networks, their weights from a seed, and a picture for them."""

from __future__ import annotations

from functools import cache

import numpy as np

import oracle
import pydarknetbn as dn
from nets import cfg_of

from .graph import Floats

SIDE = 64
_ANCHORS = "anchors=6,8,14,10,20,28,40,36 num=4 classes=3"
_LEAKY = "batch_normalize=1 pad=1 activation=leaky"
_MISH = "batch_normalize=1 pad=1 activation=mish"

# Each fault of a port has to show in two of them or more; comments number the layers.
TINY = [
    f"convolutional filters=8 size=3 {_LEAKY}",
    "maxpool size=2 stride=2",
    f"convolutional filters=16 size=3 stride=2 {_LEAKY}",
    f"convolutional filters=16 size=3 {_LEAKY}",
    "maxpool size=2 stride=1",
    f"convolutional filters=16 size=3 groups=2 {_LEAKY}",  # 5
    "dropout probability=.3",
    f"convolutional filters=32 size=3 stride=2 {_LEAKY}",
    f"convolutional filters=32 size=1 {_LEAKY}",
    "convolutional filters=16 size=1 activation=linear",
    f"yolo mask=2,3 scale_x_y=1.05 {_ANCHORS}",  # 10
    "route layers=-3",
    "route layers=-1 groups=2 group_id=1",
    f"convolutional filters=16 size=1 {_LEAKY}",
    "upsample stride=2",
    "route layers=-1,5,4",  # 15
    f"convolutional filters=16 size=3 dilation=2 {_LEAKY}",
    "reorg stride=2",
    f"convolutional filters=16 size=3 {_LEAKY}",
    "convolutional filters=16 size=1 activation=linear",
    f"yolo mask=0,1 scale_x_y=1.2 {_ANCHORS}",  # 20
]
RESIDUAL = [
    f"convolutional filters=8 size=3 {_MISH}",
    "convolutional filters=16 size=3 stride=2 batch_normalize=1 pad=1 activation=swish",
    f"convolutional filters=16 size=1 {_MISH}",
    "convolutional filters=16 size=3 batch_normalize=1 pad=1 activation=linear",
    "dropout probability=.2",
    "shortcut from=-4 activation=leaky",  # 5
    f"convolutional filters=16 size=3 groups=4 {_MISH}",
    "shortcut from=-2,-5 weights_type=per_channel weights_normalization=softmax activation=linear",
    "convolutional filters=16 size=3 dilation=2 batch_normalize=1 pad=1 activation=swish",
    "shortcut from=-2 weights_type=per_feature weights_normalization=relu activation=mish",
    f"convolutional filters=24 size=3 {_MISH}",  # 10
    "shortcut from=-2 activation=linear",
    f"convolutional filters=24 size=3 stride=2 {_MISH}",
    f"convolutional filters=24 size=3 {_MISH}",
    "shortcut from=-2 activation=linear",
    "convolutional filters=32 size=3 stride=2 batch_normalize=1 pad=1 activation=linear",  # 15
    "maxpool size=2 stride=1",
    f"convolutional filters=16 size=1 {_MISH}",
    "convolutional filters=16 size=1 activation=linear",
    f"yolo mask=2,3 scale_x_y=1.1 {_ANCHORS}",
    "route layers=-3",  # 20
    "upsample stride=2 scale=.5",
    "route layers=-1,13",
    f"convolutional filters=24 size=1 {_MISH}",
    "convolutional filters=16 size=1 activation=logistic",
    f"yolo mask=0,1 scale_x_y=2 new_coords=1 {_ANCHORS}",  # 25
]
CSP = [
    f"convolutional filters=16 size=3 {_LEAKY}",
    f"convolutional filters=32 size=3 stride=2 groups=2 {_LEAKY}",
    "route layers=-1 groups=2 group_id=1",
    f"convolutional filters=16 size=3 {_MISH}",
    f"convolutional filters=16 size=3 groups=16 {_LEAKY}",
    "route layers=-1,-2",  # 5
    f"convolutional filters=32 size=1 {_LEAKY}",
    "route layers=1,-1",
    f"convolutional filters=16 size=3 dilation=2 {_LEAKY}",
    "dropout probability=.15",
    "shortcut from=3 weights_type=per_channel weights_normalization=relu activation=leaky",  # 10
    f"convolutional filters=24 size=3 {_MISH}",
    "shortcut from=-2 activation=linear",
    "convolutional filters=16 size=1 batch_normalize=1 activation=swish",
    "reorg stride=2",
    f"convolutional filters=32 size=3 stride=2 {_LEAKY}",  # 15
    "avgpool",
    "convolutional filters=32 size=1 activation=logistic",
    "scale_channels from=-3",
    "maxpool size=5 stride=1",
    "route layers=-1,-2",  # 20
    f"convolutional filters=16 size=1 {_LEAKY}",
    "maxpool size=2 stride=1",
    "convolutional filters=16 size=1 activation=logistic",
    f"yolo mask=2,3 scale_x_y=2 new_coords=1 {_ANCHORS}",
    "route layers=-4",  # 25
    "upsample stride=2 scale=2",
    "route layers=-1,14",
    f"convolutional filters=16 size=3 {_MISH}",
    "convolutional filters=16 size=1 activation=linear",
    f"yolo mask=0,1 scale_x_y=1.05 {_ANCHORS}",  # 30
]
NETWORKS = {"tiny": TINY, "residual": RESIDUAL, "csp": CSP}


def network(name: str, seed: int) -> dn.Network:
    """A network whose weights look trained: sums have the variances that the rolling arrays tell, about."""
    net = dn.load(cfg_of(*NETWORKS[name], w=SIDE, h=SIDE), None, dialect="alexeyab", seed=seed)
    generator = np.random.default_rng([seed, *name.encode()])
    x = given(picture(seed + 1))
    for layer in net.layers:
        if layer.type == "convolutional":
            _train(net, layer, x, generator)
        elif "weights" in layer.shapes:  # of a shortcut; one channel in four has no share in one of its inputs
            layer.weights[...] = generator.normal(0.6, 1, layer.weights.shape)
            if layer.weights.size <= 1 + len(layer.sources):  # one for each input: else a whole layer counts for nothing
                layer.weights[...] = np.abs(layer.weights) + np.float32(0.2)
    return net


def _train(net: dn.Network, layer: dn.Layer, x: Floats, generator: np.random.Generator) -> None:
    net.forward(x)
    before = x if layer.index == 0 else net.layers[layer.index - 1].output
    n, depth = layer.weights.shape[:2]
    weights = generator.normal(0, 1, layer.weights.shape) + generator.normal(0, 0.5, (n, depth, 1, 1))
    native = layer.native
    options = {"groups": native.groups, "dilation": native.dilation, "stride_x": native.stride_x, "stride_y": native.stride_y}
    sums = oracle.convolution(before, weights, {**options, "pad": native.pad})
    spread = np.maximum(sums.std((0, 2, 3)), 1e-3 * np.abs(sums).max() + 1e-6)
    normalized = "rolling_mean" in layer.shapes
    variance = 10 ** generator.uniform(-4, 1, n) if normalized else generator.uniform(0.2, 1, n)
    if spread.min() == 0 or sums.shape[2:] == (1, 1):
        spread = np.abs(sums).mean() * np.ones(n)
    factor = np.sqrt(variance) / spread
    layer.weights[...] = weights * factor[:, None, None, None]
    mean = sums.mean((0, 2, 3)) * factor
    if not normalized:
        layer.biases[...] = generator.normal(0, 1, n) - mean
        return
    layer.rolling_mean[...] = mean + np.sqrt(variance) * generator.normal(0, 0.3, n)
    layer.rolling_variance[...] = variance * np.exp(generator.normal(0, 0.3, n))
    layer.scales[...] = generator.uniform(0.4, 1.6, n) * np.where(generator.random(n) < 0.25, -1, 1)
    layer.biases[...] = generator.normal(0, 0.7, n)


@cache
def picture(seed: int, w: int = 150, h: int = 104) -> Floats:
    """(3, h, w) of bytes / 255: shades, edges, three channels that differ, and some grain."""
    generator = np.random.default_rng([seed, 150])
    rows, columns = np.mgrid[0:h, 0:w] / 32.0
    made = np.zeros((3, h, w))
    for channel in range(3):
        for _ in range(4):
            a, b, phase = generator.normal(0, 1.2, 3)
            made[channel] += np.sin(a * rows + b * columns + 3 * phase)
        top, left = generator.integers(0, h // 2), generator.integers(0, w // 2)
        made[channel, top : top + h // 3, left : left + w // 3] += generator.normal(0, 3)
    made = made / 8 + 0.35 + np.array([0.15, 0, -0.1])[:, None, None] + generator.normal(0, 0.03, made.shape)
    array = (np.clip(made, 0, 1) * 255).round().astype(np.float32) / np.float32(255)
    array.setflags(write=False)
    return array


def given(image: Floats) -> Floats:
    """What the networks get of a picture: stretched."""
    return dn.image.resize(image, SIDE, SIDE)[None]
