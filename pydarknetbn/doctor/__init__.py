"""The port doctor: compares a network with a port of it, and names what the port computes otherwise."""

from __future__ import annotations

from .results import Cause, Closeup, Comparison, Errors, Row
from .trace import Tensor, Trace

__all__ = ["Cause", "Closeup", "Comparison", "Errors", "Row", "Tensor", "Trace"]
