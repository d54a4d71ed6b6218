"""Any callable: what it returns for an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from ..._native import Array
from ...errors import DtypeError, StateError
from ..trace import Trace
from .arrays import trace_of_arrays
from .collecting import as_array

__all__ = ["trace_of_function"]


def trace_of_function(function: Callable[..., Any], x: Array, other_input: Any) -> Trace:
    """Of a function that gives its outputs, or all its values by name.

    Raises:
        StateError: it raises an error.
        DtypeError: it gives no arrays.
    """
    given = x if other_input is None else other_input
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        result = function(deepcopy(given))  # which it may overwrite
    except Exception as reason:
        raise StateError(f"{name} raised {type(reason).__name__}: {reason}") from reason
    if isinstance(result, Mapping):
        return trace_of_arrays(result, len(x), source=name, given=given)
    values = list(result) if isinstance(result, list | tuple) else [result]
    if not values or any(as_array(value) is None for value in values):
        kinds = ", ".join(type(value).__name__ for value in values) or "nothing"
        raise DtypeError(f"{name} gave {kinds}; expected an array, a list of arrays, or a dict of arrays by name")
    arrays = {f"output {number}": value for number, value in enumerate(values)}
    trace = trace_of_arrays(arrays, len(x), source=name, given=given)
    return Trace(trace.source, trace.framework, trace.tensors, trace.input, tuple(tensor.name for tensor in trace.tensors))
