"""Training: gradients through the layers, losses, steps."""

from __future__ import annotations

from .backpropagation import Pass, backpropagate, clear_gradients, fill_deltas, prepare_delta, update_parameters
from .fitting import History
from .losses import LayerLoss, Loss
from .monitoring import LayerStatistics
from .progress import Progress
from .settings import TrainSettings, read_settings

__all__ = [
    "History",
    "LayerLoss",
    "LayerStatistics",
    "Loss",
    "Pass",
    "Progress",
    "TrainSettings",
    "backpropagate",
    "clear_gradients",
    "fill_deltas",
    "prepare_delta",
    "read_settings",
    "update_parameters",
]
