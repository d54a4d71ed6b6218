"""A PyTorch module, watched while it runs: every operation's value, whether a module, a function or an operator made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..._native import Array
from ...errors import DtypeError, StateError
from ..trace import Trace
from .collecting import Collector, as_array

__all__ = ["tensors_of", "trace_of_module"]

Module = Any
Tensor = Any
_SAME = {
    "max_pool2d_with_indices": "max_pool2d",
    "native_dropout": "dropout",
    "_unsafe_view": "view",
    "convolution_overrideable": "conv",
}


def trace_of_module(module: Module, x: Array, other_input: Any) -> Trace:
    """The values of a forward, called `path of the module: operation`.

    The module stays as it is: its mode, its buffers (batchnorm in training moves some), its hooks, the random numbers.

    Args:
        module: in the mode in which it is to be looked at.
        x: (batch, c, h, w); fed on the module's device, in its type.
        other_input: fed instead.

    Raises:
        StateError: the module raises an error; it says where.
        DtypeError: other_input is no array.
    """
    given = _given(module, x, other_input)
    watch = _Watch(module, given)
    name = type(module).__name__
    devices = [given.device] if given.device.type == "cuda" else []
    with _as_it_was(module), torch.random.fork_rng(devices=devices), torch.no_grad(), watch.paths(), watch:
        try:
            result = module(given)
        except Exception as reason:
            where = f" in {watch.failed}" if watch.failed else ""
            line = (str(reason).splitlines() or [""])[0]
            raise StateError(f"{name} raised {type(reason).__name__}{where}: {line}") from reason
    outputs = tuple(found for found in (watch.name_of(value) for value in tensors_of(result)) if found)
    mode = "training" if module.training else "eval"
    source = f"{name} in PyTorch {torch.__version__}, {mode} mode"
    return watch.collector.trace(source, "torch", given=as_array(given), outputs=outputs)


def _given(module: Module, x: Array, other_input: Any) -> Tensor:
    """The input where the module's parameters are, in their type."""
    if isinstance(other_input, torch.Tensor):
        return other_input.detach().clone()
    array = x if other_input is None else as_array(other_input)
    if array is None:
        raise DtypeError(f"other_input is a {type(other_input).__name__}; expected an array or tensor")
    tensor = torch.from_numpy(np.array(array))
    kept = [*module.parameters(), *module.buffers()]
    model = next((each for each in kept if each.is_floating_point()), None)
    if model is None:
        return tensor
    return tensor.to(model.device, model.dtype if tensor.is_floating_point() else tensor.dtype)


@contextmanager
def _as_it_was(module: Module) -> Iterator[None]:
    """For a block whose end leaves every buffer as it was."""
    kept = [
        (owner, name, value, None if value is None else value.clone())
        for owner in module.modules()
        if not isinstance(owner, torch.jit.ScriptModule)  # a program that is loaded only for this
        for name, value in owner._buffers.items()
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for owner, name, value, copy in kept:
                if copy is not None:
                    value.copy_(copy)
                owner._buffers[name] = value


def tensors_of(result: Any) -> Iterator[Tensor]:
    """The tensors of a result, however they are packed."""
    if isinstance(result, torch.Tensor):
        yield result
        return
    parts = result.values() if isinstance(result, Mapping) else result if isinstance(result, list | tuple) else ()
    for part in parts:
        yield from tensors_of(part)


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Copies every value when it is made: a later operation may overwrite it.

    Only what was computed from the input counts. That is told by memory: what an operation writes belongs to the input when one of
    its arguments does.
    """

    def __init__(self, module: Module, given: Tensor) -> None:
        super().__init__()
        self.collector = Collector(len(given))
        self.failed = ""
        self._module = module
        self._stack: list[str] = []
        self._from_input = {_memory(given)}
        self._names: dict[tuple[Any, ...], str] = {}

    # --- where ------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def paths(self) -> Iterator[None]:
        """For a block, hooks that know which module is running; only these are taken away at its end."""
        with ExitStack() as stack:
            for path, module in self._module.named_modules():
                if isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                    continue
                stack.callback(module.register_forward_pre_hook(self._entering(path)).remove)
                stack.callback(module.register_forward_hook(self._leaving, always_call=True).remove)
            yield

    def _entering(self, path: str) -> Any:
        def enter(_: Module, __: Any) -> None:
            self._stack.append(path)

        return enter

    def _leaving(self, _: Module, __: Any, ___: Any) -> None:
        if self._stack:
            self._stack.pop()

    # --- what -------------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation and keeps what it gives."""
        try:
            result = func(*args, **(kwargs or {}))
        except Exception:
            self.failed = self.failed or f"{self._path()}: {_operation(func)}"
            raise
        alive = self._belongs(args, kwargs or {})
        for value in tensors_of(result):
            self._take(value, func, alive)
        return result

    def _path(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _belongs(self, args: Any, kwargs: Any) -> bool:
        """Whether an argument comes from the input."""
        return any(_memory(value) in self._from_input for value in (*tensors_of(args), *tensors_of(kwargs)))

    def _take(self, value: Tensor, func: Any, alive: bool) -> None:
        if not alive:
            self._from_input.discard(_memory(value))
            return
        self._from_input.add(_memory(value))
        self._keep(value, _operation(func))
        base = value._base if func._schema.is_mutable else None
        if base is not None and tuple(base.shape) != tuple(value.shape):  # a part was written: the whole is another one now
            self._keep(base, _operation(func))

    def _keep(self, value: Tensor, operation: str) -> None:
        if not value.is_floating_point() or not self.collector.wants(tuple(value.shape)):
            return
        array = as_array(value)
        assert array is not None
        path = self._path()
        name = f"{path}: {operation}" if path else operation
        self._names[_place(value)] = self.collector.add(name, array, operation)

    def name_of(self, value: Tensor) -> str:
        """The newest value at a tensor's place; "" where there is none."""
        return self._names.get(_place(value), "")


def _memory(value: Tensor) -> int:
    return int(value.untyped_storage().data_ptr())


def _place(value: Tensor) -> tuple[Any, ...]:
    return (value.data_ptr(), tuple(value.shape), tuple(value.stride()))


def _operation(func: Any) -> str:
    """Its name without variants: aten::leaky_relu_ is leaky_relu, aten::cudnn_batch_norm batch_norm."""
    name = func._schema.name.split("::")[-1]
    if "batch_norm" in name:
        return "batch_norm"
    name = _SAME.get(name, name).rstrip("_")
    return "conv" if name.endswith("convolution") else name
