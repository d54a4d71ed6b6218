"""Training: gradients through the layers, losses, steps."""

from __future__ import annotations

from .backpropagation import Pass, backpropagate, clear_gradients, fill_deltas, prepare_delta, update_parameters
from .losses import LayerLoss, Loss

__all__ = ["LayerLoss", "Loss", "Pass", "backpropagate", "clear_gradients", "fill_deltas", "prepare_delta", "update_parameters"]
