"""A step of training of five convolutions with batchnorms: forward, backward from a given delta, momentum and decay."""

from __future__ import annotations

from typing import Any

from .common import Call, Cases, Setting, random

FILTERS, STRIDES = (16, 32, 64, 64, 64), (1, 2, 1, 2, 1)
BATCH, SIDE = 16, 64
RATE, MOMENTUM, DECAY = 0.001, 0.9, 0.0005


def training(contender: str, setting: Setting) -> Cases:
    """One step; contenders: ours, torch."""
    del setting
    x, delta = random(BATCH, 3, SIDE, SIDE), random(BATCH, FILTERS[-1], SIDE // 4, SIDE // 4)
    work, side, c = 0.0, SIDE, 3
    for n, stride in zip(FILTERS, STRIDES, strict=True):
        side //= stride
        work += 2.0 * BATCH * n * c * 9 * side * side * (2 if c == 3 else 3)  # nobody wants the delta of the pictures
        c = n
    yield f"{BATCH} of {SIDE}x{SIDE}", work, {"ours": _ours, "torch": _torch}[contender](x, delta)


def _ours(x: Any, delta: Any) -> Call:
    import pydarknetbn
    from pydarknetbn.training import backpropagate, fill_deltas, update_parameters

    text = f"[net]\nwidth={SIDE}\nheight={SIDE}\nchannels=3\n"
    for n, stride in zip(FILTERS, STRIDES, strict=True):
        text += f"[convolutional]\nbatch_normalize=1\nfilters={n}\nsize=3\nstride={stride}\npad=1\nactivation=leaky\n"
    net = pydarknetbn.load(text.encode(), dialect="pjreddie", seed=1)
    rule, workspace = net.arithmetic.training, net.runner.workspace

    def step() -> None:
        net.forward(x, train=True)
        fill_deltas(net.layers, net.kept, delta, BATCH)
        assert net.runner.done is not None
        backpropagate(net.layers, net.runner.done, rule, name="benchmark", wants_input=False, workspace=workspace)
        update_parameters(net.layers, rule, batch=BATCH, learning_rate=RATE, momentum=MOMENTUM, decay=DECAY)

    return step


def _torch(x: Any, delta: Any) -> Call:
    import torch

    modules: list[Any] = []
    for c, n, stride in zip((3, *FILTERS), FILTERS, STRIDES, strict=False):
        modules += [torch.nn.Conv2d(c, n, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(n), torch.nn.LeakyReLU(0.1, inplace=True)]
    net, given, gradient = torch.nn.Sequential(*modules), torch.from_numpy(x), torch.from_numpy(-delta)
    moves = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step() -> None:
        moves.zero_grad()
        net(given).backward(gradient)
        moves.step()

    return step
