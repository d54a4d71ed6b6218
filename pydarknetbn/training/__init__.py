"""Training: gradients through the layers, losses, steps."""

from __future__ import annotations

from .backpropagation import Pass, backpropagate, clear_gradients, fill_deltas, prepare_delta, update_parameters

__all__ = ["Pass", "backpropagate", "clear_gradients", "fill_deltas", "prepare_delta", "update_parameters"]
