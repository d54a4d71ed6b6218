"""A training step of a PyTorch module, watched: each module's input, output, gradients, and its arrays before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from ..._native import Array
from ...errors import StateError
from ..sources.torch_module import tensors_of
from .watched import Step, Watched

__all__ = ["watch"]

Module = Any
Tensor = Any


def watch(module: Module, x: Array, seed: int) -> Step:
    """Runs one step of training on a batch: forward in training mode, and backward from random deltas at the outputs.

    The module stays as it was: modes, buffers, gradients, hooks, and the random numbers.

    Args:
        module: a `torch.nn.Module`.
        x: (batch, c, h, w) float32.
        seed: of the deltas.

    Raises:
        StateError: the module raises an error, or nothing of its outputs depends on x or a parameter.
    """
    watched = [_watched(name, each) for name, each in module.named_modules() if _own(each)]
    with _restored(module), torch.random.fork_rng(devices=[]), ExitStack() as hooks:
        module.train()
        ran: list[Watched] = []
        for each in watched:
            hooks.callback(each.module.register_forward_pre_hook(_before(each)).remove)
            hooks.callback(each.module.register_forward_hook(_after(each, ran)).remove)
        given = torch.from_numpy(x.copy()).requires_grad_(True)
        outputs = _run(module, given)
        deltas = _deltas(outputs, seed)
        try:
            torch.autograd.backward(outputs, deltas)
        except RuntimeError as reason:
            raise StateError(f"{type(module).__name__} raised in backward: {str(reason).splitlines()[0]}") from reason
        for each in watched:
            each.after = {name: _array(tensor) for name, tensor in _own(each.module).items()}
            each.gradients = {
                name: None if parameter.grad is None else _array(parameter.grad)
                for name, parameter in each.module.named_parameters(recurse=False)
            }
    idle = [each for each in watched if not each.runs]
    return Step((*ran, *idle), tuple(_array(each) for each in outputs), tuple(_array(each) for each in deltas))


def _run(module: Module, given: Tensor) -> list[Tensor]:
    try:
        result = module(given)
    except Exception as reason:
        line = (str(reason).splitlines() or [""])[0]
        raise StateError(f"{type(module).__name__} raised {type(reason).__name__} in training mode: {line}") from reason
    outputs = [each for each in tensors_of(result) if each.requires_grad]
    if not outputs:
        raise StateError(f"{type(module).__name__}: no output depends on x or on a parameter, so nothing can be trained")
    return outputs


def _deltas(outputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal(tuple(each.shape), np.float32)).to(each) for each in outputs]


def _watched(name: str, module: Module) -> Watched:
    own = _own(module)
    return Watched(
        name, module, {key: _array(each) for key, each in own.items()}, {key: each.data_ptr() for key, each in own.items()}
    )


def _own(module: Module) -> dict[str, Tensor]:
    """Parameters and buffers of floats that are the module's own."""
    found = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    return {name: tensor for name, tensor in found if tensor.is_floating_point()}


def _before(each: Watched) -> Any:
    def enter(_: Module, inputs: tuple[Any, ...]) -> Any:
        if each.runs or not inputs or not isinstance(inputs[0], torch.Tensor):
            return None
        each.x = _array(inputs[0])
        if not inputs[0].requires_grad:
            return None
        alone = inputs[0].view_as(inputs[0])  # what reads the same tensor elsewhere has its gradient elsewhere
        alone.register_hook(lambda gradient: _store(each, "input_gradient", gradient))
        return (alone, *inputs[1:])

    return enter


def _after(each: Watched, ran: list[Watched]) -> Any:
    def leave(_: Module, __: Any, output: Any) -> None:
        each.runs += 1
        if each.runs > 1 or not isinstance(output, torch.Tensor):
            return
        ran.append(each)
        each.output = _array(output)
        if output.requires_grad:
            output.register_hook(lambda gradient: _store(each, "output_gradient", gradient))

    return leave


def _store(each: Watched, name: str, gradient: Tensor) -> None:
    setattr(each, name, _array(gradient))


@contextmanager
def _restored(module: Module) -> Iterator[None]:
    """For a block whose end leaves modes, buffers and gradients as they were."""
    modes = [(each, each.training) for each in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, copy in buffers:
                buffer.copy_(copy)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for each, mode in modes:
            each.training = mode


def _array(tensor: Tensor) -> Array:
    return np.array(tensor.detach().to(torch.float32).cpu().numpy())
